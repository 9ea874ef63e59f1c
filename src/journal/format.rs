//! The journal's bytes on disk: the header of a segment and the frame around each record.
//!
//! All numbers are little-endian. A segment is a header of 64 bytes and then frames. Each frame is aligned to eight
//! bytes:
//!
//! ```text
//! offset 0   word      u32   magic << 16 | length of the payload; written last, 0 until then
//!        4   checksum  u32   CRC-32 of the payload; its start value depends on the segment, the offset and the word
//!        8   payload         padded with zeros to a multiple of eight
//! ```

use crate::domain::hit::{NodeId, Position};

/// Length of a segment's header, in bytes; the first frame follows it.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// Length of a frame's word and checksum, which precede its payload, in bytes.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Length of a frame's first word, in bytes.
pub const WORD_BYTES: usize = 4;

/// Frames start at multiples of this, in bytes.
pub const FRAME_ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"SPJRNL01";
const RECORD_MAGIC: u16 = 0xA5C3;
const SKIP_MAGIC: u16 = 0x5A3C;

/// The layout of all records of a segment. The format version in the segment's header tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordLayout {
    /// Written by 0.1.0.
    V1 = 1,
    /// With revision, route and skippable fields.
    V2 = 2,
}

impl RecordLayout {
    /// The layout that records are written in.
    pub const WRITTEN: Self = Self::V2;

    fn of_version(version: u32) -> Option<Self> {
        match version {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }
}

/// A segment's first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub layout: RecordLayout,
    /// The segment's number. It is never used twice, so the checksums of records depend on it.
    pub sequence: u64,
    /// The position of the segment's first byte.
    pub base: Position,
    /// The file's length in bytes, including this header.
    pub capacity: u64,
    /// The node that wrote the segment.
    pub node: NodeId,
    /// When the file was created, in milliseconds of Unix time. Only for people who inspect the file.
    pub created_at_ms: u64,
}

/// Why a file's first bytes are not the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("not a journal segment")]
    Magic,
    /// The header is undamaged, so a later release wrote the segment.
    #[error("unknown format version {0}")]
    Version(u32),
    #[error("the header's checksum is wrong")]
    Checksum,
    #[error("the header's numbers are invalid")]
    Range,
}

impl SegmentHeader {
    /// The position of the segment's end.
    pub fn end(&self) -> Position {
        Position(self.base.0.saturating_add(self.capacity))
    }

    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&(self.layout as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[40..56].copy_from_slice(self.node.0.as_bytes());
        bytes[56..64].copy_from_slice(&self.created_at_ms.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, HeaderError> {
        if bytes[0..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Magic);
        }
        let mut unsigned = *bytes;
        unsigned[12..16].fill(0);
        if crc32fast::hash(&unsigned) != u32_at(bytes, 12) {
            return Err(HeaderError::Checksum);
        }
        let version = u32_at(bytes, 8);
        let layout = RecordLayout::of_version(version).ok_or(HeaderError::Version(version))?;
        let mut node = [0; 16];
        node.copy_from_slice(&bytes[40..56]);
        let header = Self {
            layout,
            sequence: u64_at(bytes, 16),
            base: Position(u64_at(bytes, 24)),
            capacity: u64_at(bytes, 32),
            node: NodeId(uuid::Uuid::from_bytes(node)),
            created_at_ms: u64_at(bytes, 56),
        };
        let fits = header.capacity >= SEGMENT_HEADER_BYTES as u64
            && u32::try_from(header.capacity).is_ok()
            && header.base.0.checked_add(header.capacity).is_some();
        if fits { Ok(header) } else { Err(HeaderError::Range) }
    }

    /// The start value of the checksums in this segment. It differs by segment and node, so bytes of another segment
    /// are not mistaken for a record of this one.
    pub fn seed(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }
}

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A record.
    Record,
    /// Nothing. It covers the rest of a segment or a reservation that was abandoned.
    Skip,
}

/// The first four bytes of a frame: its kind and its payload's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameWord {
    pub kind: FrameKind,
    pub payload_len: u16,
}

impl FrameWord {
    /// The word as stored. It is never 0, which means "not published yet".
    pub fn to_raw(self) -> u32 {
        let magic = match self.kind {
            FrameKind::Record => RECORD_MAGIC,
            FrameKind::Skip => SKIP_MAGIC,
        };
        u32::from(magic) << 16 | u32::from(self.payload_len)
    }

    /// `None` if this is not the first word of a frame, or the frame is longer than `space` bytes.
    pub fn from_raw(raw: u32, space: usize) -> Option<Self> {
        let [low, high, magic_low, magic_high] = raw.to_le_bytes();
        let kind = match u16::from_le_bytes([magic_low, magic_high]) {
            RECORD_MAGIC => FrameKind::Record,
            SKIP_MAGIC => FrameKind::Skip,
            _ => return None,
        };
        let word = Self { kind, payload_len: u16::from_le_bytes([low, high]) };
        (word.frame_bytes() <= space).then_some(word)
    }

    /// The whole frame's length in bytes: header, payload and padding.
    pub fn frame_bytes(self) -> usize {
        frame_bytes(self.payload_len)
    }

    /// The checksum of a frame that starts at `offset` of the segment with this `seed`.
    ///
    /// The offset and the word are part of the start value and are not hashed, which costs nothing: for the same
    /// payload, CRC-32 gives different sums for different start values.
    pub fn checksum(self, seed: u32, offset: usize, payload: &[u8]) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "a segment is shorter than 4 GiB")]
        let start = seed ^ offset as u32 ^ self.to_raw();
        let mut hasher = crc32fast::Hasher::new_with_initial(start);
        hasher.update(payload);
        hasher.finalize()
    }
}

/// The length in bytes of a frame with a payload of `payload_len` bytes.
pub fn frame_bytes(payload_len: u16) -> usize {
    (FRAME_HEADER_BYTES + usize::from(payload_len)).next_multiple_of(FRAME_ALIGNMENT)
}

fn u32_at(bytes: &[u8; SEGMENT_HEADER_BYTES], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8; SEGMENT_HEADER_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            layout: RecordLayout::WRITTEN,
            sequence: 7,
            base: Position(4096),
            capacity: 65_536,
            node: NodeId(uuid::Uuid::from_bytes([9; 16])),
            created_at_ms: 1_764_000_000_000,
        }
    }

    #[test]
    fn a_header_reads_back_as_written() {
        for layout in [RecordLayout::V1, RecordLayout::V2] {
            let header = SegmentHeader { layout, ..header() };
            assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn a_version_that_no_release_has_written_yet_is_told_from_damage() {
        let mut bytes = header().encode();
        bytes[8..16].fill(0);
        bytes[8] = 3;
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Checksum));
        let checksum = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version(3)));
    }

    #[test]
    fn no_flipped_bit_of_a_header_goes_unnoticed() {
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_word_that_does_not_fit_is_none() {
        let word = FrameWord { kind: FrameKind::Record, payload_len: 9 };
        assert_eq!(word.frame_bytes(), 24);
        assert_eq!(FrameWord::from_raw(word.to_raw(), 24), Some(word));
        assert_eq!(FrameWord::from_raw(word.to_raw(), 23), None);
        assert_eq!(FrameWord::from_raw(0, 24), None);
    }

    #[test]
    fn a_checksum_depends_on_segment_place_length_and_payload() {
        let word = FrameWord { kind: FrameKind::Record, payload_len: 3 };
        let sum = word.checksum(1, 64, b"abc");
        assert_ne!(sum, word.checksum(2, 64, b"abc"));
        assert_ne!(sum, word.checksum(1, 72, b"abc"));
        assert_ne!(sum, word.checksum(1, 64, b"abd"));
        assert_ne!(sum, FrameWord { kind: FrameKind::Skip, ..word }.checksum(1, 64, b"abc"));
    }
}

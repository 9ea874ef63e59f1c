//! A Bloom filter that many threads read and write at once, without locks.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const LANES: usize = 8;
const BITS_PER_ID: u64 = 12;
const BITS_PER_BLOCK: u64 = LANES as u64 * 32;
/// As in Parquet's "split block" filters: a lane's bit follows from the product of the hash with its odd number.
const SALTS: [u32; LANES] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// An id sets one bit in each lane of one block: a look-up reads one line of memory.
#[repr(align(32))]
#[derive(Default)]
struct Block([AtomicU32; LANES]);

/// A filter with room for so many ids; with more, it is wrong more often.
pub struct Filter {
    blocks: Box<[Block]>,
    room: u64,
    ids: AtomicU64,
}

impl Filter {
    pub fn new(room: u64) -> Self {
        let blocks = (room * BITS_PER_ID).div_ceil(BITS_PER_BLOCK).max(1);
        Self { blocks: (0..blocks).map(|_| Block::default()).collect(), room, ids: AtomicU64::new(0) }
    }

    pub fn room(&self) -> u64 {
        self.room
    }

    /// How many ids were inserted.
    pub fn len(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.room
    }

    pub fn insert(&self, hash: u64) {
        for (lane, bit) in self.block(hash).0.iter().zip(bits(hash)) {
            lane.fetch_or(bit, Ordering::Relaxed);
        }
        self.ids.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an id with this hash may have been inserted; `false` is certain.
    pub fn may_have(&self, hash: u64) -> bool {
        let lanes = self.block(hash).0.iter().zip(bits(hash));
        lanes.fold(true, |all, (lane, bit)| all & (lane.load(Ordering::Relaxed) & bit != 0))
    }

    fn block(&self, hash: u64) -> &Block {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of blocks")]
        let index = ((u128::from(hash) * self.blocks.len() as u128) >> u64::BITS) as usize;
        &self.blocks[index]
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.room.to_le_bytes())?;
        out.write_all(&self.len().to_le_bytes())?;
        for lane in self.blocks.iter().flat_map(|block| &block.0) {
            out.write_all(&lane.load(Ordering::Relaxed).to_le_bytes())?;
        }
        Ok(())
    }

    /// Reads one that was written, and takes it off the front of `bytes`; `None` where it isn't whole.
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (room, rest) = bytes.split_first_chunk()?;
        let (ids, rest) = rest.split_first_chunk()?;
        let room = u64::from_le_bytes(*room);
        // More than the file can hold is not even allotted.
        let blocks = room.checked_mul(BITS_PER_ID)?.div_ceil(BITS_PER_BLOCK).max(1);
        let length = usize::try_from(blocks).ok()?.checked_mul(size_of::<Block>())?;
        let (lanes, rest) = rest.split_at_checked(length)?;
        let filter = Self { ids: AtomicU64::new(u64::from_le_bytes(*ids)), ..Self::new(room) };
        let (lanes, _) = lanes.as_chunks();
        for (lane, bytes) in filter.blocks.iter().flat_map(|block| &block.0).zip(lanes) {
            lane.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        *bytes = rest;
        Some(filter)
    }
}

/// The bit of each lane. They follow from the lower half of the hash, the block from the upper one.
fn bits(hash: u64) -> [u32; LANES] {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let low = hash as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

//! The sheet of a day, as a column or in rows: parts that can each be read alone.
//!
//! A part is the version, then sections. A section is a byte with the dimension in its lower half, and in its upper one
//! the number of entries, or 15 if that number ([`varint`]) follows; then the entries. An entry is a label and its
//! hits. A label is, by the form of its dimension: a code (255: other), two letters (0, 0: other), or the length of a
//! text in a byte (0: other) and the text. The hits are the number of persons × 2; if it is odd, the number of bots
//! follows. The section of the number 15 has one entry without a label: the private hits.

use super::{corrupt, split_version, unknown_version, varint};
use crate::domain::breakdown::{
    Dimension, LabelForm, MAX_SHEET_TEXTS, MAX_TEXT_BYTES, Sheet, SheetEntry, SheetLabel, kept_text,
};
use crate::domain::tally::Tally;
use crate::store::StoreError;

const TABLE: &str = "sheets";
const VERSION: u8 = 1;

/// The number of a section with private hits.
const PRIVATE: u8 = 15;
/// The number of entries follows.
const MANY: u8 = 15;
/// A section's first byte, and the number of its entries: there are fewer than 2^14.
const SECTION_BYTES: usize = 3;
const NO_LETTERS: [u8; 2] = [0, 0];

/// The longest part that is a row of its own: with a key of 20 bytes, it is as long as a row of the embedded store may
/// be.
pub const PART_BYTES: usize = 3_880;

/// Writes a sheet in parts of at most `most` bytes; none for an empty sheet. A part has at least one entry, of up to
/// 150 bytes.
pub fn encode<T: AsRef<str>>(sheet: &Sheet<T>, most: usize) -> Vec<Vec<u8>> {
    let mut parts = SheetParts { parts: Vec::new(), part: vec![VERSION], most };
    for group in sheet.entries().chunk_by(|a, b| a.dimension == b.dimension) {
        let number = group[0].dimension as u8;
        let mut section = SheetSection::default();
        for entry in group {
            let start = section.bytes.len();
            push_label(&mut section.bytes, &entry.label, entry.dimension);
            push_tally(&mut section.bytes, entry.tally);
            section.entries += 1;
            if parts.has_no_room_for(&section) && start > 0 {
                let last = section.bytes.split_off(start);
                section.entries -= 1;
                parts.end_section(number, &section);
                section = SheetSection { bytes: last, entries: 1 };
            }
        }
        parts.end_section(number, &section);
    }
    if !sheet.private().is_zero() {
        let mut section = SheetSection { bytes: Vec::new(), entries: 1 };
        push_tally(&mut section.bytes, sheet.private());
        parts.end_section(PRIVATE, &section);
    }
    parts.end_part();
    parts.parts
}

/// Entries of one dimension.
#[derive(Default)]
struct SheetSection {
    bytes: Vec<u8>,
    entries: u64,
}

struct SheetParts {
    parts: Vec<Vec<u8>>,
    part: Vec<u8>,
    most: usize,
}

impl SheetParts {
    fn has_no_room_for(&self, section: &SheetSection) -> bool {
        self.part.len() + SECTION_BYTES + section.bytes.len() > self.most
    }

    fn end_section(&mut self, number: u8, section: &SheetSection) {
        if self.has_no_room_for(section) {
            self.end_part();
        }
        match u8::try_from(section.entries) {
            Ok(few) if few < MANY => self.part.push(number | few << 4),
            _ => {
                self.part.push(number | MANY << 4);
                varint::push(&mut self.part, section.entries);
            }
        }
        self.part.extend_from_slice(&section.bytes);
    }

    fn end_part(&mut self) {
        if self.part.len() > 1 {
            self.parts.push(std::mem::replace(&mut self.part, vec![VERSION]));
        }
    }
}

fn push_label<T: AsRef<str>>(bytes: &mut Vec<u8>, label: &SheetLabel<T>, dimension: Dimension) {
    match (dimension.form(), label) {
        (LabelForm::Codes(_), SheetLabel::Code(code)) => bytes.push(*code),
        (LabelForm::Codes(_), _) => bytes.push(SheetLabel::<T>::NO_CODE),
        (LabelForm::Country, SheetLabel::Country(letters)) => bytes.extend_from_slice(letters),
        (LabelForm::Country, _) => bytes.extend_from_slice(&NO_LETTERS),
        (LabelForm::Text, SheetLabel::Text(text)) => {
            let text = kept_text(text.as_ref());
            // At most 128.
            bytes.push(u8::try_from(text.len()).unwrap_or(0));
            bytes.extend_from_slice(text.as_bytes());
        }
        (LabelForm::Text, _) => bytes.push(0),
    }
}

fn push_tally(bytes: &mut Vec<u8>, tally: Tally) {
    let (persons, bots) = (tally.persons.min(varint::MAX_COUNT), tally.bots.min(varint::MAX_COUNT));
    varint::push(bytes, persons << 1 | u64::from(bots > 0));
    if bots > 0 {
        varint::push(bytes, bots);
    }
}

/// Reads a sheet from its parts, in their order.
///
/// # Errors
/// When they are not those of a sheet, or of a later version.
pub fn decode<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<Sheet<&'a str>, StoreError> {
    let mut sheet = Sheet::default();
    for part in parts {
        add_part(&mut sheet, part)?;
    }
    check_sums(&sheet)?;
    Ok(sheet)
}

/// Reads one part alone, which may have any number of texts, and may have no devices.
///
/// # Errors
/// When it is none, or of a later version.
pub fn decode_part(part: &[u8]) -> Result<Sheet<&str>, StoreError> {
    let mut sheet = Sheet::default();
    add_part(&mut sheet, part)?;
    Ok(sheet)
}

fn add_part<'a>(sheet: &mut Sheet<&'a str>, part: &'a [u8]) -> Result<(), StoreError> {
    match split_version(TABLE, part)? {
        (VERSION, sections) => decode_sections(sheet, sections),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

fn decode_sections<'a>(sheet: &mut Sheet<&'a str>, mut bytes: &'a [u8]) -> Result<(), StoreError> {
    while let Some((head, rest)) = bytes.split_first() {
        bytes = rest;
        let (number, few) = (head & 0x0f, head >> 4);
        let entries = if few == MANY { varint::take(&mut bytes) } else { Some(u64::from(few)) };
        let entries = entries.ok_or_else(|| corrupt(TABLE, &"no number of entries"))?;
        if number == PRIVATE {
            let tally = take_tally(&mut bytes).filter(|_| entries == 1);
            sheet.add_private(tally.ok_or_else(|| corrupt(TABLE, &"not the private hits"))?);
            continue;
        }
        let dimension = Dimension::from_number(number).ok_or_else(|| corrupt(TABLE, &"not a dimension"))?;
        if sheet.entries().last().is_some_and(|last| last.dimension > dimension) {
            return Err(corrupt(TABLE, &"dimensions out of order"));
        }
        // Each entry takes a byte at least: a number that is too large ends with the bytes.
        for _ in 0..entries {
            let label = take_label(&mut bytes, dimension).ok_or_else(|| corrupt(TABLE, &"not a label"))?;
            let tally = take_tally(&mut bytes).ok_or_else(|| corrupt(TABLE, &"not a count"))?;
            sheet.push(SheetEntry { dimension, label, tally });
        }
    }
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn take_label<'a>(bytes: &mut &'a [u8], dimension: Dimension) -> Option<SheetLabel<&'a str>> {
    match dimension.form() {
        LabelForm::Codes(_) => match take(bytes, 1)? {
            [SheetLabel::<&str>::NO_CODE] => Some(SheetLabel::Other),
            // A later version may have more codes.
            code => Some(SheetLabel::Code(code[0])),
        },
        LabelForm::Country => {
            let letters = <[u8; 2]>::try_from(take(bytes, 2)?).ok()?;
            if letters == NO_LETTERS {
                return Some(SheetLabel::Other);
            }
            letters.iter().all(u8::is_ascii_uppercase).then_some(SheetLabel::Country(letters))
        }
        LabelForm::Text => match usize::from(take(bytes, 1)?[0]) {
            0 => Some(SheetLabel::Other),
            length @ 1..=MAX_TEXT_BYTES => str::from_utf8(take(bytes, length)?).ok().map(SheetLabel::Text),
            _ => None,
        },
    }
}

fn take_tally(bytes: &mut &[u8]) -> Option<Tally> {
    let number = varint::take(bytes)?;
    let bots =
        if number & 1 == 0 { 0 } else { varint::take(bytes).filter(|bots| (1..=varint::MAX_COUNT).contains(bots))? };
    Some(Tally { persons: number >> 1, bots })
}

/// Checks that there are not more texts than a writer keeps, and in no dimension more hits than there are devices: a
/// breakdown would have a wrong total.
fn check_sums(sheet: &Sheet<&str>) -> Result<(), StoreError> {
    let sums = |entries: &mut dyn Iterator<Item = &SheetEntry<&str>>| {
        entries.fold((0_u128, 0_u128), |(persons, bots), SheetEntry { tally, .. }| {
            (persons + u128::from(tally.persons), bots + u128::from(tally.bots))
        })
    };
    let hits = sums(&mut sheet.of(Dimension::Device));
    if hits.0.max(hits.1) > u128::from(varint::MAX_COUNT) {
        return Err(corrupt(TABLE, &"too many hits"));
    }
    let is_more = |sums: (u128, u128), private: Tally| {
        sums.0 + u128::from(private.persons) > hits.0 || sums.1 + u128::from(private.bots) > hits.1
    };
    if is_more((0, 0), sheet.private()) {
        return Err(corrupt(TABLE, &"more private hits than there are"));
    }
    for group in sheet.entries().chunk_by(|a, b| a.dimension == b.dimension) {
        let dimension = group[0].dimension;
        let private = if dimension.is_of_visitor() { sheet.private() } else { Tally::default() };
        if is_more(sums(&mut group.iter()), private) {
            return Err(corrupt(TABLE, &format_args!("more hits by {} than there are", dimension.name())));
        }
        let is_text = |entry: &&SheetEntry<&str>| matches!(entry.label, SheetLabel::Text(_));
        let texts = group.iter().filter(is_text).count();
        if texts > MAX_SHEET_TEXTS {
            return Err(corrupt(TABLE, &format_args!("{texts} labels by {}", dimension.name())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Dimension as D;

    fn sheet(entries: &[(D, &'static str, u64, u64)]) -> Sheet<&'static str> {
        let mut sheet = Sheet::default();
        for (dimension, label, persons, bots) in entries {
            let label = SheetLabel::of_text(*dimension, *label).unwrap();
            sheet.add(*dimension, label, Tally { persons: *persons, bots: *bots });
        }
        sheet
    }

    fn decode_all(parts: &[Vec<u8>]) -> Result<Sheet<&str>, StoreError> {
        decode(parts.iter().map(|part| &**part))
    }

    #[test]
    fn the_bytes_are_those_that_released_versions_wrote() {
        let sheet = sheet(&[
            (D::Bot, "crawler", 0, 3),
            (D::Referrer, "a.example", 2, 0),
            (D::Country, "DE", 200, 3),
            (D::Referrer, "(other)", 1, 0),
            (D::Device, "mobile", 200, 0),
            (D::Device, "desktop", 0, 3),
        ]);
        let bytes = [
            &[1, 0x20, 9][..],
            b"a.example",
            &[4, 0, 2],
            &[0x11],
            b"DE",
            &[0x91, 3, 3],
            &[0x24, 1, 0x90, 3, 0, 1, 3],
            &[0x1e, 2, 1, 3],
        ]
        .concat();
        assert_eq!(encode(&sheet, PART_BYTES), std::slice::from_ref(&bytes));
        assert_eq!(decode([&*bytes]).unwrap(), sheet);
        let mut private = Sheet::<&str>::default();
        private.add(D::Device, SheetLabel::Code(2), Tally { persons: 5, bots: 0 });
        private.add_private(Tally { persons: 5, bots: 0 });
        assert_eq!(encode(&private, PART_BYTES), [[1, 0x14, 2, 10, 0x1f, 10]]);
        assert_eq!(decode([&[1, 0x14, 2, 10, 0x1f, 10][..]]).unwrap(), private);
        assert!(encode(&Sheet::<&str>::default(), PART_BYTES).is_empty() && decode([]).unwrap().is_empty());
    }

    #[test]
    fn a_long_sheet_has_parts_that_are_rows() {
        let texts: Vec<String> = (0..MAX_SHEET_TEXTS).map(|n| format!("{n:0128}")).collect();
        let mut sheet = Sheet::<&str>::default();
        sheet.add(D::Device, SheetLabel::Code(0), Tally { persons: u64::MAX >> 1, bots: u64::MAX >> 1 });
        for dimension in D::ALL {
            match dimension.form() {
                LabelForm::Text => {
                    for text in &texts {
                        sheet.add(dimension, SheetLabel::Text(text), Tally { persons: 1 << 54, bots: 1 << 54 });
                    }
                }
                LabelForm::Country => {
                    for letters in (b'A'..=b'Z').flat_map(|a| (b'A'..=b'Z').map(move |b| [a, b])) {
                        sheet.add(dimension, SheetLabel::Country(letters), Tally { persons: 1, bots: 0 });
                    }
                }
                LabelForm::Codes(_) => {}
            }
        }
        let parts = encode(&sheet, PART_BYTES);
        assert!(parts.iter().all(|part| part.len() <= PART_BYTES));
        assert!((75..100).contains(&parts.len()), "{}", parts.len());
        assert_eq!(decode_all(&parts).unwrap(), sheet);
        assert_eq!(decode_all(&encode(&sheet, usize::MAX)).unwrap(), sheet);
        assert_eq!(encode(&sheet, usize::MAX).len(), 1);
        assert_eq!(decode_all(&encode(&sheet, 0)).unwrap(), sheet, "one entry in each");
        let last = decode_part(parts.last().unwrap()).unwrap();
        assert!(!last.is_empty() && last.hits().is_zero());
        assert!(decode_all(&[parts[1].clone(), parts[0].clone()]).is_err());
    }

    #[test]
    fn a_code_of_a_later_version_is_kept_and_has_no_label() {
        let bytes = [1, 0x14, 0, 4, 0x25, 200, 2, 0xff, 2];
        let sheet = decode([&bytes[..]]).unwrap();
        let labels: Vec<_> = sheet.of(D::Browser).map(|entry| entry.label.text(D::Browser)).collect();
        assert_eq!(labels, [None, None]);
        assert_eq!(encode(&sheet, PART_BYTES), [bytes]);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let device = [1, 0x14, 0, 20];
        let texts: Vec<u8> = (0..201_u8).flat_map(|n| [2, b'a' + n % 26, b'a' + n / 26, 2]).collect();
        let with = |bytes: &[u8]| [&device[..], bytes].concat();
        let many = [&[1, 0xf0, 201, 1][..], &texts, &[0x14, 0, 0xfe, 0xff, 3]].concat();
        for bytes in [
            vec![],
            vec![0],
            vec![2],
            with(&[0x1f]),
            with(&[0x2f, 2, 2]),
            with(&[0xf5]),
            with(&[0xf5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            with(&[0x15]),
            with(&[0x15, 0]),
            with(&[0x15, 0, 1, 0]),
            with(&[0x15, 0, 22]),
            with(&[0x15, 0, 1, 1]),
            with(&[0x1f, 22]),
            with(&[0x10, 1, b'a', 2]),
            with(&[0x17, 129]),
            with(&[0x17, 2, b'a']),
            with(&[0x17, 1, 0xff, 2]),
            vec![1, 0x11, b'd', b'e', 2, 0x14, 0, 20],
            many,
        ] {
            assert!(decode([&*bytes]).is_err(), "{bytes:?}");
        }
        assert!(decode([&device[..]]).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(
            parts in prop::collection::vec(prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..4], 0..80), 0..4)
        ) {
            let with_version = |part: &Vec<u8>| [&[VERSION], &part[..]].concat();
            for parts in [parts.clone(), parts.iter().map(with_version).collect()] {
                if let Ok(sheet) = decode_all(&parts) {
                    let again = encode(&sheet, 100);
                    prop_assert_eq!(decode_all(&again).unwrap(), sheet);
                }
            }
        }

        #[test]
        fn a_damaged_sheet_is_refused_or_read(at in 0_usize..60, byte in any::<u8>(), length in 0_usize..60) {
            let sheet = sheet(&[
                (D::Referrer, "a.example", 2, 0), (D::Country, "DE", 20, 3), (D::Device, "mobile", 200, 5),
                (D::City, "Jena, Thuringia, DE", 1, 0), (D::Os, "ios", 70, 4), (D::Bot, "tool", 0, 5),
            ]);
            let mut part = encode(&sheet, PART_BYTES).remove(0);
            if let Some(known) = part.get_mut(at) {
                *known = byte;
            }
            part.truncate(length.max(1));
            let _ = decode([&*part]);
        }
    }
}

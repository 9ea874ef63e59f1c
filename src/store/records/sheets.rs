//! The sheet of a day or of a month, as a value of its own or as a part of one.
//!
//! It is the version, then sections. A section is a byte with the dimension in its lower half, and in its upper one
//! the number of entries, or 15 if that number ([`varint`]) follows; then the entries. An entry is a label and its
//! hits. A label is, by the form of its dimension: a code (255: other), two letters (0, 0: other), or the length of a
//! text in a byte (0: other; 255: the text `default`, which most destinations are) and the text. The hits are the number of persons × 2; if it is odd, the number of bots
//! follows. The section of the number 15 has one entry without a label: the private hits.

use super::{corrupt, split_version, unknown_version, varint};
use crate::domain::breakdown::{
    Dimension, LabelForm, MAX_MONTH_TEXTS, MAX_SHEET_TEXTS, MAX_TEXT_BYTES, Sheet, SheetEntry, SheetLabel, kept_text,
};
use crate::domain::tally::Tally;
use crate::store::StoreError;

const TABLE: &str = "sheets";
const VERSION: u8 = 1;

/// The number of a section with private hits.
const PRIVATE: u8 = 15;
/// The number of entries follows.
const MANY: u8 = 15;
const NO_LETTERS: [u8; 2] = [0, 0];

/// The number that stands for the length of [`DEFAULT`].
const IS_DEFAULT: u8 = 255;
/// The destination without a rule.
const DEFAULT: &str = "default";

/// No bytes if the sheet is empty.
pub fn encode<T: AsRef<str>>(sheet: &Sheet<T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if sheet.is_empty() {
        return bytes;
    }
    bytes.push(VERSION);
    for group in sheet.entries().chunk_by(|a, b| a.dimension == b.dimension) {
        push_section(&mut bytes, group[0].dimension as u8, group.len());
        for entry in group {
            push_label(&mut bytes, &entry.label, entry.dimension);
            push_tally(&mut bytes, entry.tally);
        }
    }
    if !sheet.private().is_zero() {
        push_section(&mut bytes, PRIVATE, 1);
        push_tally(&mut bytes, sheet.private());
    }
    bytes
}

fn push_section(bytes: &mut Vec<u8>, number: u8, entries: usize) {
    match u8::try_from(entries) {
        Ok(few) if few < MANY => bytes.push(number | few << 4),
        _ => {
            bytes.push(number | MANY << 4);
            varint::push(bytes, entries as u64);
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
            if text == DEFAULT && dimension == Dimension::Destination {
                bytes.push(IS_DEFAULT);
                return;
            }
            // At most 128.
            bytes.push(u8::try_from(text.len()).unwrap_or(0));
            bytes.extend_from_slice(text.as_bytes());
        }
        (LabelForm::Text, _) => bytes.push(0),
    }
}

pub(super) fn push_tally(bytes: &mut Vec<u8>, tally: Tally) {
    let (persons, bots) = (tally.persons.min(varint::MAX_COUNT), tally.bots.min(varint::MAX_COUNT));
    varint::push(bytes, persons << 1 | u64::from(bots > 0));
    if bots > 0 {
        varint::push(bytes, bots);
    }
}

/// Reads the sheet of a day.
///
/// # Errors
/// When the bytes are not those of a sheet, or of a later version.
pub fn decode(bytes: &[u8]) -> Result<Sheet<&str>, StoreError> {
    let sheet = decode_all(bytes)?;
    check_texts(&sheet, MAX_SHEET_TEXTS)?;
    check_sums(&sheet)?;
    Ok(sheet)
}

/// Reads the sheet of a month, which has no devices.
///
/// # Errors
/// As [`decode`].
pub fn decode_month(bytes: &[u8]) -> Result<Sheet<&str>, StoreError> {
    let sheet = decode_all(bytes)?;
    check_texts(&sheet, MAX_MONTH_TEXTS)?;
    Ok(sheet)
}

/// Reads a sheet, or some of its dimensions alone: it may have any number of texts, and no devices.
///
/// # Errors
/// As [`decode`].
pub fn decode_part(bytes: &[u8]) -> Result<Sheet<&str>, StoreError> {
    decode_all(bytes)
}

fn decode_all(bytes: &[u8]) -> Result<Sheet<&str>, StoreError> {
    let mut sheet = Sheet::default();
    if bytes.is_empty() {
        return Ok(sheet);
    }
    match split_version(TABLE, bytes)? {
        (VERSION, sections) => decode_sections(&mut sheet, sections)?,
        (later, _) => return Err(unknown_version(TABLE, later, VERSION)),
    }
    Ok(sheet)
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
            len if len == usize::from(IS_DEFAULT) && dimension == Dimension::Destination => {
                Some(SheetLabel::Text(DEFAULT))
            }
            length @ 1..=MAX_TEXT_BYTES => str::from_utf8(take(bytes, length)?).ok().map(SheetLabel::Text),
            _ => None,
        },
    }
}

pub(super) fn take_tally(bytes: &mut &[u8]) -> Option<Tally> {
    let number = varint::take(bytes)?;
    let bots =
        if number & 1 == 0 { 0 } else { varint::take(bytes).filter(|bots| (1..=varint::MAX_COUNT).contains(bots))? };
    Some(Tally { persons: number >> 1, bots })
}

/// Checks that there are not more texts than a writer keeps.
fn check_texts(sheet: &Sheet<&str>, most: usize) -> Result<(), StoreError> {
    for group in sheet.entries().chunk_by(|a, b| a.dimension == b.dimension) {
        let texts = group.iter().filter(|entry| matches!(entry.label, SheetLabel::Text(_))).count();
        if texts > most {
            return Err(corrupt(TABLE, &format_args!("{texts} labels by {}", group[0].dimension.name())));
        }
    }
    Ok(())
}

/// Checks that there are in no dimension more hits than there are devices: a breakdown would have a wrong total.
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
        assert_eq!(encode(&sheet), bytes);
        assert_eq!(decode(&bytes).unwrap(), sheet);
        let mut private = Sheet::<&str>::default();
        private.add(D::Device, SheetLabel::Code(2), Tally { persons: 5, bots: 0 });
        private.add_private(Tally { persons: 5, bots: 0 });
        assert_eq!(encode(&private), [1, 0x14, 2, 10, 0x1f, 10]);
        assert_eq!(decode(&[1, 0x14, 2, 10, 0x1f, 10]).unwrap(), private);
        assert!(encode(&Sheet::<&str>::default()).is_empty() && decode(&[]).unwrap().is_empty());
        private.add(D::Destination, SheetLabel::Text("default"), Tally { persons: 5, bots: 0 });
        assert_eq!(encode(&private), [1, 0x14, 2, 10, 0x1d, 255, 10, 0x1f, 10]);
        assert_eq!(decode(&encode(&private)).unwrap(), private);
    }

    #[test]
    fn the_longest_sheet_is_read_as_it_was_written() {
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
        let bytes = encode(&sheet);
        assert!((290_000..340_000).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), sheet);
    }

    #[test]
    fn a_code_of_a_later_version_is_kept_and_has_no_label() {
        let bytes = [1, 0x14, 0, 4, 0x25, 200, 2, 0xff, 2];
        let sheet = decode(&bytes).unwrap();
        let labels: Vec<_> = sheet.of(D::Browser).map(|entry| entry.label.text(D::Browser)).collect();
        assert_eq!(labels, [None, None]);
        assert_eq!(encode(&sheet), bytes);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let device = [1, 0x14, 0, 20];
        let texts: Vec<u8> = (0..201_u8).flat_map(|n| [2, b'a' + n % 26, b'a' + n / 26, 2]).collect();
        let with = |bytes: &[u8]| [&device[..], bytes].concat();
        let many = [&[1, 0xf0, 201, 1][..], &texts, &[0x14, 0, 0xfe, 0xff, 3]].concat();
        for bytes in [
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
            with(&[0x17, 255, 2]),
            many,
        ] {
            assert!(decode(&bytes).is_err(), "{bytes:?}");
        }
        assert!(decode(&device).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..4], 0..200)) {
            for bytes in [bytes.clone(), [&[VERSION], &bytes[..]].concat()] {
                if let Ok(sheet) = decode(&bytes) {
                    let again = encode(&sheet);
                    prop_assert_eq!(decode(&again).unwrap(), sheet);
                }
                if let Ok(sheet) = decode_month(&bytes) {
                    let again = encode(&sheet);
                    prop_assert_eq!(decode_month(&again).unwrap(), sheet);
                }
            }
        }

        #[test]
        fn a_damaged_sheet_is_refused_or_read(at in 0_usize..60, byte in any::<u8>(), length in 0_usize..60) {
            let sheet = sheet(&[
                (D::Referrer, "a.example", 2, 0), (D::Country, "DE", 20, 3), (D::Device, "mobile", 200, 5),
                (D::City, "Jena, Thuringia, DE", 1, 0), (D::Os, "ios", 70, 4), (D::Bot, "tool", 0, 5),
            ]);
            let mut bytes = encode(&sheet);
            if let Some(known) = bytes.get_mut(at) {
                *known = byte;
            }
            bytes.truncate(length.max(1));
            let _ = decode(&bytes);
        }
    }
}

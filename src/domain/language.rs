//! The language that a browser asks for.

use std::fmt;

/// The most bytes of an `Accept-Language` header that are read.
const MAX_BYTES: usize = 256;
/// The most languages of a header that are looked at.
const MAX_ENTRIES: usize = 8;
/// The most parts of a language's tag that are looked at: the region is at most the fifth.
const MAX_SUBTAGS: usize = 5;
/// The weight of a language for which the header gives none, in thousandths.
const MAX_WEIGHT: u16 = 1_000;

/// The multiplier of the primary language in a code; regions are below it.
const REGIONS: u32 = 1 << 11;
/// Where regions of three digits begin.
const DIGITS: u16 = 1_000;
/// The longest text: `zzz-zz`, `zzz-999`.
const MAX_TEXT_BYTES: usize = 7;

/// A language, with a region or without: `de`, `pt-br`, `es-419`. Scripts and variants are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Language {
    /// The primary language, of 2 or 3 letters, as a number: 5 bits for each letter, 0 for none.
    primary: u16,
    /// 0 without a region; from 1 on those of two letters, from [`DIGITS`] on those of three digits.
    region: u16,
}

impl Language {
    /// The first language of an `Accept-Language` header, by weight, then by place. Entries that are no language (`*`) or
    /// refused (`q=0`) are skipped.
    pub fn first_of(header: &[u8]) -> Option<Self> {
        // Nearly all headers begin with `de`, or with `en-GB`, without a weight.
        if let [a, b] | [a, b, b',', ..] = header
            && let Some(primary) = primary_number(&[*a, *b])
        {
            return Some(Self { primary, region: 0 });
        }
        if let [a, b, b'-', c, d] | [a, b, b'-', c, d, b',', ..] = header
            && let (Some(primary), region @ 1..) = (primary_number(&[*a, *b]), region_number(&[*c, *d]))
        {
            return Some(Self { primary, region });
        }
        let header = &header[..header.len().min(MAX_BYTES)];
        let mut first = None;
        let mut weight_of_first = 0;
        for entry in header.split(|&byte| byte == b',').take(MAX_ENTRIES) {
            let mut parts = entry.split(|&byte| byte == b';');
            let tag = parts.next().unwrap_or_default().trim_ascii();
            let weight = parts.find_map(weight).unwrap_or(MAX_WEIGHT);
            if weight <= weight_of_first {
                continue;
            }
            if let Some(language) = Self::parse(tag) {
                (first, weight_of_first) = (Some(language), weight);
            }
            // Browsers write the first language first, and without a weight.
            if weight_of_first == MAX_WEIGHT {
                break;
            }
        }
        first
    }

    /// Reads a language's tag, in any case: `pt-BR`, `zh-Hant-TW`. Also with `_`, which some apps write.
    pub fn parse(tag: &[u8]) -> Option<Self> {
        let mut subtags = tag.split(|byte| matches!(byte, b'-' | b'_')).take(MAX_SUBTAGS);
        let primary = primary_number(subtags.next()?)?;
        let mut region = 0;
        for subtag in subtags {
            let is_text = subtag.iter().all(u8::is_ascii_alphanumeric);
            if !is_text || !(1..=8).contains(&subtag.len()) {
                return None;
            }
            // A single letter begins extensions.
            if region != 0 || subtag.len() == 1 {
                break;
            }
            region = region_number(subtag);
        }
        Some(Self { primary, region })
    }

    /// A number for the language, never 0, that is stored.
    pub fn code(self) -> u32 {
        u32::from(self.primary) * REGIONS + u32::from(self.region)
    }

    /// The language of a number.
    pub fn of_code(code: u32) -> Option<Self> {
        let language =
            Self { primary: u16::try_from(code / REGIONS).ok()?, region: u16::try_from(code % REGIONS).ok()? };
        // What is read again as the same has a text.
        (Self::parse(language.to_string().as_bytes()) == Some(language)).then_some(language)
    }

    /// Its text, without an allocation: each redirect of a browser records one.
    pub fn text(self) -> LanguageText {
        let mut text = LanguageText { bytes: [0; MAX_TEXT_BYTES], length: 0 };
        let small = |number: u16| u8::try_from(number).unwrap_or(0);
        for shift in [10, 5, 0] {
            if let Some(number) = ((self.primary >> shift) & 31).checked_sub(1) {
                text.push(b'a' + small(number));
            }
        }
        let Some(number) = self.region.checked_sub(1) else { return text };
        text.push(b'-');
        if let Some(number) = self.region.checked_sub(DIGITS) {
            for digit in [number / 100, number / 10 % 10, number % 10] {
                text.push(b'0' + small(digit));
            }
        } else {
            for letter in [number / 26, number % 26] {
                text.push(b'a' + small(letter));
            }
        }
        text
    }

    /// The language without its region.
    #[must_use]
    pub fn without_region(self) -> Self {
        Self { primary: self.primary, region: 0 }
    }
}

/// The text of a language: its label in analytics, in lower case.
#[derive(Clone, Copy, Debug)]
pub struct LanguageText {
    bytes: [u8; MAX_TEXT_BYTES],
    length: usize,
}

impl LanguageText {
    fn push(&mut self, byte: u8) {
        // A primary language and a region have no more than there is room for.
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn as_str(&self) -> &str {
        // It is ASCII.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

/// The weight that a parameter gives, in thousandths (RFC 9110, section 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let mut parts = parameter.splitn(2, |&byte| byte == b'=').map(<[u8]>::trim_ascii);
    let (name, value) = (parts.next()?, parts.next()?);
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if !name.eq_ignore_ascii_case(b"q") || decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (mut weight, mut unit) = (u16::from(whole - b'0') * MAX_WEIGHT, MAX_WEIGHT);
    for digit in decimals {
        unit /= 10;
        weight += u16::from(digit - b'0') * unit;
    }
    Some(weight.min(MAX_WEIGHT))
}

fn primary_number(subtag: &[u8]) -> Option<u16> {
    if !(2..=3).contains(&subtag.len()) || !subtag.iter().all(u8::is_ascii_alphabetic) {
        return None;
    }
    Some(subtag.iter().fold(0, |number, letter| (number << 5) | letter_number(*letter)))
}

/// 0 if a part of a tag is no region.
fn region_number(subtag: &[u8]) -> u16 {
    match subtag {
        [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
            (letter_number(*a) - 1) * 26 + letter_number(*b)
        }
        [_, _, _] if subtag.iter().all(u8::is_ascii_digit) => {
            subtag.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')) + DIGITS
        }
        _ => 0,
    }
}

/// 1 for `a` to 26 for `z`.
fn letter_number(letter: u8) -> u16 {
    u16::from(letter.to_ascii_lowercase() - b'a') + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(header: &str) -> Option<String> {
        Language::first_of(header.as_bytes()).map(|language| language.to_string())
    }

    #[test]
    fn the_first_language_of_a_header_is_read() {
        for (header, expected) in [
            ("de", Some("de")),
            ("de,", Some("de")),
            ("d1,fr", Some("fr")),
            ("de-DE,de;q=0.9,en;q=0.8", Some("de-de")),
            ("de-D1,fr", Some("de")),
            ("12-DE,fr", Some("fr")),
            ("pt-BR", Some("pt-br")),
            (" PT-br ; q=1, en", Some("pt-br")),
            ("es-419,es;q=0.9", Some("es-419")),
            ("zh-Hant-TW", Some("zh-tw")),
            ("zh-Hans", Some("zh")),
            ("zh_CN", Some("zh-cn")),
            ("sl-rozaj-biske", Some("sl")),
            ("gsw-CH", Some("gsw-ch")),
            ("en-u-ca-gregory", Some("en")),
            ("az-Zz", Some("az-zz")),
            ("*", None),
            ("*;q=0.5, fr;q=0.4", Some("fr")),
            ("de;q=0, fr", Some("fr")),
            ("de;Q=0.000, fr", Some("fr")),
            ("de;q=0.001, fr", Some("fr")),
            ("de;q=0.001, *", Some("de")),
            ("de;q=0.8, en;q=0.9, fr;q=0.9", Some("en")),
            ("de;q=0.95, en;q=0.9, fr;q=1.000", Some("fr")),
            ("de;level=1;q=0.3, en;q=0.25", Some("de")),
            ("de;q=2, en", Some("de")),
            ("de;q=0.1234, en", Some("de")),
            ("de;q=, en;q=x", Some("de")),
            ("de;q=0., en;q=0.5", Some("en")),
            ("english, fr", Some("fr")),
            ("x-klingon", None),
            ("d", None),
            ("de-", None),
            ("de-verylongsubtag", None),
            ("d\u{e9}-FR", None),
            ("", None),
            (",,,", None),
            (",,,,,,,,de", None),
        ] {
            assert_eq!(first(header).as_deref(), expected, "{header}");
        }
    }

    #[test]
    fn a_code_is_that_of_one_language() {
        for tag in ["aa", "zz", "zzz", "aa-AA", "zzz-ZZ", "aa-000", "zzz-999", "de-AT"] {
            let language = Language::parse(tag.as_bytes()).unwrap();
            assert_eq!(language.to_string(), tag.to_lowercase());
            assert_ne!(language.code(), 0);
            assert_eq!(Language::of_code(language.code()), Some(language));
        }
        // Stored, so not to be changed.
        assert_eq!(Language::parse(b"de").map(Language::code), Some(272_384));
        assert_eq!(Language::parse(b"pt-BR").map(Language::code), Some(1_089_580));
        assert_eq!(Language::parse(b"de-AT").map(|language| language.without_region().to_string()), Some("de".into()));
    }

    proptest! {
        #[test]
        fn any_header_is_read(header: Vec<u8>) {
            if let Some(language) = Language::first_of(&header) {
                prop_assert_eq!(Language::parse(language.to_string().as_bytes()), Some(language));
                prop_assert!(language.to_string().len() <= 7);
            }
        }

        #[test]
        fn texts_like_tags_are_read(header in "[a-zA-Z0-9_;=., *-]{0,300}") {
            Language::first_of(header.as_bytes());
        }

        #[test]
        fn a_number_is_a_language_or_none(code: u32) {
            if let Some(language) = Language::of_code(code) {
                prop_assert_eq!(language.code(), code);
            }
        }

        #[test]
        fn small_numbers_are_languages_or_none(code in 0..(1_u32 << 26)) {
            if let Some(language) = Language::of_code(code) {
                prop_assert_eq!(language.code(), code);
            }
        }
    }
}

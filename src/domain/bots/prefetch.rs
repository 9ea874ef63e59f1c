//! Requests that a browser makes before its user asks for them.

/// A header by which browsers say what a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurposeHeader {
    /// `Sec-Purpose`, which has parameters behind its word: `prefetch;prerender`.
    Current,
    /// `Purpose`, `X-Moz` and `X-Purpose`, which have a word alone.
    Older,
}

impl PurposeHeader {
    /// Whether a line of the header says that the request is a prefetch. The case of letters does not matter.
    pub fn asks_for_prefetch(self, value: &[u8]) -> bool {
        let is_prefetch = |text: &[u8]| text.eq_ignore_ascii_case(b"prefetch");
        match self {
            Self::Current => value.trim_ascii_start().get(..8).is_some_and(is_prefetch),
            Self::Older => {
                let word = value.trim_ascii();
                is_prefetch(word) || word.eq_ignore_ascii_case(b"preview")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_read_by_its_own_rule() {
        for (value, by_current, by_older) in [
            ("", false, false),
            ("prefetch", true, true),
            (" Prefetch ", true, true),
            ("Prefetch;prerender", true, false),
            ("prefetch;anonymous-client-ip", true, false),
            ("prefetc", false, false),
            ("preview", false, true),
            ("PREVIEW", false, true),
            ("no-prefetch", false, false),
            ("navigate", false, false),
        ] {
            let told =
                [PurposeHeader::Current, PurposeHeader::Older].map(|header| header.asks_for_prefetch(value.as_bytes()));
            assert_eq!(told, [by_current, by_older], "{value}");
        }
    }
}

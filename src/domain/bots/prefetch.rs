//! Requests that a browser makes before its user asks for them.

/// The headers that say so, as they are written in HTTP/2. The function below reads no others.
pub const PREFETCH_HEADERS: [&str; 4] = ["sec-purpose", "purpose", "x-moz", "x-purpose"];

/// Whether the values of [`PREFETCH_HEADERS`], in that order, say that a request is a prefetch. A header that was not
/// sent is empty.
///
/// `Sec-Purpose` has parameters behind its word (`prefetch;prerender`), the older three have the word alone. The case
/// of letters does not matter.
pub fn headers_ask_for_prefetch(values: [&[u8]; 4]) -> bool {
    let [current, older @ ..] = values;
    let word = |text: &[u8]| text.eq_ignore_ascii_case(b"prefetch");
    current.trim_ascii_start().get(..8).is_some_and(word)
        || older.into_iter().map(<[u8]>::trim_ascii).any(|value| word(value) || value.eq_ignore_ascii_case(b"preview"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_read_by_its_own_rule() {
        for (values, expected) in [
            (["", "", "", ""], false),
            (["prefetch", "", "", ""], true),
            (["Prefetch;prerender", "", "", ""], true),
            (["prefetch;anonymous-client-ip", "", "", ""], true),
            (["prefetc", "", "", ""], false),
            (["preview", "", "", ""], false),
            (["no-prefetch", "", "", ""], false),
            (["", "prefetch", "", ""], true),
            (["", "PREVIEW", "", ""], true),
            (["", "prefetch;prerender", "", ""], false),
            (["", "", "prefetch", ""], true),
            (["", "", "", "preview"], true),
            (["", "", "", "navigate"], false),
        ] {
            assert_eq!(headers_ask_for_prefetch(values.map(str::as_bytes)), expected, "{values:?}");
        }
    }
}

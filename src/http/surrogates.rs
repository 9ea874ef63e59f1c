//! Unpaired surrogates in JSON text: a `\u` escape of half a character, which UTF-8 can't represent.

use super::body::pointer;

/// Calls `found` with the JSON Pointer of every string in `json` that has an unpaired surrogate; for a member's name,
/// with the pointer of the member. Stops if `found` returns false.
///
/// `json` must be valid, and its nesting must fit the stack.
pub fn find_lone(json: &str, mut found: impl FnMut(&str) -> bool) {
    // Nearly no text has such an escape.
    if json.contains(r"\ud") || json.contains(r"\uD") {
        let mut walk = Walk { rest: json, path: String::new(), found: &mut found };
        // `None` means the end of the text, or that `found` returned false.
        let _ = walk.value();
    }
}

/// A traversal of JSON text. `None` ends it.
struct Walk<'a, F> {
    rest: &'a str,
    path: String,
    found: &'a mut F,
}

impl<F: FnMut(&str) -> bool> Walk<'_, F> {
    fn value(&mut self) -> Option<()> {
        match self.next()? {
            b'{' => self.members(b'}', true),
            b'[' => self.members(b']', false),
            b'"' => {
                let text = self.string()?;
                self.check(text)
            }
            // A number or a word, which ends at the next delimiter.
            _ => {
                let end = self.rest.find([',', '}', ']']).unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
                Some(())
            }
        }
    }

    /// The members of an object, or the elements of an array.
    fn members(&mut self, close: u8, are_named: bool) -> Option<()> {
        self.skip();
        let above = self.path.len();
        for index in 0_usize.. {
            if self.next()? == close {
                break;
            }
            if are_named {
                let name = self.string()?;
                let (text, _) = read(name);
                self.path.push_str(&pointer(&text));
                self.check(name)?;
                // The colon.
                self.next()?;
                self.skip();
            } else {
                self.path.push_str(&pointer(&index.to_string()));
            }
            self.value()?;
            self.path.truncate(above);
            if self.next()? == b',' {
                self.skip();
            }
        }
        self.skip();
        Some(())
    }

    fn check(&mut self, string: &str) -> Option<()> {
        let (_, is_whole) = read(string);
        (is_whole || (self.found)(&self.path)).then_some(())
    }

    /// The next byte that is not white space, without consuming it.
    fn next(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next()
    }

    /// Consumes the byte that `next` has returned.
    fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }
}

impl<'a, F> Walk<'a, F> {
    /// Consumes a string and returns the text between its quotes.
    fn string(&mut self) -> Option<&'a str> {
        let text = self.rest.get(1..)?;
        let mut escaped = false;
        let end = text.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        self.rest = text.get(end + 1..)?;
        text.get(..end)
    }
}

/// The value of a string with escapes, with U+FFFD for each unpaired surrogate, and whether it has none.
fn read(string: &str) -> (String, bool) {
    if !string.contains('\\') {
        return (string.to_owned(), true);
    }
    let mut units: Vec<u16> = Vec::with_capacity(string.len());
    let mut letters = string.chars();
    while let Some(letter) = letters.next() {
        let letter = if letter == '\\' {
            match letters.next() {
                Some('u') => {
                    let digits = letters.as_str().get(..4).unwrap_or_default();
                    units.push(u16::from_str_radix(digits, 16).unwrap_or_default());
                    letters = letters.as_str().get(4..).unwrap_or_default().chars();
                    continue;
                }
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(itself) => itself,
                None => break,
            }
        } else {
            letter
        };
        units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
    }
    let mut is_whole = true;
    let text = char::decode_utf16(units).map(|unit| {
        unit.unwrap_or_else(|_| {
            is_whole = false;
            char::REPLACEMENT_CHARACTER
        })
    });
    (text.collect(), is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone(json: &str) -> Vec<String> {
        let mut all = Vec::new();
        find_lone(json, |pointer| {
            all.push(pointer.to_owned());
            true
        });
        all
    }

    #[test]
    fn every_lone_surrogate_is_found_where_it_stands() {
        for (json, pointers) in [
            (r#"{"a": "\ud800"}"#, vec!["/a"]),
            (r#"{"a": ["x", "\udc00"], "b/c~": {"d": "\uD83D x"}}"#, vec!["/a/1", "/b~1c~0/d"]),
            (r#"{"\ud800": 1, "b": [[], {}, -1.5e3 , true, "\ude00\ud83d"]}"#, vec!["/\u{fffd}", "/b/4"]),
            (r#" [ 1 , { "a\n\"" : "\\\ud800" } ] "#, vec!["/1/a\n\""]),
            (r#"{"a": "\ud83d😀"}"#, vec!["/a"]),
            (r#""\ud800""#, vec![""]),
        ] {
            assert_eq!(lone(json), pointers, "{json}");
        }
    }

    #[test]
    fn whole_characters_and_escaped_backslashes_are_let_through() {
        for json in [r#"{"a": "\ud83d\ude00", "\ud83d\ude00": "\\ud800"}"#, r#"["\\ud800\\", "\uD83D\uDE00"]"#, "{}"] {
            assert_eq!(lone(json), [""; 0], "{json}");
        }
    }
}

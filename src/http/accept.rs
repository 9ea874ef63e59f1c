//! Whether a client prefers HTML, CSV or JSON, by its `Accept` (RFC 9110, section 12.5.1).

use actix_web::http::header::ACCEPT;

use super::fields::{Field, HeaderFields};

/// Whether `Accept` prefers `text/html` to JSON. Without a preference, or without the field, the answer is JSON.
pub fn prefers_html(fields: &(impl HeaderFields + ?Sized)) -> bool {
    let (mut html, mut json) = (BestMatch::default(), BestMatch::default());
    for range in fields.lines(ACCEPT).flat_map(|line| split(line, b',')) {
        // A range that is malformed says nothing.
        let Some((kind, subtype, weight)) = media_range(range) else { continue };
        html.see(specificity((kind, subtype), b"text", &[b"html"]), weight);
        json.see(specificity((kind, subtype), b"application", &[b"json", b"problem+json"]), weight);
    }
    html.weight > json.weight
}

/// Whether `Accept` prefers `text/csv` to JSON and to lines of JSON. Without a preference it does not.
pub fn prefers_csv(fields: &(impl HeaderFields + ?Sized)) -> bool {
    let (mut csv, mut json) = (BestMatch::default(), BestMatch::default());
    for range in fields.lines(ACCEPT).flat_map(|line| split(line, b',')) {
        let Some((kind, subtype, weight)) = media_range(range) else { continue };
        csv.see(specificity((kind, subtype), b"text", &[b"csv"]), weight);
        json.see(specificity((kind, subtype), b"application", &[b"x-ndjson", b"json"]), weight);
    }
    csv.weight > json.weight
}

/// The last `Accept` and what it prefers: most unknown links are asked for by browsers of a few kinds.
#[derive(Debug, Default)]
pub struct PreferenceMemo {
    accept: Vec<u8>,
    prefers_html: bool,
}

impl PreferenceMemo {
    /// A longer one is not kept. Browsers send some 150 bytes.
    const MAX_BYTES: usize = 512;

    /// As [`prefers_html`].
    pub fn prefers_html(&mut self, fields: &[Field<'_>]) -> bool {
        // By length first: nearly all names have another.
        let mut lines =
            fields.iter().filter(|field| field.name.len() == 6 && field.name.eq_ignore_ascii_case(b"accept"));
        let Some(accept) = lines.next() else { return false };
        if lines.next().is_some() || accept.value.len() > Self::MAX_BYTES {
            return prefers_html(fields);
        }
        if self.accept != accept.value {
            self.prefers_html = prefers_html(fields);
            self.accept.clear();
            self.accept.extend_from_slice(accept.value);
        }
        self.prefers_html
    }
}

/// The most specific range that matches a media type. Among equally specific ones, that with the highest weight.
#[derive(Default)]
struct BestMatch {
    specificity: u8,
    /// In thousandths. 0 where no range matches.
    weight: u16,
}

impl BestMatch {
    fn see(&mut self, specificity: u8, weight: u16) {
        if specificity > 0 && (specificity, weight) > (self.specificity, self.weight) {
            (self.specificity, self.weight) = (specificity, weight);
        }
    }
}

/// How closely a range matches one of the media types `kind/…`; 0: not at all.
fn specificity((kind, subtype): (&[u8], &[u8]), own_kind: &[u8], own_subtypes: &[&[u8]]) -> u8 {
    match (kind, subtype) {
        (b"*", b"*") => 1,
        (kind, b"*") if kind.eq_ignore_ascii_case(own_kind) => 2,
        (kind, subtype) if kind.eq_ignore_ascii_case(own_kind) => {
            3 * u8::from(own_subtypes.iter().any(|own| subtype.eq_ignore_ascii_case(own)))
        }
        _ => 0,
    }
}

/// Type, subtype and weight of a media range. Its other parameters are not looked at: there is one form of each type.
fn media_range(range: &[u8]) -> Option<(&[u8], &[u8], u16)> {
    let mut parts = split(range, b';').map(<[u8]>::trim_ascii);
    let name = parts.next()?;
    let slash = name.iter().position(|byte| *byte == b'/')?;
    let weight = parts.find_map(|parameter| match parameter {
        [b'q' | b'Q', rest @ ..] => rest.trim_ascii_start().strip_prefix(b"="),
        _ => None,
    });
    let weight = match weight {
        Some(text) => weight_of(text.trim_ascii())?,
        None => 1000,
    };
    Some((&name[..slash], &name[slash + 1..], weight))
}

/// A weight in thousandths: from `0` to `1`, with at most three digits behind the point.
fn weight_of(text: &[u8]) -> Option<u16> {
    let (whole, digits) = match text {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] => (*whole, digits),
        _ => return None,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = [100, 10, 1];
    let part: u16 = digits.iter().zip(places).map(|(digit, place)| u16::from(digit - b'0') * place).sum();
    let weight = u16::from(whole - b'0') * 1000 + part;
    (weight <= 1000).then_some(weight)
}

/// The parts between separators that are not in a quoted string.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut in_quotes, mut is_escaped) = (false, false);
        let end = text.iter().position(|byte| {
            let was_escaped = std::mem::take(&mut is_escaped);
            match byte {
                _ if was_escaped => {}
                b'\\' if in_quotes => is_escaped = true,
                b'"' => in_quotes = !in_quotes,
                byte if *byte == separator => return !in_quotes,
                _ => {}
            }
            false
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(end.map_or(text, |end| &text[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(lines: &[&str]) -> bool {
        let fields: Vec<_> = lines.iter().map(|line| Field { name: b"accept", value: line.as_bytes() }).collect();
        let mut memo = PreferenceMemo::default();
        let expected = prefers_html(&fields[..]);
        assert_eq!([memo.prefers_html(&fields), memo.prefers_html(&fields)], [expected; 2], "{lines:?}");
        expected
    }

    #[test]
    fn html_is_for_those_that_prefer_it_to_json() {
        for line in [
            "text/html",
            "TEXT/HTML",
            "text/*",
            " text/html ; charset=utf-8 ",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
            "text/html, application/json;q=0.9",
            "application/json;q=0.9, text/html",
            "application/json;Q=0.1,text/html;q=0.2",
            "*/*;q=0.1, text/html;q=0.101",
            "application/*;q=0.5, text/*;q=0.6, */*",
            "application/json;q=0, */*",
            "text/html;q=1.000, application/problem+json;q=0.999",
            "text/html;x=\",application/json\", */*;q=0.9",
            "text/html;x=\"\\\",application/json,\", */*;q=0.9",
            // The malformed ones say nothing.
            "text/html, application/json;q=2, nonsense, ;;, application/json;q=",
            "text/html, \"",
            "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
        ] {
            assert!(both(&[line]), "{line}");
        }
        assert!(both(&["application/json;q=0.5", "text/html"]));
    }

    #[test]
    fn csv_is_for_those_that_prefer_it() {
        let prefers = |line: &str| prefers_csv(&[Field { name: b"accept", value: line.as_bytes() }][..]);
        for line in [
            "text/csv",
            "TEXT/CSV; header=present",
            "text/*",
            "text/csv, application/x-ndjson;q=0.9",
            "text/csv, */*;q=0.1",
        ] {
            assert!(prefers(line), "{line}");
        }
        for line in
            ["", "*/*", "application/x-ndjson", "text/csv, */*", "text/html, */*;q=0.1", "text/csv;q=0", "nonsense"]
        {
            assert!(!prefers(line), "{line}");
        }
    }

    #[test]
    fn json_is_for_all_others() {
        for line in [
            "",
            "*/*",
            "application/json",
            "application/problem+json",
            "image/avif,image/webp,*/*;q=0.8",
            "text/html, */*",
            "text/html, application/json",
            "text/html;q=0",
            "text/html;q=0, */*;q=0.1",
            "text/html;q=0.5, application/problem+json;q=0.5",
            "text/html;q=0.5, application/*;q=0.6",
            "text/html;q=0.5, text/*, */*;q=0.5",
            "text/html;q=1.001",
            "text/html;q=0.1234",
            "text/html;q=-1",
            "text/html;q=high",
            "text/htmlx",
            "texthtml",
            "text/plain",
            "x;y=\"text/html, text/html",
        ] {
            assert!(!both(&[line]), "{line}");
        }
        assert!(!both(&[]));
        assert!(!both(&["text/html", "*/*"]));
        assert!(!both(&[&format!("{}, text/html, */*", "image/png,".repeat(100))]));
    }
}

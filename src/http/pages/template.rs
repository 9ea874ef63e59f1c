//! A page with placeholders, read once at the start.

use actix_web::http::header::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use thiserror::Error;

/// A page whose placeholders are filled in for each answer.
#[derive(Clone, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
    /// Its `Content-Security-Policy`: no script, the page's own `style` elements, images of this service.
    pub policy: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Title,
    Target,
    ShortUrl,
    /// In the service's own pages alone: the QR code, which is not escaped.
    Qr,
    /// In the service's own pages alone: the seconds to wait.
    Seconds,
}

impl Placeholder {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "title" => Some(Self::Title),
            "target" => Some(Self::Target),
            "short_url" => Some(Self::ShortUrl),
            _ => None,
        }
    }

    fn parse_own(name: &str) -> Option<Self> {
        match name {
            "qr" => Some(Self::Qr),
            "seconds" => Some(Self::Seconds),
            _ => Self::parse(name),
        }
    }
}

/// What placeholders stand for. All but `qr` is escaped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'a> {
    pub title: &'a str,
    pub target: &'a str,
    pub short_url: &'a str,
    /// An image, as HTML.
    pub qr: &'a str,
    pub seconds: &'a str,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TemplateError {
    line: usize,
    reason: TemplateFault,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum TemplateFault {
    #[error("unknown placeholder {0:?}; known are {{{{title}}}}, {{{{target}}}} and {{{{short_url}}}}")]
    Unknown(String),
    #[error("a placeholder begins with {{{{ and does not end with }}}}")]
    Open,
    #[error("a placeholder can't stand in a style element")]
    InStyle,
}

/// Longest part of a bad placeholder in an error.
const MAX_SHOWN: usize = 40;

impl Template {
    /// Reads a page of the operator.
    ///
    /// # Errors
    /// If a placeholder is unknown, not closed, or in a `style` element.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::with(text, Placeholder::parse)
    }

    /// Reads a page of the service itself.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_own(text: &str) -> Result<Self, TemplateError> {
        Self::with(text, Placeholder::parse_own)
    }

    fn with(text: &str, parse: impl Fn(&str) -> Option<Placeholder>) -> Result<Self, TemplateError> {
        // As browsers read it: they hash styles with `\n` at the ends of lines.
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
        let styles = styles(&text);
        let error = |at: usize, reason| TemplateError { line: 1 + text[..at].matches('\n').count(), reason };
        let (mut pieces, mut done) = (Vec::new(), 0);
        while let Some(begin) = text[done..].find("{{").map(|begin| done + begin) {
            let inner = begin + 2;
            let end =
                text[inner..].find("}}").map(|end| inner + end).ok_or_else(|| error(begin, TemplateFault::Open))?;
            let name = text[inner..end].trim();
            let placeholder = parse(name).ok_or_else(|| {
                let shown = name.chars().take(MAX_SHOWN).collect();
                error(begin, TemplateFault::Unknown(shown))
            })?;
            if styles.iter().any(|style| style.contains(&begin)) {
                return Err(error(begin, TemplateFault::InStyle));
            }
            pieces.extend([Piece::Text(text[done..begin].to_owned()), Piece::Value(placeholder)]);
            done = end + 2;
        }
        pieces.push(Piece::Text(text[done..].to_owned()));
        let policy = policy(styles.into_iter().map(|style| &text[style]));
        Ok(Self { pieces, policy })
    }

    /// Whether it is the same in every answer.
    pub fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The page with these values.
    pub fn render(&self, values: &Values<'_>) -> String {
        let mut page = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => page.push_str(text),
                Piece::Value(Placeholder::Title) => escape(&mut page, values.title),
                Piece::Value(Placeholder::Target) => escape(&mut page, values.target),
                Piece::Value(Placeholder::ShortUrl) => escape(&mut page, values.short_url),
                Piece::Value(Placeholder::Seconds) => escape(&mut page, values.seconds),
                Piece::Value(Placeholder::Qr) => page.push_str(values.qr),
            }
        }
        page
    }
}

/// Appends a text so that it is text in an element, and in a quoted attribute.
fn escape(page: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            c => page.push(c),
        }
    }
}

/// Where the contents of `style` elements are.
fn styles(text: &str) -> Vec<std::ops::Range<usize>> {
    // Of the same length, so that the places are the same.
    let lower = text.to_ascii_lowercase();
    let (mut styles, mut done) = (Vec::new(), 0);
    while let Some(tag) = lower[done..].find("<style").map(|tag| done + tag) {
        done = tag + "<style".len();
        if !lower[done..].starts_with(|c: char| c == '>' || c == '/' || c.is_ascii_whitespace()) {
            continue;
        }
        let Some(begin) = lower[done..].find('>').map(|end| done + end + 1) else { break };
        let end = lower[begin..].find("</style").map_or(text.len(), |end| begin + end);
        styles.push(begin..end);
        done = end;
    }
    styles
}

fn policy<'a>(styles: impl Iterator<Item = &'a str>) -> HeaderValue {
    let hashes: Vec<String> =
        styles.map(|style| format!(" 'sha256-{}'", STANDARD.encode(digest(&SHA256, style.as_bytes())))).collect();
    let styles = if hashes.is_empty() { String::new() } else { format!(" style-src{};", hashes.concat()) };
    let policy = format!(
        "default-src 'none';{styles} img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // ASCII without control characters.
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        Template::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn placeholders_are_filled_in_and_what_they_stand_for_is_escaped() {
        let template =
            Template::parse("<a title='{{ title }}' href=\"{{target}}\">{{short_url}}</a> { {a} }}\r\n{").unwrap();
        let values = Values {
            title: "</title><script>'\"&amp;{{target}}",
            target: "https://a/?b=\"c'&d",
            short_url: "<\u{e4}>",
            ..Values::default()
        };
        assert_eq!(
            template.render(&values),
            "<a title='&lt;/title&gt;&lt;script&gt;&#39;&quot;&amp;amp;{{target}}' \
             href=\"https://a/?b=&quot;c&#39;&amp;d\">&lt;\u{e4}&gt;</a> { {a} }}\n{"
        );
        assert!(!template.is_constant());
        assert!(Template::parse("<p>as it is").unwrap().is_constant());
    }

    #[test]
    fn a_bad_placeholder_is_refused_with_its_line() {
        assert_eq!(
            fault("a\nb {{name}}"),
            "line 2: unknown placeholder \"name\"; known are {{title}}, {{target}} and {{short_url}}"
        );
        for unknown in ["{{}}", "{{Title}}", "{{qr}}", "{{seconds}}", "{{{title}}}", "{{ta rget}}"] {
            assert!(fault(unknown).starts_with("line 1: unknown placeholder "), "{unknown}");
        }
        assert_eq!(fault("{{title}}\r\n\r{{target"), "line 3: a placeholder begins with {{ and does not end with }}");
        assert_eq!(
            fault("<STYLE media=a>\nb {{title}}</style>"),
            "line 2: a placeholder can't stand in a style element"
        );
        assert!(fault(&format!("{{{{{}", "x".repeat(99))).len() < 100);
        let long = fault(&format!("{{{{{}}}}}", "x".repeat(9_999)));
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn the_policy_has_the_hash_of_each_style_as_browsers_see_it() {
        let policy = |text: &str| Template::parse(text).unwrap().policy.to_str().unwrap().to_owned();
        let rest = "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
        assert_eq!(policy("<p>a <stylesheet>"), format!("default-src 'none'; {rest}"));
        // `printf 'p{\n}' | openssl dgst -sha256 -binary | base64`, and of no bytes.
        let [one, none] =
            ["ml/Hqze4hQ9PLvffVgxu+uIE7ETo1MElPYkdtaQAdNw=", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="];
        for text in
            ["<style>p{\n}</style><Style type=\"a\"\n></STYLE>", "\u{feff}<style>p{\r\n}</style ><style\t></style>"]
        {
            let expected = format!("default-src 'none'; style-src 'sha256-{one}' 'sha256-{none}'; {rest}");
            assert_eq!(policy(text), expected, "{text}");
        }
    }
}

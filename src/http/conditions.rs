//! The conditions of a request: `If-Match` and `If-None-Match` (RFC 9110, section 13.1).

use actix_http::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::problem::Problem;
use crate::domain::link::{Link, Revision};

/// The `ETag` of a link at a revision. It is strong: each change of a stored field makes a new revision.
pub fn etag(revision: Revision) -> HeaderValue {
    // Digits and quotes are valid in a header.
    HeaderValue::try_from(tag(revision)).unwrap_or(HeaderValue::from_static(""))
}

fn tag(revision: Revision) -> String {
    format!("\"{}\"", revision.0)
}

/// What a request says about the state of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `None`: the request has no such field.
    matches: Option<Tags>,
    matches_none: Option<Tags>,
}

/// Which states a field names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: each state of a link that exists.
    Any,
    Listed(Vec<EntityTag>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EntityTag {
    is_weak: bool,
    /// With its quotes.
    text: String,
}

impl Conditions {
    pub fn of(headers: &HeaderMap) -> Self {
        // A field that can't be read lets no change of a link pass.
        Self {
            matches: Tags::of(headers, IF_MATCH, Tags::Listed(Vec::new())),
            matches_none: Tags::of(headers, IF_NONE_MATCH, Tags::Any),
        }
    }

    /// Checks them against the link as it is; `None`: there is no link.
    ///
    /// # Errors
    /// `precondition-failed`, with the current `ETag`.
    pub fn check(&self, link: Option<&Link>) -> Result<(), Problem> {
        let revision = link.map(|link| link.revision);
        let is_refused = self.matches.as_ref().is_some_and(|tags| !tags.have(revision, false))
            || self.matches_none.as_ref().is_some_and(|tags| tags.have(revision, true));
        if is_refused { Err(Problem::precondition_failed(revision.map(etag))) } else { Ok(()) }
    }
}

impl Tags {
    /// Those of all lines of a field; `unreadable` if they are not `*` alone and not a list of entity tags.
    fn of(headers: &HeaderMap, name: HeaderName, unreadable: Self) -> Option<Self> {
        let lines: Vec<&HeaderValue> = headers.get_all(name).collect();
        let text: Vec<&str> = lines.iter().map(|line| line.to_str().unwrap_or("?").trim()).collect();
        match text.as_slice() {
            [] => None,
            ["*"] => Some(Self::Any),
            lines => {
                let tags: Option<Vec<_>> = lines.iter().map(|line| listed(line)).collect();
                Some(tags.map_or(unreadable, |tags| Self::Listed(tags.concat())))
            }
        }
    }

    /// Whether a state is among them. Only the weak comparison takes weak tags.
    fn have(&self, revision: Option<Revision>, weakly: bool) -> bool {
        let Some(revision) = revision else { return false };
        match self {
            Self::Any => true,
            Self::Listed(tags) => {
                let current = tag(revision);
                tags.iter().any(|tag| tag.text == current && (weakly || !tag.is_weak))
            }
        }
    }
}

/// Whether the client has this content already: `If-None-Match` has its entity tag, compared weakly, or is `*`. `etag` is without
/// `W/`. A field that can't be read has none.
pub fn is_known_to_client(headers: &HeaderMap, etag: &str) -> bool {
    match Tags::of(headers, IF_NONE_MATCH, Tags::Listed(Vec::new())) {
        None => false,
        Some(Tags::Any) => true,
        Some(Tags::Listed(tags)) => tags.iter().any(|tag| tag.text == etag),
    }
}

/// The entity tags of a list; `None` if it is not a list of them.
fn listed(mut text: &str) -> Option<Vec<EntityTag>> {
    let mut tags = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if text.is_empty() {
            return Some(tags);
        }
        let strong = text.strip_prefix("W/");
        let quoted = strong.unwrap_or(text);
        let end = quoted.strip_prefix('"').and_then(|inner| inner.find('"'))?;
        let (tag, rest) = quoted.split_at(end + 2);
        let rest = rest.trim_start_matches([' ', '\t']);
        if !(rest.is_empty() || rest.starts_with(',')) {
            return None;
        }
        tags.push(EntityTag { is_weak: strong.is_some(), text: tag.to_owned() });
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a link at revision 4, and a name without a link, pass.
    fn passes(name: &HeaderName, lines: &[&'static str]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_static(line));
        }
        let Conditions { matches, matches_none } = Conditions::of(&headers);
        let passes = |revision| {
            matches.as_ref().is_none_or(|tags| tags.have(revision, false))
                && !matches_none.as_ref().is_some_and(|tags| tags.have(revision, true))
        };
        (passes(Some(Revision(4))), passes(None))
    }

    #[test]
    fn if_match_compares_strongly() {
        for lines in [&["\"4\""][..], &["*"], &[" * "], &["\"3\", \"4\""], &["\"3\"", "\"4\""], &[", ,\"a,b\" ,\"4\","]]
        {
            assert_eq!(passes(&IF_MATCH, lines), (true, false), "{lines:?}");
        }
        for lines in [
            &["\"3\""][..],
            &["W/\"4\""],
            &["4"],
            &[""],
            &["\"4"],
            &["\"04\""],
            &["w/\"4\""],
            &["\"3\" \"4\""],
            &["\"4\"x"],
            &["\"3,\"4\""],
            &["*", "\"3\""],
        ] {
            assert_eq!(passes(&IF_MATCH, lines), (false, false), "{lines:?}");
        }
        assert_eq!(passes(&IF_MATCH, &[]), (true, true));
    }

    #[test]
    fn content_is_known_by_any_of_the_listed_tags() {
        for (line, is_known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            // Commas are a part of a tag.
            ("\"b,*,\"", false),
            ("W/W/\"a\"", false),
            ("a", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(IF_NONE_MATCH, HeaderValue::from_static(line));
            assert_eq!(is_known_to_client(&headers, "\"a\""), is_known, "{line}");
        }
        assert!(!is_known_to_client(&HeaderMap::new(), "\"a\""));
    }

    #[test]
    fn if_none_match_compares_weakly() {
        // What can't be read must not let a request replace a link that it only wants to create.
        for lines in [
            &["*"][..],
            &["\"4\""],
            &["W/\"4\""],
            &["\"3\", W/\"4\""],
            &["*", "*"],
            &["\"3\", *"],
            &["\"3\"", "*"],
            &["4"],
        ] {
            assert_eq!(passes(&IF_NONE_MATCH, lines), (false, true), "{lines:?}");
        }
        for lines in [&["\"3\""][..], &[""]] {
            assert_eq!(passes(&IF_NONE_MATCH, lines), (true, true), "{lines:?}");
        }
    }
}

//! The only place that hides passwords in settings that are shown.

const MASK: &str = "***";

/// A refused value for a message: quoted, on one line, without possible passwords.
///
/// The value may be malformed in any way, so more is hidden than a URL parser would: everything between the scheme
/// and the last `@`, a port that is not a number, and everything after a `?` or `#`.
pub(super) fn refused(text: &str) -> String {
    format!("{:?}", hidden(text))
}

/// An effective value for the effective configuration. Only a URL can contain a password; other values are shown
/// unchanged, so that they can be read again.
pub(super) fn in_force(text: &str) -> String {
    if text.contains("://") { hidden(text) } else { text.to_owned() }
}

/// As [`in_force`], of an address that visitors see: only its authority can contain a password.
pub(super) fn public_address(text: &str) -> String {
    let authority = text.find("://").map_or(0, |scheme| scheme + 3);
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |length| authority + length);
    in_force(&text[..end]) + &text[end..]
}

fn hidden(text: &str) -> String {
    let (scheme, rest) = match text.find("://") {
        Some(at) => text.split_at(at + 3),
        None => ("", text),
    };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (rest, tail) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], format!("{}{MASK}", &rest[at..=at])),
        None => (rest, String::new()),
    };
    // In `https://name:password` the host is missing, and the port is a password.
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = authority.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match authority[port..].find(':') {
        Some(at) => authority.split_at(port + at + 1),
        None => (authority, ""),
    };
    let port = if scheme.is_empty() || port.bytes().all(|byte| byte.is_ascii_digit()) { port } else { MASK };
    format!("{scheme}{user}{host}{port}{path}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_hidden_and_the_rest_is_shown() {
        for (given, shown) in [
            ("http://user:secret@host:1/path", "http://***@host:1/path"),
            ("http://user:se@cr/et@host", "http://***@host"),
            ("http://user:se?cr#et@host/a", "http://***@host/a"),
            ("user:secret@host:9042", "***@host:9042"),
            ("http:/user:secret@host", "***@host"),
            ("http://user:secret", "http://user:***"),
            ("http://host?token=secret", "http://host?***"),
            ("http://host/a#secret", "http://host/a#***"),
            ("http://[::1]:80/a", "http://[::1]:80/a"),
            ("http://host:99999", "http://host:99999"),
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("::1:x", "::1:x"),
            ("", ""),
        ] {
            assert_eq!(refused(given), format!("{shown:?}"));
        }
        assert_eq!(in_force("data@home"), "data@home");
        assert_eq!(in_force("http://user:secret@host"), "http://***@host");
    }

    #[test]
    fn a_public_address_is_shown_but_for_a_password() {
        for shown in ["", "https://a.example/@me?from=short#top", "https://a.example?q=a@b", "http://[::1]:80"] {
            assert_eq!(public_address(shown), shown);
        }
        assert_eq!(public_address("http://user:secret@host/a?b#c"), "http://***@host/a?b#c");
        assert_eq!(public_address("http://user:secret"), "http://user:***");
    }
}

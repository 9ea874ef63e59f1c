//! Values of settings as they may be shown in errors.

/// A value between quotes, without what may be a secret in a URL: user name and password, and the query.
///
/// It goes by the characters alone, because the values that are shown are those that could not be parsed.
pub(super) fn shown(value: &str) -> String {
    let (value, query) = value.split_once('?').map_or((value, ""), |(value, _)| (value, "?***"));
    let (scheme, rest) = value.split_once("://").map_or(("", value), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    // The last one: a password may contain others.
    let rest = rest.rfind('@').map_or_else(|| rest.to_owned(), |at| format!("***{}", &rest[at..]));
    format!("{:?}", format!("{scheme}{separator}{rest}{query}"))
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_may_be_a_secret_is_masked() {
        for (value, expected) in [
            ("plain", "\"plain\""),
            ("", "\"\""),
            ("127.0.0.1:99999", "\"127.0.0.1:99999\""),
            ("http://user:pass@host:4318/x", "\"http://***@host:4318/x\""),
            ("http://user:p@ss/w@host", "\"http://***@host\""),
            ("user:pass@host", "\"***@host\""),
            ("http://host/?api_key=pass", "\"http://host/?***\""),
            ("htp:/user:pass@host", "\"***@host\""),
        ] {
            assert_eq!(shown(value), expected);
        }
    }
}

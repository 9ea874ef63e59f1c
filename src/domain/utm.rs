//! UTM parameters: what campaigns write into the queries of links.

use std::borrow::Cow;

use super::breakdown::{Dimension, MAX_TEXT_BYTES, kept_text};

/// The number of the parameters.
pub const UTM_COUNT: usize = 5;

/// The parameters, with the dimension of each.
pub const UTM_PARAMETERS: [(&str, Dimension); UTM_COUNT] = [
    ("utm_source", Dimension::UtmSource),
    ("utm_medium", Dimension::UtmMedium),
    ("utm_campaign", Dimension::UtmCampaign),
    ("utm_term", Dimension::UtmTerm),
    ("utm_content", Dimension::UtmContent),
];

/// Values of the parameters, in their order, as UTF-8 of at most [`MAX_TEXT_BYTES`]. An empty one is none.
pub type UtmValues<'a> = [&'a [u8]; UTM_COUNT];

/// The most bytes of a query that are read.
pub const MAX_QUERY_BYTES: usize = 2_048;

/// The part of a query that is read.
pub fn read_part(query: &str) -> &str {
    &query[..query.floor_char_boundary(MAX_QUERY_BYTES)]
}

/// Whether a query may have one of the parameters; most have none.
pub fn may_have_utm(query: &str) -> bool {
    query.contains("utm_")
}

/// The values that a query has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UtmOfQuery<'q>([Cow<'q, str>; UTM_COUNT]);

impl<'q> UtmOfQuery<'q> {
    /// Reads a query without its `?`: its first [`MAX_QUERY_BYTES`]. Of a parameter that comes several times, the first value
    /// counts.
    pub fn read(query: &'q str) -> Self {
        let query = read_part(query);
        let mut values: [Cow<'q, str>; UTM_COUNT] = Default::default();
        if !may_have_utm(query) {
            return Self(values);
        }
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let place = UTM_PARAMETERS.iter().position(|(known, _)| *known == name);
            if let Some(kept) = place.map(|place| &mut values[place]).filter(|kept| kept.is_empty()) {
                *kept = match value {
                    long if long.len() > MAX_TEXT_BYTES => Cow::Owned(kept_text(&long).to_owned()),
                    short => short,
                };
            }
        }
        Self(values)
    }

    /// Reads the query of a URL.
    pub fn of_url(url: &'q str) -> Self {
        let without_fragment = url.split('#').next().unwrap_or_default();
        Self::read(without_fragment.split_once('?').map_or("", |(_, query)| query))
    }

    pub fn into_owned(self) -> UtmOfQuery<'static> {
        UtmOfQuery(self.0.map(|value| Cow::Owned(value.into_owned())))
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|value| value.is_empty())
    }

    /// The bytes of all values.
    pub fn len(&self) -> usize {
        self.0.iter().map(|value| value.len()).sum()
    }

    /// The values, each of which `others` has where this query has none.
    pub fn or<'a>(&'a self, others: UtmValues<'a>) -> UtmValues<'a> {
        std::array::from_fn(|place| if self.0[place].is_empty() { others[place] } else { self.0[place].as_bytes() })
    }

    pub fn values(&self) -> UtmValues<'_> {
        self.or(UtmValues::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(query: &str) -> [String; UTM_COUNT] {
        UtmOfQuery::read(query).values().map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn the_first_value_of_each_parameter_is_read() {
        assert_eq!(values(""), ["", "", "", "", ""]);
        assert_eq!(values("a=utm_source&utm_sourc=b&UTM_SOURCE=c"), ["", "", "", "", ""]);
        assert_eq!(
            values("utm_content=5&x&utm_source=a%20b+c&utm_medium=&utm_medium=m&utm_source=d&utm_term=%C3%A9"),
            ["a b c", "m", "", "é", "5"]
        );
        // What is not UTF-8 is replaced.
        assert_eq!(values("utm_source=%ff")[0], "\u{fffd}");
    }

    #[test]
    fn a_url_has_its_query_before_the_fragment() {
        let source = |url| String::from_utf8(UtmOfQuery::of_url(url).into_owned().values()[0].to_vec()).unwrap();
        assert_eq!(source("https://example.com/?utm_source=a&x=?utm_source=b#?utm_source=c"), "a");
        assert_eq!(source("https://example.com/utm_source=a"), "");
        assert_eq!(source("https://example.com/#?utm_source=a"), "");
        assert_eq!(source("https://example.com"), "");
        assert_eq!(UtmOfQuery::of_url("https://example.com/?utm_source=a&utm_term=bc").len(), 3);
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let value = format!("x{}", "é".repeat(100));
        assert_eq!(values(&format!("utm_source={value}"))[0], format!("x{}", "é".repeat(63)));
    }

    #[test]
    fn a_request_comes_before_the_target() {
        let (request, target) = (UtmOfQuery::read("utm_source=r"), UtmOfQuery::read("utm_source=t&utm_term=u"));
        assert_eq!(request.or(target.values()), [&b"r"[..], b"", b"", b"u", b""]);
    }
}

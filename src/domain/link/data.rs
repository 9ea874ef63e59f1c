//! The custom data of a link.

use serde::de::IgnoredAny;
use thiserror::Error;

/// `data` exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("must be at most 10240 bytes of JSON")]
pub struct DataTooLarge;

/// A text that is not valid as the stored `data` of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("must be a JSON object of at most 10240 bytes without white space")]
pub struct StoredDataError;

/// The custom JSON object of a link, with key order and number text as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkData(String);

impl LinkData {
    const MAX_BYTES: usize = 10_240;

    /// Takes the text of a JSON object that a parser has accepted, and removes insignificant white space.
    ///
    /// # Errors
    /// If more than 10,240 bytes remain.
    pub fn from_json_object(json: &str) -> Result<Self, DataTooLarge> {
        let compact = compacted(json);
        if compact.len() > Self::MAX_BYTES { Err(DataTooLarge) } else { Ok(Self(compact)) }
    }

    /// Takes a text from a file if it has the form that [`from_json_object`](Self::from_json_object) produces.
    ///
    /// Values are not decoded. So a string that can't be decoded, such as one with a lone surrogate, is accepted
    /// unchanged.
    ///
    /// # Errors
    /// See [`StoredDataError`].
    pub fn parse_stored(text: &str) -> Result<Self, StoredDataError> {
        let is_object = text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok();
        let data = Some(text).filter(|_| is_object).and_then(|text| Self::from_json_object(text).ok());
        data.filter(|data| data.0 == text).ok_or(StoredDataError)
    }

    /// Data from this service's own store, checked before it was stored.
    pub fn from_store(text: String) -> Self {
        Self(text)
    }

    /// Compact JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// The JSON text without insignificant white space.
pub(super) fn compacted(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            in_string = c == '"';
        }
        compact.push(c);
    }
    compact
}

/// The default is an empty object.
impl Default for LinkData {
    fn default() -> Self {
        Self("{}".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_loses_white_space_outside_strings_and_nothing_else() {
        let data =
            LinkData::from_json_object("{ \"b\" : 1.0e+05 ,\n\"a\":[ \"x \\\" y\" , \"\\\\\" , { } ] }").unwrap();
        assert_eq!(data.as_json(), r#"{"b":1.0e+05,"a":["x \" y","\\",{}]}"#);
    }

    #[test]
    fn data_is_measured_without_its_white_space() {
        let of_bytes = |n: usize| format!("{{\"a\": \"{}\"}}  ", "x".repeat(n - 8));
        assert!(LinkData::from_json_object(&of_bytes(10_240)).is_ok());
        assert_eq!(LinkData::from_json_object(&of_bytes(10_241)), Err(DataTooLarge));
    }
}

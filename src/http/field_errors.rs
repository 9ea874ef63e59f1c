//! The errors of a request's fields and parameters, with bounds.

use std::borrow::Cow;

use serde::Serialize;

/// An error in a request's body or query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// JSON Pointer into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Name of the query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Name of the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<&'static str>,
    pub detail: Cow<'static, str>,
}

/// The errors of a request: the first [`MAX_FAULTS`], so that no answer is much larger than its request.
#[derive(Debug, Default)]
pub struct FieldErrors {
    first: Vec<FieldError>,
    /// Their size as JSON.
    bytes: usize,
    is_full: bool,
}

/// The maximum number of errors in an answer.
pub const MAX_FAULTS: usize = 100;
/// The maximum size of the errors in an answer as JSON. With the other members, no error body is larger than 32 KiB.
const MAX_FAULTS_BYTES: usize = 30 * 1024;
/// The maximum size of a pointer or of a parameter's name as JSON. A client may send one of 64 KiB.
const MAX_PLACE_BYTES: usize = 160;

impl FieldErrors {
    pub fn at(&mut self, pointer: impl Into<String>, detail: impl Into<Cow<'static, str>>) {
        self.push(FieldError {
            pointer: Some(cut(pointer.into())),
            parameter: None,
            header: None,
            detail: detail.into(),
        });
    }

    pub fn parameter(&mut self, parameter: impl Into<String>, detail: impl Into<Cow<'static, str>>) {
        self.push(FieldError {
            pointer: None,
            parameter: Some(cut(parameter.into())),
            header: None,
            detail: detail.into(),
        });
    }

    pub fn header(&mut self, header: &'static str, detail: impl Into<Cow<'static, str>>) {
        self.push(FieldError { pointer: None, parameter: None, header: Some(header), detail: detail.into() });
    }

    /// Whether further errors are dropped, so that callers can stop checking.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Combines these errors and `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        others.first.into_iter().for_each(|fault| self.push(fault));
        self
    }

    /// Drops all errors but the first.
    pub fn keep_first(&mut self) {
        self.first.truncate(1);
    }

    fn push(&mut self, fault: FieldError) {
        if self.is_full {
            return;
        }
        // With a comma. Serializing strings never fails.
        let bytes = serde_json::to_string(&fault).map_or(0, |json| json.len() + 1);
        if self.bytes + bytes <= MAX_FAULTS_BYTES {
            self.bytes += bytes;
            self.first.push(fault);
            self.is_full = self.first.len() == MAX_FAULTS;
        } else {
            self.is_full = true;
        }
    }

    pub fn as_slice(&self) -> &[FieldError] {
        &self.first
    }
}

/// A pointer or a name, cut and ended with `…` if it is too long.
fn cut(mut place: String) -> String {
    let mut bytes = 0;
    // An escaped character has at most six times its bytes.
    let end = place.char_indices().find_map(|(at, c)| {
        bytes += match c {
            '"' | '\\' => 2,
            '\0'..='\x1f' => "\\u0000".len(),
            c => c.len_utf8(),
        };
        (bytes > MAX_PLACE_BYTES).then_some(at)
    });
    if let Some(end) = end {
        place.truncate(end);
        place.push('…');
    }
    place
}

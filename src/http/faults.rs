//! What is wrong with a request, fault by fault, within bounds.

use std::borrow::Cow;

use serde::Serialize;

/// One fault of a request's body or query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// JSON Pointer into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    pub detail: Cow<'static, str>,
}

/// The faults of a request: the first [`MAX_FAULTS`], so that no answer is much larger than its request.
#[derive(Debug, Default)]
pub struct Faults {
    first: Vec<Fault>,
    /// What they take as JSON.
    bytes: usize,
    is_full: bool,
}

/// Faults in an answer at the most.
pub const MAX_FAULTS: usize = 100;
/// What the faults of an answer may take as JSON. With the other members, no error body is larger than 32 KiB.
const MAX_FAULTS_BYTES: usize = 30 * 1024;
/// What a pointer or the name of a parameter may take as JSON: a client may send one of 64 KiB.
const MAX_PLACE_BYTES: usize = 160;

impl Faults {
    pub fn at(&mut self, pointer: impl Into<String>, detail: impl Into<Cow<'static, str>>) {
        self.push(Fault { pointer: Some(cut(pointer.into())), parameter: None, detail: detail.into() });
    }

    pub fn parameter(&mut self, parameter: impl Into<String>, detail: impl Into<Cow<'static, str>>) {
        self.push(Fault { pointer: None, parameter: Some(cut(parameter.into())), detail: detail.into() });
    }

    /// Whether further faults are left out: nobody need look for them.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// These and `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        others.first.into_iter().for_each(|fault| self.push(fault));
        self
    }

    fn push(&mut self, fault: Fault) {
        if self.is_full {
            return;
        }
        // And a comma. Strings alone: it can't fail.
        let bytes = serde_json::to_string(&fault).map_or(0, |json| json.len() + 1);
        if self.bytes + bytes <= MAX_FAULTS_BYTES {
            self.bytes += bytes;
            self.first.push(fault);
            self.is_full = self.first.len() == MAX_FAULTS;
        } else {
            self.is_full = true;
        }
    }

    pub fn as_slice(&self) -> &[Fault] {
        &self.first
    }
}

/// A pointer or a name, where it is too long its beginning and `…`.
fn cut(mut place: String) -> String {
    let mut bytes = 0;
    // A character takes at most six times its bytes, as an escape.
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

//! JSON bodies: read with bounds and parsed field by field. All errors are reported together.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use actix_web::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use actix_web::web::Payload;
use actix_web::{HttpMessage, HttpRequest};
use futures_util::StreamExt;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::auth::RequestDeadline;
use super::problem::{FieldErrors, Problem, ProblemKind};
use super::query::Query;
use super::{idempotency, surrogates};

/// Bounds of a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyBounds {
    pub bytes: usize,
    /// How deep arrays and objects may nest.
    pub depth: usize,
}

impl BodyBounds {
    /// Of all bodies but those that have their own.
    pub const USUAL: Self = Self { bytes: 64 * 1024, depth: 64 };

    pub fn too_large(self) -> Problem {
        Problem::new(ProblemKind::PayloadTooLarge, format!("A body may have at most {} bytes.", self.bytes))
    }
}

/// Reads a body of JSON text. Empty if the request has none.
///
/// # Errors
/// `unsupported-media-type`, `payload-too-large`, `request-timeout` or `malformed-body`; then `validation` for an
/// `Idempotency-Key` where it means nothing.
pub async fn read_json(request: &HttpRequest, payload: Payload, patience: Duration) -> Result<String, Problem> {
    read_json_within(request, payload, patience, BodyBounds::USUAL).await
}

/// As [`read_json`], with bounds of its own.
///
/// # Errors
/// Those of [`read_json`].
pub async fn read_json_within(
    request: &HttpRequest,
    mut payload: Payload,
    patience: Duration,
    bounds: BodyBounds,
) -> Result<String, Problem> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bounds.bytes as u64) {
        return Err(bounds.too_large());
    }
    let read = async {
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| malformed("The body ended before it was complete."))?;
            if body.len() + chunk.len() > bounds.bytes {
                return Err(bounds.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let body = tokio::time::timeout(patience, read).await.map_err(|_| {
        let detail = format!("The body did not arrive within {} s.", patience.as_secs());
        Problem::new(ProblemKind::RequestTimeout, detail)
    })??;
    if let Some(answer_by) = request.extensions().get::<RequestDeadline>() {
        answer_by.start_answer_timeout();
    }
    if !body.is_empty() && !is_json(request) {
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, "Send the body as application/json."));
    }
    let text = String::from_utf8(body).map_err(|_| malformed("The body is not UTF-8."))?;
    if depth(&text) > bounds.depth {
        return Err(malformed(format!("The body nests more than {} levels deep.", bounds.depth)));
    }
    if idempotency::is_misplaced(request) {
        // What is wrong with the body goes first.
        if !text.is_empty() {
            raw(&text)?;
        }
        idempotency::check_absent(request)?;
    }
    Ok(text)
}

/// The fields of a body that may be missing, and the faults of the query.
pub fn optional_fields<'b>(request: &HttpRequest, body: &'b str) -> Result<BodyFields<'b>, Problem> {
    let mut fields = BodyFields::parse_optional(body)?;
    fields.faults = Query::of(request).into_faults().and(fields.faults);
    Ok(fields)
}

/// A body that is JSON.
fn raw(text: &str) -> Result<&RawValue, Problem> {
    serde_json::from_str(text)
        .map_err(|error| malformed(format!("The body is not JSON (line {}, column {}).", error.line(), error.column())))
}

fn malformed(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(ProblemKind::MalformedBody, detail)
}

/// `application/json`, `application/*+json`, or no type. An empty header field counts as none.
fn is_json(request: &HttpRequest) -> bool {
    let Some(essence) = media_type(request) else { return true };
    let Some(subtype) = essence.strip_prefix("application/") else { return false };
    subtype == "json" || subtype.strip_suffix("+json").is_some_and(|prefix| !prefix.is_empty())
}

/// The media type of the body in lower case, without parameters; empty if it is not ASCII. `None`: there is none.
pub fn media_type(request: &HttpRequest) -> Option<String> {
    let value = request.headers().get(CONTENT_TYPE).filter(|value| !value.as_bytes().trim_ascii().is_empty())?;
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    Some(essence.trim().to_ascii_lowercase())
}

/// The nesting depth of brackets outside strings, even if the text is not valid JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether an object has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    Null,
    Value,
}

/// The fields of a JSON object, unparsed.
pub struct BodyFields<'a> {
    members: Vec<(String, &'a RawValue)>,
    /// Whether the body is an object. If not, that is the only error that is reported.
    is_object: bool,
    pub faults: FieldErrors,
}

impl<'a> BodyFields<'a> {
    /// Splits a body into fields. JSON that is not an object is an error at the pointer `""`.
    ///
    /// # Errors
    /// `malformed-body` for text that is not JSON.
    pub fn parse(text: &'a str) -> Result<Self, Problem> {
        Self::parse_but(text, None)
    }

    /// As [`parse`](Self::parse), for a body with a field of parts that are parsed by themselves: they report their own
    /// errors.
    ///
    /// # Errors
    /// `malformed-body` for text that is not JSON.
    pub fn parse_around(text: &'a str, parts: &str) -> Result<Self, Problem> {
        Self::parse_but(text, Some(&format!("{}/", pointer(parts))))
    }

    /// `elsewhere`: with what the pointers begin that are not reported.
    fn parse_but(text: &'a str, elsewhere: Option<&str>) -> Result<Self, Problem> {
        let value = raw(text)?;
        let mut faults = FieldErrors::default();
        if !value.get().starts_with('{') {
            faults.at("", "must be a JSON object");
            return Ok(Self { members: Vec::new(), is_object: false, faults });
        }
        surrogates::find_lone(value.get(), |pointer| {
            if elsewhere.is_none_or(|elsewhere| !pointer.starts_with(elsewhere)) {
                faults.at(pointer, "must not contain an unpaired surrogate");
            }
            !faults.is_full()
        });
        // The text is valid JSON, as checked above.
        let mut parser = serde_json::Deserializer::from_str(value.get());
        let members = parser.deserialize_map(FieldVisitor).map_err(|_| malformed("A field name is not Unicode."))?;
        Ok(Self { members, is_object: true, faults })
    }

    /// As [`Self::parse`], of a body that may be missing.
    pub fn parse_optional(text: &'a str) -> Result<Self, Problem> {
        if text.is_empty() { Ok(Self::none()) } else { Self::parse(text) }
    }

    /// The fields of a missing body.
    pub fn none() -> Self {
        Self { members: Vec::new(), is_object: true, faults: FieldErrors::default() }
    }

    /// Whether a field is there, `null` or not. It stays where it is.
    pub fn presence(&self, name: &str) -> Presence {
        // Of a repeated field, which is an error, any value will do.
        match self.members.iter().find(|(field, _)| field == name) {
            None => Presence::Absent,
            Some((_, value)) if value.get() == "null" => Presence::Null,
            Some(_) => Presence::Value,
        }
    }

    /// Removes a field and returns it; `null` counts as missing. A repeated field is an error.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let mut found = None;
        let mut times = 0;
        self.members.retain(|(field, value)| {
            let is_it = field == name;
            if is_it {
                found = Some(*value);
                times += 1;
            }
            !is_it
        });
        if times > 1 {
            self.faults.at(pointer(name), "must occur only once");
        }
        found.filter(|value| value.get() != "null")
    }

    /// Removes a required field that must be a string. Errors are collected.
    pub fn take_required_string(&mut self, name: &str) -> Option<String> {
        if self.lacks(name) { None } else { self.take_string(name) }
    }

    /// Removes a required field that must be an array.
    pub fn take_required_array(&mut self, name: &str) -> Option<Vec<&'a RawValue>> {
        if self.lacks(name) { None } else { self.take_array(name) }
    }

    /// Whether a required field is missing, which is reported.
    fn lacks(&mut self, name: &str) -> bool {
        let is_missing = !self.members.iter().any(|(field, value)| field == name && value.get() != "null");
        if is_missing {
            self.take(name);
            if self.is_object {
                self.faults.at(pointer(name), "is required");
            }
        }
        is_missing
    }

    /// Removes a field that must be a string.
    pub fn take_string(&mut self, name: &str) -> Option<String> {
        let value = self.take(name)?;
        let text = string(value);
        text.unwrap_or_else(|fault| {
            self.faults.at(pointer(name), fault);
            None
        })
    }

    /// Removes a field that must be a boolean.
    pub fn take_bool(&mut self, name: &str) -> Option<bool> {
        let value = self.take(name)?;
        let flag = serde_json::from_str(value.get()).ok();
        if flag.is_none() {
            self.faults.at(pointer(name), "must be a boolean");
        }
        flag
    }

    /// Removes a field that must be an array.
    pub fn take_array(&mut self, name: &str) -> Option<Vec<&'a RawValue>> {
        let value = self.take(name)?;
        let items = serde_json::from_str(value.get()).ok();
        if items.is_none() {
            self.faults.at(pointer(name), "must be an array");
        }
        items
    }

    /// Removes a field that no request may have, and reports it.
    pub fn refuse(&mut self, name: &str, fault: &'static str) {
        if self.presence(name) != Presence::Absent {
            self.members.retain(|(field, _)| field != name);
            self.faults.at(pointer(name), fault);
        }
    }

    /// Checks that no fields remain: these are unknown.
    ///
    /// # Errors
    /// The `validation` problem with all errors.
    pub fn finish(self) -> Result<(), Problem> {
        self.into_faults().into_result()
    }

    /// All errors. Fields that remain are unknown.
    pub fn into_faults(mut self) -> FieldErrors {
        for (name, _) in &self.members {
            if self.faults.is_full() {
                break;
            }
            self.faults.at(pointer(name), "unknown field");
        }
        self.faults
    }
}

/// The text of a value that must be a string. `None` if it has an unpaired surrogate, which was reported before.
pub fn string(value: &RawValue) -> Result<Option<String>, &'static str> {
    if value.get().starts_with('"') { Ok(serde_json::from_str(value.get()).ok()) } else { Err("must be a string") }
}

/// The JSON Pointer (RFC 6901) to a member of the body.
pub fn pointer(name: &str) -> String {
    let escaped: Cow<'_, str> =
        if name.contains(['~', '/']) { name.replace('~', "~0").replace('/', "~1").into() } else { name.into() };
    format!("/{escaped}")
}

/// The name of a field. An unpaired surrogate, which is an error, is replaced by U+FFFD.
struct FieldName(String);

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl Visitor<'_> for NameVisitor {
            type Value = FieldName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            // `serde_json` passes unpaired surrogates to visitors that accept bytes.
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<FieldName, E> {
                Ok(FieldName(match String::from_utf8_lossy(bytes) {
                    Cow::Borrowed(name) => name.to_owned(),
                    // An encoded surrogate has three bytes.
                    Cow::Owned(name) => name.replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}"),
                }))
            }
        }
        deserializer.deserialize_bytes(NameVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut fields = Vec::new();
        while let Some((FieldName(name), value)) = map.next_entry()? {
            fields.push((name, value));
        }
        Ok(fields)
    }
}

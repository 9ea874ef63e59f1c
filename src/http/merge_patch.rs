//! Bodies of `PATCH`: JSON Merge Patch (RFC 7396).
//!
//! A handler reads the body with [`read`], splits it with [`BodyFields::parse`], and takes each field with
//! [`take_patched`], or with [`take_patched_required`] if the field has no default. The functions that read the fields
//! of a creation read those of a patch too. For example:
//!
//! ```ignore
//! let body = merge_patch::read(&request, payload, api.request_timeout).await?;
//! let mut fields = BodyFields::parse(&body)?;
//! let tier = take_patched(&mut fields, "tier", tier);
//! fields.finish()?;
//! let tier = tier.or(Tier::Free).unwrap_or(stored.tier);
//! ```

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Payload;

use super::body::{BodyFields, Presence, media_type, pointer, read_json};
use super::problem::{Problem, ProblemKind};

/// The media types of a patch. A request without a type has one of them.
pub const MEDIA_TYPES: [&str; 2] = ["application/merge-patch+json", "application/json"];

const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");

/// Reads the body of a patch.
///
/// # Errors
/// `unsupported-media-type` with `Accept-Patch`, `payload-too-large`, `request-timeout` or `malformed-body`.
pub async fn read(request: &HttpRequest, payload: Payload, patience: Duration) -> Result<String, Problem> {
    if media_type(request).is_some_and(|sent| !MEDIA_TYPES.contains(&sent.as_str())) {
        return Err(unsupported_media_type());
    }
    read_json(request, payload, patience).await
}

/// The answer to another media type.
pub fn unsupported_media_type() -> Problem {
    let detail = format!("Send the body as {}.", MEDIA_TYPES.join(" or "));
    let problem = Problem::new(ProblemKind::UnsupportedMediaType, detail);
    match HeaderValue::try_from(MEDIA_TYPES.join(", ")) {
        Ok(accepted) => problem.with_header(ACCEPT_PATCH, accepted),
        Err(_) => problem,
    }
}

/// What a patch does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched<T> {
    /// The field stays as it is; or its value is wrong, which is among the faults of the body.
    Absent,
    /// The field gets its default.
    Null,
    Value(T),
}

impl<T> Patched<T> {
    /// The new value of the field, which is `default` for `null`. `None`: it stays as it is.
    pub fn or(self, default: T) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Null => Some(default),
            Self::Value(value) => Some(value),
        }
    }
}

/// Removes a field. `read` takes it from the fields as in a creation; it is not called if the field is absent or
/// `null`.
pub fn take_patched<'a, T>(
    fields: &mut BodyFields<'a>,
    name: &str,
    read: impl FnOnce(&mut BodyFields<'a>) -> Option<T>,
) -> Patched<T> {
    match fields.presence(name) {
        Presence::Absent => Patched::Absent,
        Presence::Null => {
            // A repeated field is a fault.
            fields.take(name);
            Patched::Null
        }
        Presence::Value => read(fields).map_or(Patched::Absent, Patched::Value),
    }
}

/// Removes a field that has no default: `null` is a fault.
pub fn take_patched_required<'a, T>(
    fields: &mut BodyFields<'a>,
    name: &str,
    read: impl FnOnce(&mut BodyFields<'a>) -> Option<T>,
) -> Option<T> {
    match take_patched(fields, name, read) {
        Patched::Absent => None,
        Patched::Null => {
            fields.faults.at(pointer(name), "must not be null: it has no default");
            None
        }
        Patched::Value(value) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::FromRequest;
    use actix_web::test::TestRequest;

    use super::*;

    fn faults(fields: BodyFields<'_>) -> Vec<String> {
        match fields.finish() {
            Ok(()) => Vec::new(),
            Err(problem) => {
                let json: serde_json::Value = serde_json::from_str(&problem.to_json()).unwrap();
                let errors = json["errors"].as_array().unwrap();
                errors.iter().map(|error| format!("{} {}", error["pointer"], error["detail"])).collect()
            }
        }
    }

    #[test]
    fn absent_null_and_a_value_are_told_apart() {
        let mut fields = BodyFields::parse(r#"{"b": null, "c": "x"}"#).unwrap();
        let taken = ["a", "b", "c"].map(|name| take_patched(&mut fields, name, |fields| fields.take_string(name)));
        assert_eq!(taken, [Patched::Absent, Patched::Null, Patched::Value("x".to_owned())]);
        assert_eq!(taken.map(|field| field.or("y".into())), [None, Some("y".into()), Some("x".into())]);
        assert!(faults(fields).is_empty());
    }

    #[test]
    fn wrong_repeated_and_unknown_fields_are_faults_and_so_is_null_without_a_default() {
        let mut fields = BodyFields::parse(r#"{"a": 1, "b": null, "b": "x", "c": null, "d": 0}"#).unwrap();
        let read = |name: &'static str| move |fields: &mut BodyFields<'_>| fields.take_string(name);
        assert_eq!(take_patched(&mut fields, "a", read("a")), Patched::Absent);
        take_patched(&mut fields, "b", read("b"));
        assert_eq!(take_patched_required(&mut fields, "c", read("c")), None);
        let expected = [
            r#""/a" "must be a string""#,
            r#""/b" "must occur only once""#,
            r#""/c" "must not be null: it has no default""#,
            r#""/d" "unknown field""#,
        ];
        assert_eq!(faults(fields), expected);
    }

    #[tokio::test]
    async fn other_media_types_are_refused_with_those_that_are_taken() {
        let sent = async |media_type: &str| {
            let request = TestRequest::patch().insert_header(("Content-Type", media_type)).set_payload("{}");
            let (request, mut payload) = request.to_http_parts();
            let payload = Payload::from_request(&request, &mut payload).await.unwrap();
            read(&request, payload, Duration::from_secs(1)).await
        };
        for taken in ["application/merge-patch+json", "Application/JSON; charset=utf-8", ""] {
            assert_eq!(sent(taken).await.unwrap(), "{}", "{taken}");
        }
        for other in ["application/json-patch+json", "application/x+json", "text/plain", "application", "\u{e4}"] {
            let problem = sent(other).await.unwrap_err();
            assert_eq!(problem.kind(), ProblemKind::UnsupportedMediaType, "{other}");
            let accepted = problem.headers().find(|(name, _)| *name == ACCEPT_PATCH).map(|(_, value)| value);
            assert_eq!(accepted.unwrap(), "application/merge-patch+json, application/json");
        }
    }
}

//! Schemas that several endpoints share, made from the names that the service itself goes by.

use std::borrow::Cow;

use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::domain::key::{Scope, Tier};
use crate::domain::qr::QrFormat;
use crate::domain::webhook::DeliveryStatus;
use crate::service::keys::Descendants;

/// The path of a link.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a path that is taken apart by hand")]
pub struct ShortIdPath {
    /// Identifier of the link.
    #[param(pattern = "^[0-9A-Za-z]{7}$", example = "aB3xY9z")]
    short_id: String,
}

/// The path of a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a path that is taken apart by hand")]
pub struct KeyIdPath {
    /// Identifier of the key.
    #[param(value_type = String, format = Uuid, example = "019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57")]
    key_id: uuid::Uuid,
}

/// What the client has already.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header that is taken apart by hand")]
pub struct Revalidation {
    /// `ETag` of an earlier answer that the client still has; where it is up to date, the answer is 304.
    #[param(rename = "If-None-Match", nullable = false)]
    if_none_match: Option<String>,
}

/// One of a few words.
macro_rules! words {
    ($type:ident, $name:literal, $description:literal, $words:expr) => {
        #[doc = $description]
        pub struct $type;

        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some($words));
                schema.description(Some($description)).into()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                $name.into()
            }
        }
    };
}

words!(TierName, "Tier", "Sets rate limits and monthly quotas.", [Tier::Free, Tier::Pro].map(Tier::name));
words!(ScopeName, "Scope", "One permission of a key.", Scope::ALL.map(Scope::name));
words!(
    DescendantsName,
    "Descendants",
    "What becomes of the keys below one that is revoked.",
    Descendants::ALL.map(Descendants::name)
);
words!(
    DeliveryStatusName,
    "DeliveryStatus",
    "How a delivery stands: `failed` is for good.",
    DeliveryStatus::ALL.map(DeliveryStatus::name)
);
words!(
    ImageFormat,
    "ImageFormat",
    "Format of an image.",
    ["png", "svg"].into_iter().filter(|name| QrFormat::parse(name).is_ok())
);

/// Bytes that are no text.
pub struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Binary {}

/// A JSON object, whatever it has.
pub struct AnyObject;

impl PartialSchema for AnyObject {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new().schema_type(Type::String).build();
        let any = ObjectBuilder::new().schema_type(SchemaType::AnyValue).build();
        let object = ObjectBuilder::new().property_names(Some(name));
        object.additional_properties(Some(RefOr::T(Schema::Object(any)))).into()
    }
}

impl ToSchema for AnyObject {}

/// The body of a webhook request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a body that is written by hand")]
pub struct HitEvent {
    /// Always `hit`.
    #[schema(pattern = "^hit$")]
    event: String,
    /// The link.
    #[schema(pattern = "^[0-9A-Za-z]{7}$")]
    short_id: String,
    /// Target of the redirect.
    #[schema(format = "uri")]
    redirect_url: String,
    /// Identifier of the hit: the same on every try, so that repeats can be dropped.
    hit_id: uuid::Uuid,
    /// Time of the hit, UTC.
    #[schema(value_type = String, format = DateTime)]
    hit_at: String,
    /// The `data` stored with the link, with key order and number text as sent; `{}` where none was sent.
    data: serde_json::Map<String, serde_json::Value>,
}

/// An error (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "it describes a body that is written by hand")]
pub struct ProblemDocument {
    /// What went wrong, for programs: `urn:problem-type:signpost:` and a slug.
    #[schema(pattern = "^urn:problem-type:signpost:[a-z-]+$")]
    r#type: String,
    /// What went wrong, in a few words; the same for every problem of this type.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What went wrong this time, and what to do.
    #[schema(min_length = 1)]
    detail: String,
    /// With `validation`: every fault of the request.
    #[schema(nullable = false, min_items = 1)]
    errors: Option<Vec<Fault>>,
    /// With `scope-missing`: the scope that the key lacks.
    #[schema(nullable = false)]
    scope: Option<String>,
    /// With `link-quota-exceeded`: the monthly limit. With `key-quota-exceeded`: how many live keys the key may have created.
    #[schema(nullable = false)]
    limit: Option<u64>,
    /// With `link-quota-exceeded`: the links made this month. With `key-quota-exceeded`: the live keys that the key has created.
    #[schema(nullable = false)]
    current: Option<u64>,
}

/// One fault of a request: of its body where it has a `pointer`, of its query where it has a `parameter`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a part of a body that is written by hand")]
pub struct Fault {
    /// JSON Pointer to the place in the body; for what is missing, to where it should stand.
    #[schema(nullable = false)]
    pointer: Option<String>,
    /// Name of the query parameter.
    #[schema(nullable = false)]
    parameter: Option<String>,
    /// What is wrong with it.
    detail: String,
}

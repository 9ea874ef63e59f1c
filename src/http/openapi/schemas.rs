//! Schemas that several endpoints share, generated from the names in the code.

use std::borrow::Cow;

use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::domain::breakdown::Dimension;
use crate::domain::key::{Scope, Tier};
use crate::domain::link::{LinkState, ListOrder};
use crate::domain::qr::QrFormat;
use crate::domain::series::Interval;
use crate::domain::tally::BotFilter;
use crate::domain::webhook::DeliveryStatus;
use crate::service::keys::Descendants;

/// The path of a link.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a path that is taken apart by hand")]
pub struct ShortIdPath {
    /// Name of the link: its slug, or the generated `short_id`.
    #[param(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$", example = "aB3xY9z")]
    short_id: String,
}

/// The path of a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a path that is taken apart by hand")]
pub struct KeyIdPath {
    /// Id of the key.
    #[param(value_type = String, format = "uuid", example = "019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57")]
    key_id: uuid::Uuid,
}

/// The path of a file of the console.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a path that is taken apart by hand")]
pub struct ConsoleAssetPath {
    /// The version of the files, as the page names it.
    #[param(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    version: String,
    /// The name of a file.
    #[param(example = "main.js")]
    file: String,
}

/// The validator of a cached copy.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header that is taken apart by hand")]
pub struct Revalidation {
    /// `ETag` of a cached copy. If it is current, the answer is 304.
    #[param(rename = "If-None-Match", nullable = false)]
    if_none_match: Option<String>,
}

/// The condition of a change of a link.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes headers that are taken apart by hand")]
pub struct IfUnchanged {
    /// `ETag` of the link that was read: the request is refused with 412 if the link has changed since. `*`: any state of a
    /// link that exists. A weak or malformed tag matches none.
    #[param(rename = "If-Match", nullable = false)]
    if_match: Option<String>,
}

/// The condition of a creation under a given name.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes headers that are taken apart by hand")]
pub struct IfAbsent {
    /// `*`: only create the link; the request is refused with 412 if there is one.
    #[param(rename = "If-None-Match", nullable = false)]
    if_none_match: Option<String>,
}

/// A request that is done once.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes headers that are taken apart by hand")]
pub struct IdempotencyHeader {
    /// Any text of 1 to 255 visible ASCII characters, as it is or in quotes (RFC 8941), which the client chooses anew for each
    /// request that is to be done. See *Repeating a request safely*.
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 1,
        example = "5b1f8e0e-7d5c-4f0e-9a53-2f6d3c1f8a10"
    )]
    idempotency_key: Option<String>,
}

/// A schema of a string with a few values.
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

words!(TierName, "Tier", "A tier, which sets rate limits and quotas.", [Tier::Free, Tier::Pro].map(Tier::name));
words!(ScopeName, "Scope", "A permission of a key.", Scope::ALL.map(Scope::name));
words!(
    DescendantsName,
    "Descendants",
    "What happens to the keys below a revoked key.",
    Descendants::ALL.map(Descendants::name)
);
words!(
    DeliveryStatusName,
    "DeliveryStatus",
    "The status of a delivery; `failed` is final.",
    DeliveryStatus::ALL.map(DeliveryStatus::name)
);
words!(LinkListOrder, "LinkListOrder", "The order of a list of links.", ListOrder::ALL.map(ListOrder::name));
words!(ArchivedFilter, "ArchivedFilter", "Whether archived links are listed.", ["false", "true", "any"]);
words!(ListInclude, "ListInclude", "What else is shown of each link.", ["hits"]);
words!(ExportFormatName, "ExportFormat", "The format of an export.", ["ndjson", "csv"]);
words!(TableFormatName, "TableFormat", "The format of a series or a breakdown.", ["json", "csv"]);
words!(BotFilterName, "BotFilter", "Which hits are counted.", BotFilter::ALL.map(BotFilter::name));
words!(IntervalName, "Interval", "The length of intervals.", Interval::ALL.map(Interval::name));
words!(DimensionName, "Dimension", "A property of hits.", Dimension::ALL.map(Dimension::name));
words!(ReplayedStatusName, "ReplayedStatus", "Which settled deliveries are replayed.", ["failed", "delivered", "any"]);
words!(TestStatusName, "WebhookTestStatus", "The outcome of a test of a webhook.", ["delivered", "failed"]);
words!(LinkStateName, "LinkState", "The state of a link.", LinkState::ALL.map(LinkState::name));
words!(
    ImageFormat,
    "ImageFormat",
    "The format of an image.",
    ["png", "svg"].into_iter().filter(|name| QrFormat::parse(name).is_ok())
);

/// Binary data.
pub struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Binary {}

/// A JSON object with any members.
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
    /// The name of the link.
    #[schema(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$")]
    short_id: String,
    /// Target of the redirect.
    #[schema(format = "uri")]
    redirect_url: String,
    /// Id of the hit: the same for all attempts, so that receivers can ignore repeated deliveries.
    #[schema(value_type = String, format = "uuid")]
    hit_id: uuid::Uuid,
    /// Time of the hit, UTC.
    #[schema(value_type = String, format = DateTime)]
    hit_at: String,
    /// The `data` of the link, with key order and number text as sent. Default: `{}`.
    data: serde_json::Map<String, serde_json::Value>,
}

/// An error (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "it describes a body that is written by hand")]
pub struct ProblemDocument {
    /// The type of the error: `urn:problem-type:signpost:` and a slug.
    #[schema(pattern = "^urn:problem-type:signpost:[a-z-]+$")]
    r#type: String,
    /// A short description, the same for all problems of this type.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What went wrong in this request, and what to do.
    #[schema(min_length = 1)]
    detail: String,
    /// With `validation`: the errors of the request.
    #[schema(nullable = false, min_items = 1)]
    errors: Option<Vec<FaultSchema>>,
    /// With `scope-missing`: the scope that the key lacks.
    #[schema(nullable = false)]
    scope: Option<String>,
    /// With `link-quota-exceeded`: the monthly limit. With `key-quota-exceeded`: how many live keys the key may have
    /// created.
    #[schema(nullable = false)]
    limit: Option<u64>,
    /// With `link-quota-exceeded`: the links created this month. With `key-quota-exceeded`: the live keys that the
    /// key has created.
    #[schema(nullable = false)]
    current: Option<u64>,
}

/// An error in a request: in its body, with a `pointer`, in its path or query, with a `parameter`, or in a `header`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a part of a body that is written by hand")]
#[schema(as = Fault)]
pub struct FaultSchema {
    /// JSON Pointer into the body. For a missing field, the pointer that it would have.
    #[schema(nullable = false)]
    pointer: Option<String>,
    /// Name of the parameter of the path or query.
    #[schema(nullable = false)]
    parameter: Option<String>,
    /// Name of the header.
    #[schema(nullable = false)]
    header: Option<String>,
    /// What is wrong.
    detail: String,
}

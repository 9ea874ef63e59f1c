//! The bodies of requests and answers about links, with the examples of the API reference.

use actix_web::http::StatusCode;
use actix_web::http::header::ETAG;
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, SchemaFormat, SchemaType, Type};

use crate::domain::calendar::Timestamp;
use crate::domain::link::{Link, LinkOptions, LinkState, MAX_WEBHOOKS, RedirectStatus};
use crate::domain::webhook_url::MAX_WEBHOOK_URL_BYTES;
use crate::http::Api;
use crate::http::conditions::etag;
use crate::http::openapi::schemas::LinkStateName;
use crate::http::problem::Problem;
use crate::http::times;

/// A short link.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Shortlink {
    /// Name of the link, as in paths: its slug, or a generated id of 7 letters and digits.
    #[schema(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$")]
    pub short_id: String,
    /// The short link: `{base_url}/<short_id>`.
    #[schema(format = "uri")]
    pub short_url: String,
    /// Target of the redirect: as sent if it is ASCII, else in its normalized (WHATWG) form.
    #[schema(format = "uri")]
    pub redirect_url: String,
    /// Creation time, UTC.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub created_at: Timestamp,
}

/// A short link with all of its fields.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoredLink {
    #[serde(flatten)]
    pub link: Shortlink,
    /// Custom JSON, with key order and number text as sent. Default: `{}`.
    #[schema(value_type = Object)]
    pub data: Box<RawValue>,
    #[serde(flatten)]
    #[schema(inline)]
    pub fields: LinkFields,
}

/// The fields of a link that its record has beside those of a [`Shortlink`] and its data.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinkFields {
    /// The name that the creator of the link has chosen; `null`: the name is generated.
    #[schema(required = true)]
    pub slug: Option<String>,
    /// URLs that are notified of each hit, as sent.
    pub webhooks: Vec<String>,
    /// Whether hits are counted for analytics.
    pub tracked: bool,
    /// The title, for people; `null`: none.
    #[schema(required = true)]
    pub title: Option<String>,
    /// Tags, as sent.
    pub tags: Vec<String>,
    /// Notes, for people; `null`: none.
    #[schema(required = true)]
    pub notes: Option<String>,
    /// Whether the link is archived. An archived link redirects as before.
    pub archived: bool,
    /// When the link expires; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub expires_at: Option<Timestamp>,
    /// When the link begins to redirect; `null`: at once.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub not_before: Option<Timestamp>,
    /// Where the link leads once it has expired; `null`: nowhere.
    #[schema(format = "uri", required = true)]
    pub fallback_url: Option<String>,
    /// HTTP status of the redirect.
    #[schema(schema_with = statuses)]
    pub redirect_status: u16,
    /// For how many seconds browsers may keep the redirect.
    #[schema(maximum = 86_400)]
    pub cache_seconds: u32,
    /// Whether `GET /{short_id}+` shows where the link leads.
    pub preview: bool,
    /// Whether hits of bots notify no webhooks.
    pub skip_bots: bool,
    /// Why the operator of the service has blocked the link; `null`: it is not blocked, or is listed for a key that does not
    /// own it.
    #[schema(required = true)]
    pub block_reason: Option<String>,
    /// When a field of the link last changed, UTC.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub updated_at: Timestamp,
    /// One more with every change of a stored field. The `ETag` is this number in quotes.
    #[schema(minimum = 1)]
    pub revision: u32,
    /// Whether the link redirects now: `active`; `scheduled` before `not_before`; `expired` from `expires_at` on;
    /// `blocked` by the operator, or because it leads to a host on the operator's list. If several apply, the last of these.
    #[schema(value_type = LinkStateName)]
    pub state: &'static str,
}

/// A new link. A field that is `null` counts as missing.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct NewShortlink {
    /// Target of the redirect: an absolute `http` or `https` URL with a host, at most 8,192 bytes of UTF-8, without
    /// white space or control characters, and not at this service itself.
    #[schema(format = "uri", pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\\\\s][^\\s]*$", max_length = 8192)]
    redirect_url: String,
    /// The name of the link, which is its `short_id`: 1 to 64 of `A-Z a-z 0-9 - _`, not beginning or ending with `-`, and
    /// not a reserved word such as `console`. Case matters. Default: a generated id of 7 letters and digits.
    #[schema(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$", min_length = 1, max_length = 64)]
    slug: Option<String>,
    /// Custom JSON, delivered to the webhooks with key order and number text as sent. At most 10,240 bytes of UTF-8,
    /// without white space between tokens. Default: `{}`.
    #[schema(additional_properties)]
    data: Option<serde_json::Map<String, Value>>,
    #[schema(schema_with = webhook_urls)]
    webhooks: Option<Vec<String>>,
    /// Whether to count hits for analytics. An untracked link redirects, fires its webhooks and counts in the usage
    /// of its key, but its analytics are answered 403. It can't be changed later.
    #[schema(default = true)]
    tracked: Option<bool>,
    #[serde(flatten)]
    #[schema(inline)]
    options: OptionFields,
}

/// A link as it is to be. A field that is `null` counts as missing, and a missing field gets its default.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct ShortlinkReplacement {
    /// Target of the redirect: an absolute `http` or `https` URL with a host, at most 8,192 bytes of UTF-8, without
    /// white space or control characters, and not at this service itself.
    #[schema(format = "uri", pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\\\\s][^\\s]*$", max_length = 8192)]
    redirect_url: String,
    /// Custom JSON, at most 10,240 bytes of UTF-8, without white space between tokens. Default: `{}`.
    #[schema(additional_properties)]
    data: Option<serde_json::Map<String, Value>>,
    #[schema(schema_with = webhook_urls)]
    webhooks: Option<Vec<String>>,
    /// Whether to count hits for analytics. For a link that exists it must be what it is. Default: `true` for a new link.
    tracked: Option<bool>,
    #[serde(flatten)]
    #[schema(inline)]
    options: OptionFields,
}

/// What to change of a link (JSON Merge Patch). A field that is not sent stays as it is; `null` sets it to its default.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct ShortlinkPatch {
    /// Target of the redirect: an absolute `http` or `https` URL with a host, at most 8,192 bytes of UTF-8, without
    /// white space or control characters, and not at this service itself. It has no default.
    #[schema(
        format = "uri",
        pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\\\\s][^\\s]*$",
        max_length = 8192,
        nullable = false
    )]
    redirect_url: Option<String>,
    /// Changes of the custom JSON, merged into it: members keep their place and number text, new ones are last, and
    /// `null` removes a member. The result has at most 10,240 bytes. `null` in the place of an object sets it to `{}`.
    #[schema(additional_properties)]
    data: Option<serde_json::Map<String, Value>>,
    #[schema(schema_with = webhook_urls)]
    webhooks: Option<Vec<String>>,
    #[serde(flatten)]
    #[schema(inline)]
    options: OptionFields,
}

/// The fields that creations, replacements and changes of links have in common. A body with them has no unknown fields.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a part of bodies that are taken apart by hand")]
pub struct OptionFields {
    /// A title, for people. Default: none.
    #[schema(min_length = 1, max_length = 200)]
    title: Option<String>,
    #[schema(schema_with = tags)]
    tags: Option<Vec<String>>,
    /// Notes, for people. Default: none.
    #[schema(max_length = 2000)]
    notes: Option<String>,
    /// Marks the link as archived. It redirects as before.
    #[schema(default = false)]
    archived: Option<bool>,
    /// When the link expires: in the future. No hit is at or after it. Default: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When the link begins to redirect, before `expires_at`; until then it is answered 404. Default: at once.
    #[schema(value_type = Option<String>, format = DateTime)]
    not_before: Option<Timestamp>,
    /// Where the link leads once it has expired: a URL as `redirect_url`. Default: nowhere.
    #[schema(format = "uri", pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\\\\s][^\\s]*$", max_length = 8192)]
    fallback_url: Option<String>,
    #[schema(schema_with = optional_status)]
    redirect_status: Option<u16>,
    /// For how many seconds browsers may keep the redirect, never past `expires_at`. Visits that the browser answers from its cache are not hits.
    #[schema(minimum = 0, maximum = 86_400, default = 0)]
    cache_seconds: Option<u32>,
    /// Whether `GET /{short_id}+` shows where the link leads.
    #[schema(default = true)]
    preview: Option<bool>,
    /// Whether hits of bots notify no webhooks: their deliveries are neither made nor counted.
    #[schema(default = false)]
    skip_bots: Option<bool>,
}

/// Why a link is blocked.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct Block {
    /// The reason, which the owner of the link can read.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

fn webhook_urls() -> Array {
    let url = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::Custom("uri".into())))
        .pattern(Some(r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\s@][^\s]*$"))
        .max_length(Some(MAX_WEBHOOK_URL_BYTES));
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .description(Some(
            "URLs that are notified of each hit: at most 10 `http` or `https` URLs of at most 2,048 bytes each, without user \
             name or password. Two URLs that mean the same request are an error, and so are `localhost` and addresses that \
             are not public. A link can have at most 200 different URLs in its life.",
        ))
        .items(url)
        .max_items(Some(MAX_WEBHOOKS))
        .unique_items(true)
        .build()
}

fn tags() -> Array {
    let tag = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^[^,\u0000-\u001F\u007F-\u009F]*$"))
        .min_length(Some(1))
        .max_length(Some(50));
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .description(Some(
            "Tags: at most 20, distinct whatever their case, without commas and control characters. Default: none.",
        ))
        .items(tag)
        .max_items(Some(20))
        .unique_items(true)
        .build()
}

fn statuses() -> Object {
    let codes = RedirectStatus::ALL.map(RedirectStatus::code);
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("HTTP status of the redirect."))
        .enum_values(Some(codes))
        .build()
}

fn optional_status() -> Object {
    let codes = RedirectStatus::ALL.map(|status| json!(status.code()));
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
        .description(Some("HTTP status of the redirect. Only `GET` and `HEAD` are redirected, whatever the status."))
        .enum_values(Some(codes.into_iter().chain([Value::Null])))
        .default(Some(json!(RedirectStatus::default().code())))
        .build()
}

impl Shortlink {
    pub fn of(api: &Api, link: &Link) -> Self {
        Self {
            short_id: link.name().to_string(),
            short_url: api.base_url.short_url(link.name()),
            redirect_url: link.target.as_str().to_owned(),
            created_at: link.created_at,
        }
    }

    /// The example of the API reference.
    pub fn example() -> Value {
        json!({
            "short_id": "aB3xY9z",
            "short_url": "https://sign.example/aB3xY9z",
            "redirect_url": "https://example.com/summer?ref=mail",
            "created_at": "2026-11-21T07:49:42.028Z",
        })
    }
}

impl LinkFields {
    /// Names every field of the link, so that a new one does not compile until it is shown or left out here. `state` is
    /// that of the link now.
    pub fn of(link: Link, state: LinkState) -> Self {
        let Link {
            id: _,
            slug,
            target: _,
            data: _,
            webhooks,
            tracked,
            options,
            block_reason,
            owner: _,
            created_at: _,
            updated_at,
            revision,
        } = link;
        let LinkOptions {
            title,
            tags,
            notes,
            archived,
            expires_at,
            not_before,
            fallback,
            redirect_status,
            cache_seconds,
            preview,
            skip_bots,
        } = options;
        Self {
            slug: slug.map(|slug| slug.to_string()),
            webhooks: webhooks.active().map(str::to_owned).collect(),
            tracked,
            title,
            tags,
            notes,
            archived,
            expires_at,
            not_before,
            fallback_url: fallback.map(|url| url.as_str().to_owned()),
            redirect_status: redirect_status.code(),
            cache_seconds,
            preview,
            skip_bots,
            block_reason,
            updated_at,
            revision: revision.0,
            state: state.name(),
        }
    }
}

impl StoredLink {
    fn of(api: &Api, link: Link) -> Result<Self, Problem> {
        let state = api.blocked_hosts.state_of(&link, api.clock.now());
        Ok(Self {
            link: Shortlink::of(api, &link),
            data: RawValue::from_string(link.data.as_json().to_owned()).map_err(|_| Problem::internal())?,
            fields: LinkFields::of(link, state),
        })
    }

    /// The answer with a link's record and its `ETag`.
    pub fn answer(api: &Api, status: StatusCode, link: Link) -> Result<HttpResponse, Problem> {
        let etag = etag(link.revision);
        let mut response = HttpResponseBuilder::new(status).json(Self::of(api, link)?);
        response.headers_mut().insert(ETAG, etag);
        Ok(response)
    }

    /// The example of the API reference.
    pub fn example() -> Value {
        let mut example = Shortlink::example();
        let more = json!({
            "slug": null,
            "data": {"campaign": "summer", "channel": "mail"},
            "webhooks": ["https://hooks.example.com/clicks"],
            "tracked": true,
            "title": "Summer sale",
            "tags": ["summer", "mail"],
            "notes": null,
            "archived": false,
            "expires_at": "2027-09-01T00:00:00.000Z",
            "not_before": null,
            "fallback_url": "https://example.com/over",
            "redirect_status": 302,
            "cache_seconds": 0,
            "preview": true,
            "skip_bots": false,
            "block_reason": null,
            "updated_at": "2026-11-21T07:49:42.028Z",
            "revision": 1,
            "state": "active",
        });
        merge(&mut example, &more);
        example
    }

    /// The example with other values of some fields.
    pub fn example_with(changes: &Value) -> Value {
        let mut example = Self::example();
        merge(&mut example, changes);
        example
    }
}

fn merge(example: &mut Value, changes: &Value) {
    for (name, value) in changes.as_object().into_iter().flatten() {
        example[name] = value.clone();
    }
}

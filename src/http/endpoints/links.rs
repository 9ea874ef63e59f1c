//! `POST /shorten` and `GET /links/{short_id}`.

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, Responder, web};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaFormat, SchemaType, Type};

use crate::domain::calendar::Timestamp;
use crate::domain::key::Scope;
use crate::domain::link::{Link, LinkData, LinkOptions, MAX_WEBHOOKS, NewLink, ShortId, TargetUrl};
use crate::domain::quota::MonthlyLimit;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::domain::webhook_url::{MAX_WEBHOOK_URL_BYTES, WebhookUrl};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::body::{BodyFields, read_json, string};
use crate::http::endpoint::{
    self, Asks, Body, Docs, Endpoint, Example, ResponseDoc, Tag, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::http::times;
use crate::service::links::CreateError;

pub static LINKS: Tag = Tag { name: "Links", description: "Short links, their redirects and their QR codes." };

/// The rate limit of `POST /shorten`.
pub static SHORTEN_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(0), name: "shorten", setting: "shorten_per_minute" };

/// The rate limit of `GET /links/{short_id}`.
pub static LINK_RATE: RateLimit = RateLimit { id: RateLimitId::new(1), name: "link", setting: "link_per_minute" };

const LINKS_CREATED: HeaderName = HeaderName::from_static("x-usage-links-created");
const LINKS_LIMIT: HeaderName = HeaderName::from_static("x-usage-links-limit");

/// A short link.
#[derive(Debug, Serialize, ToSchema)]
pub struct Shortlink {
    /// Id of the link, as in paths.
    #[schema(pattern = "^[0-9A-Za-z]{7}$")]
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

/// A short link with all of its stored fields.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoredLink {
    #[serde(flatten)]
    pub link: Shortlink,
    /// Custom JSON, with key order and number text as sent. Default: `{}`.
    #[schema(value_type = Object)]
    pub data: Box<RawValue>,
    /// URLs that are notified of each hit, as sent.
    pub webhooks: Vec<String>,
    /// Whether hits are counted for analytics.
    pub tracked: bool,
}

/// A new link. A field that is `null` counts as missing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct NewShortlink {
    /// Target of the redirect: an absolute `http` or `https` URL with a host, at most 8,192 bytes of UTF-8, without
    /// white space or control characters, and not at this service itself.
    #[schema(format = "uri", pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\\\\\s][^\\s]*$", max_length = 8192)]
    redirect_url: String,
    /// Custom JSON, delivered to the webhooks with key order and number text as sent. At most 10,240 bytes of UTF-8,
    /// without white space between tokens. Default: `{}`.
    #[schema(additional_properties)]
    data: Option<serde_json::Map<String, serde_json::Value>>,
    #[schema(schema_with = webhook_urls)]
    webhooks: Option<Vec<String>>,
    /// Whether to count hits for analytics. An untracked link redirects, fires its webhooks and counts in the usage
    /// of its key, but its analytics are answered 403.
    #[schema(default = true)]
    tracked: Option<bool>,
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
             name or password. Two URLs that mean the same request are an error, and so are `localhost` and addresses that are not public.",
        ))
        .items(url)
        .max_items(Some(MAX_WEBHOOKS))
        .unique_items(true)
        .build()
}

fn shortlink(api: &Api, link: &Link) -> Shortlink {
    Shortlink {
        short_id: link.name().to_string(),
        short_url: api.base_url.short_url(link.name()),
        redirect_url: link.target.as_str().to_owned(),
        created_at: link.created_at,
    }
}

/// Names every field of the link, so that a new one does not compile until it is shown or left out here.
fn stored_link(api: &Api, link: Link) -> Result<StoredLink, Problem> {
    let shown = shortlink(api, &link);
    let Link { data, webhooks, tracked, .. } = link;
    let data = RawValue::from_string(data.as_json().to_owned()).map_err(|_| Problem::internal())?;
    let webhooks = webhooks.active().map(str::to_owned).collect();
    Ok(StoredLink { link: shown, data, webhooks, tracked })
}

pub static CREATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/shorten",
    asks: Asks::Key(Access { scope: Scope::LinksWrite, rate_limit: &SHORTEN_RATE, or_self: false }),
    handler: || web::route().to(create),
    docs: Docs {
        id: "createShortlink",
        summary: "Create a shortlink",
        description: "\
Creates a short link to `redirect_url`. The service generates its `short_id`, which is unique. The link is on disk before it
is returned.

Uses one link of the key's monthly quota; a request that fails uses none. Above the quota: 403 `link-quota-exceeded`, with
`limit` and `current`.",
        tag: &LINKS,
        parameters: &[],
        body: Some(Body {
            description: "The link to create.",
            shape: shape::<NewShortlink>(),
            required: true,
            examples: &[
                Example {
                    name: "target",
                    summary: "A link",
                    value: || json!({"redirect_url": "https://example.com/summer?ref=mail"}),
                },
                Example {
                    name: "webhooks",
                    summary: "With data and a webhook",
                    value: || {
                        json!({
                            "redirect_url": "https://example.com/summer?ref=mail",
                            "data": {"campaign": "summer", "channel": "mail"},
                            "webhooks": ["https://hooks.example.com/clicks"],
                        })
                    },
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The link is created.",
            content: &[json_body::<Shortlink>(|| {
                json!({
                    "short_id": "aB3xY9z",
                    "short_url": "https://sign.example/aB3xY9z",
                    "redirect_url": "https://example.com/summer?ref=mail",
                    "created_at": "2026-11-21T07:49:42.028Z",
                })
            })],
            headers: &["X-Usage-Links-Created", "X-Usage-Links-Limit"],
            names: Some("short_id"),
        }],
        problems: &[
            problem(ProblemKind::LinkQuotaExceeded),
            problem_like(ProblemKind::Validation, || {
                fault_at("/webhooks/2", "must be an absolute http or https URL with a host")
            }),
        ],
    },
};

pub async fn create(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = BodyFields::parse(&body)?;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let new = new_link(&api, fields)?;
    let key = &caller.key;
    match api.links.create(key, new, caller.links_created).await {
        Ok(created) => {
            let mut response = HttpResponse::Ok().json(shortlink(&api, &created.link));
            if !key.is_root {
                for (name, value) in usage_headers(created.links_created, created.limit) {
                    response.headers_mut().insert(name, value);
                }
            }
            Ok(response)
        }
        Err(error) => {
            let usage = match &error {
                CreateError::QuotaExceeded { limit, current } => {
                    api.metrics.refusals.links_quota.increment(1);
                    Some(usage_headers(*current, Some(*limit)))
                }
                _ => None,
            };
            let with_usage = |problem: Problem, (name, value)| problem.with_header(name, value);
            Err(usage.into_iter().flatten().fold(error.into(), with_usage))
        }
    }
}

fn usage_headers(created: u64, limit: MonthlyLimit) -> [(HeaderName, HeaderValue); 2] {
    let limit = limit.map_or(HeaderValue::from_static("unlimited"), HeaderValue::from);
    [(LINKS_CREATED, HeaderValue::from(created)), (LINKS_LIMIT, limit)]
}

/// Parses the body and reports all of its errors.
fn new_link(api: &Api, mut fields: BodyFields<'_>) -> Result<NewLink, Problem> {
    let target = fields.take_required_string("redirect_url").and_then(|text| {
        let parsed = TargetUrl::parse(&text, &api.base_url);
        parsed.map_err(|error| fields.faults.at("/redirect_url", error.to_string())).ok()
    });
    let data = data(&mut fields);
    let webhooks = webhooks(api, &mut fields);
    let tracked = fields.take_bool("tracked").unwrap_or(true);
    fields.finish()?;
    // `finish` has reported a missing or malformed target.
    let target = target.ok_or_else(Problem::internal)?;
    let webhooks = webhooks.into();
    Ok(NewLink { slug: None, target, data, webhooks, tracked, options: LinkOptions::default() })
}

fn data(fields: &mut BodyFields<'_>) -> LinkData {
    let Some(value) = fields.take("data") else { return LinkData::default() };
    if !value.get().starts_with('{') {
        fields.faults.at("/data", "must be an object");
        return LinkData::default();
    }
    LinkData::from_json_object(value.get()).unwrap_or_else(|error| {
        fields.faults.at("/data", error.to_string());
        LinkData::default()
    })
}

fn webhooks(api: &Api, fields: &mut BodyFields<'_>) -> Vec<String> {
    let Some(values) = fields.take_array("webhooks") else { return Vec::new() };
    if values.len() > MAX_WEBHOOKS {
        fields.faults.at("/webhooks", "must have at most 10 entries");
    }
    let mut urls: Vec<WebhookUrl> = Vec::with_capacity(values.len());
    // Further entries are not checked.
    for (index, value) in values.into_iter().take(MAX_WEBHOOKS).enumerate() {
        let at = format!("/webhooks/{index}");
        let text = match string(value) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(fault) => {
                fields.faults.at(at, fault);
                continue;
            }
        };
        match WebhookUrl::parse(&text, &api.webhook_guard) {
            Err(error) => fields.faults.at(at, error.to_string()),
            Ok(url) if urls.iter().any(|other| other.target() == url.target()) => {
                fields.faults.at(at, "must differ from the others");
            }
            Ok(url) => urls.push(url),
        }
    }
    urls.iter().map(|url| url.as_str().to_owned()).collect()
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}",
    asks: Asks::Key(Access { scope: Scope::LinksRead, rate_limit: &LINK_RATE, or_self: false }),
    handler: || web::route().to(get),
    docs: Docs {
        id: "getShortlink",
        summary: "Get a shortlink",
        description: "\
Returns a link with all of its stored fields to its owner, the key that created it, and to the root key.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The link.",
            content: &[json_body::<StoredLink>(|| {
                json!({
                    "short_id": "aB3xY9z",
                    "short_url": "https://sign.example/aB3xY9z",
                    "redirect_url": "https://example.com/summer?ref=mail",
                    "created_at": "2026-11-21T07:49:42.028Z",
                    "data": {"campaign": "summer", "channel": "mail"},
                    "webhooks": ["https://hooks.example.com/clicks"],
                    "tracked": true,
                })
            })],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation), problem(ProblemKind::NotFound), problem(ProblemKind::NotOwner)],
    },
};

pub async fn get(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    let link = api.links.get(&caller.key, ShortId::parse(&path)).await?;
    Ok(web::Json(stored_link(&api, link)?))
}

//! `POST /shorten` and `GET /links/{short_id}`.

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, Responder, web};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Api;
use super::body::{Fields, read_json};
use super::gate::Caller;
use super::problem::Problem;
use super::query::Query;
use crate::domain::calendar::Timestamp;
use crate::domain::link::{Link, LinkData, ShortId, TargetUrl};
use crate::domain::quota::MonthlyLimit;
use crate::domain::webhook_url::WebhookUrl;
use crate::service::links::{CreateError, NewLink};

/// Webhooks of a link at the most.
const MAX_WEBHOOKS: usize = 10;
const LINKS_CREATED: HeaderName = HeaderName::from_static("x-usage-links-created");
const LINKS_LIMIT: HeaderName = HeaderName::from_static("x-usage-links-limit");

/// A short link.
#[derive(Debug, Serialize)]
pub struct Shortlink {
    pub short_id: String,
    pub short_url: String,
    pub redirect_url: String,
    pub created_at: Timestamp,
}

/// A short link with all that is stored of it.
#[derive(Debug, Serialize)]
pub struct StoredLink {
    #[serde(flatten)]
    pub link: Shortlink,
    pub data: Box<RawValue>,
    pub webhooks: Vec<String>,
    pub tracked: bool,
}

fn shortlink(api: &Api, link: &Link) -> Shortlink {
    Shortlink {
        short_id: link.id.to_string(),
        short_url: api.base_url.short_url(link.id),
        redirect_url: link.target.as_str().to_owned(),
        created_at: link.created_at,
    }
}

/// `POST /shorten`
pub async fn create(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = Fields::parse(&body)?;
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
                CreateError::QuotaExceeded { limit, current } => Some(usage_headers(*current, Some(*limit))),
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

/// Takes the body apart; tells all its faults at once.
fn new_link(api: &Api, mut fields: Fields<'_>) -> Result<NewLink, Problem> {
    let target = fields.take_required_string("redirect_url").and_then(|text| {
        let parsed = TargetUrl::parse(&text, &api.base_url);
        parsed.map_err(|error| fields.faults.at("/redirect_url", error.to_string())).ok()
    });
    let data = data(&mut fields);
    let webhooks = webhooks(api, &mut fields);
    let tracked = fields.take_bool("tracked").unwrap_or(true);
    fields.finish()?;
    // `finish` has told of a target that is missing or malformed.
    let target = target.ok_or_else(Problem::internal)?;
    Ok(NewLink { target, data, webhooks, tracked })
}

fn data(fields: &mut Fields<'_>) -> LinkData {
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

fn webhooks(api: &Api, fields: &mut Fields<'_>) -> Vec<String> {
    let Some(values) = fields.take_array("webhooks") else { return Vec::new() };
    if values.len() > MAX_WEBHOOKS {
        fields.faults.at("/webhooks", "must have at most 10 entries");
        return Vec::new();
    }
    let mut urls: Vec<WebhookUrl> = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let at = format!("/webhooks/{index}");
        let Ok(text) = serde_json::from_str::<String>(value.get()) else {
            fields.faults.at(at, "must be a string");
            continue;
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

/// `GET /links/{short_id}`
pub async fn get(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    let link = api.links.get(&caller.key, ShortId::parse(&path)).await?;
    let data = RawValue::from_string(link.data.as_json().to_owned()).map_err(|_| Problem::internal())?;
    Ok(web::Json(StoredLink { link: shortlink(&api, &link), data, tracked: link.tracked, webhooks: link.webhooks }))
}

//! `GET /{short_id}/webhooks/status`.

use actix_web::{HttpRequest, Responder, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use uuid::Uuid;

use super::Api;
use super::gate::Caller;
use super::problem::Problem;
use super::query::Query;
use crate::domain::calendar::Timestamp;
use crate::domain::link::{Link, ShortId};
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, UrlSummary};
use crate::service::webhook_status::StatusQuery;

/// Deliveries on a page when no `limit` is given.
const DEFAULT_PAGE: usize = 50;

/// How the webhooks of a link fare.
#[derive(Debug, Serialize)]
pub struct WebhookStatusRecord {
    pub short_id: String,
    /// In the order of the link's webhooks; counts are of the last 30 days.
    pub webhooks: Vec<WebhookSummary>,
    /// Newest first, of the last 30 days.
    pub deliveries: Vec<DeliveryRecord>,
    /// Give it as `cursor` for the next page.
    pub next_cursor: Option<String>,
}

/// How one webhook of a link fares.
#[derive(Debug, Serialize)]
pub struct WebhookSummary {
    pub url: String,
    pub pending: u64,
    pub delivered: u64,
    pub failed: u64,
    pub last_attempt_at: Option<Timestamp>,
    pub last_status: Option<u16>,
    pub last_error: Option<String>,
}

/// One delivery: one hit × one URL.
#[derive(Debug, Serialize)]
pub struct DeliveryRecord {
    pub hit_id: Uuid,
    pub url: String,
    pub status: &'static str,
    /// Tries made so far.
    pub attempts: u32,
    pub response_status: Option<u16>,
    pub error: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub next_attempt_at: Option<Timestamp>,
}

fn summary(url: String, summary: UrlSummary) -> WebhookSummary {
    WebhookSummary {
        url,
        pending: summary.pending,
        delivered: summary.delivered,
        failed: summary.failed,
        last_attempt_at: summary.last_attempt_at,
        last_status: summary.last_status,
        last_error: summary.last_error,
    }
}

fn delivery(link: &Link, (id, state): (DeliveryId, DeliveryState)) -> DeliveryRecord {
    DeliveryRecord {
        hit_id: id.hit.id.0,
        url: link.webhooks.get(usize::from(id.url_index)).cloned().unwrap_or_default(),
        status: state.status.name(),
        attempts: state.attempts,
        response_status: state.response_status,
        error: state.error,
        created_at: state.created_at,
        updated_at: state.updated_at,
        next_attempt_at: state.next_attempt_at,
    }
}

/// `GET /{short_id}/webhooks/status`
pub async fn status(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let limit = query.page_limit(DEFAULT_PAGE);
    let after = query.parse("cursor", |text| {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        bytes.and_then(|bytes| DeliveryId::from_bytes(&bytes)).ok_or("must be a next_cursor of this list")
    });
    let parse = |text: &str| DeliveryStatus::parse(text).ok_or("must be pending, delivered or failed");
    let status = query.parse("status", parse);
    query.finish()?;
    let query = StatusQuery { status, after, limit };
    let found = api.webhook_statuses.of(&caller.key, ShortId::parse(&path), query).await?;
    Ok(web::Json(WebhookStatusRecord {
        short_id: found.link.id.to_string(),
        webhooks: found.link.webhooks.iter().cloned().zip(found.urls).map(|(url, of)| summary(url, of)).collect(),
        deliveries: found.deliveries.into_iter().map(|of| delivery(&found.link, of)).collect(),
        next_cursor: found.next.map(|next| URL_SAFE_NO_PAD.encode(next.to_bytes())),
    }))
}

//! `GET /usage`.

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;
use uuid::Uuid;

use super::Api;
use super::gate::Caller;
use super::problem::Problem;
use super::query::Query;

/// What a key has used of its month.
#[derive(Debug, Serialize)]
pub struct UsageRecord {
    pub api_key_id: Uuid,
    /// `YYYY-MM`, UTC.
    pub month: String,
    pub usage: UsageMetrics,
}

/// Each metric of a month.
#[derive(Debug, Serialize)]
pub struct UsageMetrics {
    pub links_created: UsageMetric,
    pub hits_served: UsageMetric,
    pub webhook_deliveries: UsageMetric,
}

/// One metric: used so far, and the limit, `null` where there is none.
#[derive(Debug, Serialize)]
pub struct UsageMetric {
    pub current: u64,
    pub limit: Option<u64>,
}

/// `GET /usage`
pub async fn get(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    let usage = api.usage.of(&caller.key).await?;
    let metric = |current, limit| UsageMetric { current, limit };
    Ok(web::Json(UsageRecord {
        api_key_id: caller.key.id.0,
        month: usage.month.to_string(),
        usage: UsageMetrics {
            links_created: metric(usage.counts.links_created, usage.plan.links_per_month),
            hits_served: metric(usage.counts.hits_served, None),
            webhook_deliveries: metric(usage.counts.webhook_deliveries, usage.plan.webhook_deliveries_per_month),
        },
    }))
}

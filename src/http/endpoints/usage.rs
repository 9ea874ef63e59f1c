//! `GET /usage`.

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::key::Scope;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{self, Docs, Endpoint, Requirement, ResponseDoc, Tag, json_body, problem};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;

static USAGE: Tag = Tag { name: "Usage", description: "Use of a key's monthly quotas." };

/// The rate limit of `GET /usage`.
pub static USAGE_RATE: RateLimit = RateLimit { id: RateLimitId::new(4), name: "usage", setting: "usage_per_minute" };

/// The use of a key's monthly quotas.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageRecord {
    /// The `key_id` of the key that sent the request.
    #[schema(value_type = String, format = "uuid")]
    pub api_key_id: Uuid,
    /// The current month, `YYYY-MM`, UTC.
    #[schema(pattern = "^[0-9]{4}-[0-9]{2}$")]
    pub month: String,
    /// The counts of the month.
    pub usage: UsageMetrics,
}

/// The metrics of a month.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageMetrics {
    /// Created links.
    pub links_created: UsageMetric,
    /// Hits on the links of the key. Never limited.
    pub hits_served: UsageMetric,
    /// Webhook deliveries: one hit for one URL, independent of the number of attempts. Above the limit they fail with
    /// `quota exceeded`.
    pub webhook_deliveries: UsageMetric,
}

/// A metric of a month.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageMetric {
    /// Used so far in this month.
    pub current: u64,
    /// The monthly limit; `null`: unlimited.
    #[schema(required = true)]
    pub limit: Option<u64>,
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/usage",
    requires: Requirement::Key(Access { scope: Scope::UsageRead, rate_limit: &USAGE_RATE, or_self: false }),
    handler: || web::route().to(get),
    docs: Docs {
        id: "getUsage",
        summary: "Usage summary for current month",
        description: "Usage of the caller's key in the current calendar month (UTC).",
        tag: &USAGE,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The counts of the month.",
            content: &[json_body::<UsageRecord>(|| {
                json!({
                    "api_key_id": "019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57",
                    "month": "2026-11",
                    "usage": {
                        "links_created": {"current": 12, "limit": 100},
                        "hits_served": {"current": 4811, "limit": null},
                        "webhook_deliveries": {"current": 240, "limit": 1000},
                    },
                })
            })],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation)],
    },
};

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

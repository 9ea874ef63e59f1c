//! Analytics: `GET /links/{short_id}/analytics` and `…/summary` here, those by range in their own files.

pub mod breakdown;
mod query;
pub mod series;
mod table;

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use self::query::{BOTS_PARAMETER, bots};
use crate::domain::analytics::{Analytics, Labelled};
use crate::domain::calendar::Timestamp;
use crate::domain::key::Scope;
use crate::domain::link::LinkName;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{self, Docs, Endpoint, Requirement, ResponseDoc, Tag, json_body, parameters, problem};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;

pub static ANALYTICS: Tag = Tag {
    name: "Analytics",
    description: "Hits of a link, or of all links of a key: how many, when, from where, by which devices and programs.",
};

/// The rate limit of the full analytics.
pub static ANALYTICS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(2), name: "analytics", setting: "analytics_per_minute" };

/// The rate limit of the summary.
pub static SUMMARY_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(3), name: "summary", setting: "summary_per_minute" };

/// Hits of one day.
#[derive(Debug, Serialize, ToSchema)]
pub struct DailyCount {
    /// `YYYY-MM-DD`, UTC.
    #[schema(format = Date)]
    pub date: String,
    /// Hits on that day.
    pub count: u64,
}

/// Hits under one label.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LabelCount)]
pub struct CountOfLabel {
    /// The label, such as `example.com`, `California, US` or `mobile`.
    pub label: String,
    /// Hits with this label since the link was created.
    pub count: u64,
}

/// Full analytics of a link. Lists are sorted by count, then by label, and count since the link was created.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnalyticsRecord {
    /// All hits of the link: exactly the sum of `devices`.
    pub total_hits: u64,
    /// Hits in the last 7 days: the sum of the last 7 entries of `daily`.
    pub last_7_days: u64,
    /// Hits on each of the last 30 days (UTC), oldest first, ending today, including days without hits.
    #[schema(min_items = 30, max_items = 30)]
    pub daily: Vec<DailyCount>,
    /// Top 10 referring domains, without `www.`. Hits without a referrer are not listed.
    #[schema(max_items = 10)]
    pub referrers: Vec<CountOfLabel>,
    /// Top 10 countries, as ISO 3166 codes: `US`. Without a geo database, this list and the next two are empty.
    #[schema(max_items = 10)]
    pub countries: Vec<CountOfLabel>,
    /// Top 10 regions: `California, US`.
    #[schema(max_items = 10)]
    pub regions: Vec<CountOfLabel>,
    /// Top 10 cities: `San Francisco, California, US`.
    #[schema(max_items = 10)]
    pub cities: Vec<CountOfLabel>,
    /// Hits by kind of device: always all three of `desktop`, `mobile` and `tablet`.
    #[schema(min_items = 3, max_items = 3)]
    pub devices: Vec<CountOfLabel>,
}

/// Lightweight analytics of a link.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnalyticsSummary {
    /// The name of the link, as in paths.
    #[schema(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$")]
    pub short_id: String,
    /// All hits of the link.
    pub total_hits: u64,
    /// Hits in the last 7 days, including today (UTC).
    pub last_7_days: u64,
    /// Hits in the last 30 days, including today (UTC).
    pub last_30_days: u64,
}

impl From<Analytics> for AnalyticsRecord {
    fn from(analytics: Analytics) -> Self {
        let labels =
            |labels: Vec<Labelled>| labels.into_iter().map(|(label, count)| CountOfLabel { label, count }).collect();
        let daily = analytics.daily.into_iter().map(|(day, count)| DailyCount { date: day.to_string(), count });
        Self {
            total_hits: analytics.total_hits,
            last_7_days: analytics.last_7_days,
            daily: daily.collect(),
            referrers: labels(analytics.referrers),
            countries: labels(analytics.countries),
            regions: labels(analytics.regions),
            cities: labels(analytics.cities),
            devices: labels(analytics.devices),
        }
    }
}

pub static FULL: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}/analytics",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &ANALYTICS_RATE, or_self: false }),
    handler: || web::route().to(full),
    docs: Docs {
        id: "getLinkAnalytics",
        summary: "Full link analytics",
        description: "\
Returns the counts of a link's hits to its owner and to the root key. A hit is counted within 2 s. Counts are exact: every
`GET` that is redirected to the link's target is one hit, even if the service crashes right after the answer. A redirect to a
fallback is none. Hits of bots and prefetches are
among them, unless `bots` says otherwise.

For a link that was created with `tracked: false`: 403 `untracked-link`.",
        tag: &ANALYTICS,
        parameters: &[parameters::<ShortIdPath>(), BOTS_PARAMETER],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The analytics.",
            content: &[json_body::<AnalyticsRecord>(|| json!(example()))],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::Validation),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::UntrackedLink),
        ],
    },
};

pub async fn full(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let bots = bots(&mut query);
    query.finish()?;
    let analytics = api.analytics.full(&caller.key, LinkName::parse(&path), bots).await?;
    Ok(web::Json(AnalyticsRecord::from(analytics)))
}

/// The example of the API reference.
fn example() -> AnalyticsRecord {
    let last = Timestamp::parse("2026-11-21T00:00:00Z").unwrap_or_default().day();
    let daily = (0..30).rev().map(|before| {
        let count = if before < 3 { 40 - 13 * u64::from(before) } else { 0 };
        DailyCount { date: last.minus(before).to_string(), count }
    });
    let labels = |counts: &[(&str, u64)]| {
        counts.iter().map(|(label, count)| CountOfLabel { label: (*label).into(), count: *count }).collect()
    };
    AnalyticsRecord {
        total_hits: 81,
        last_7_days: 81,
        daily: daily.collect(),
        referrers: labels(&[("news.example.com", 41), ("example.org", 12)]),
        countries: labels(&[("US", 60), ("DE", 21)]),
        regions: labels(&[("California, US", 44)]),
        cities: labels(&[("San Francisco, California, US", 23)]),
        devices: labels(&[("mobile", 50), ("desktop", 29), ("tablet", 2)]),
    }
}

pub static SUMMARY: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}/analytics/summary",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &SUMMARY_RATE, or_self: false }),
    handler: || web::route().to(summary),
    docs: Docs {
        id: "getLinkAnalyticsSummary",
        summary: "Lightweight analytics summary",
        description: "\
Returns only the totals of a link. The rules are those of the full analytics; the rate limit is separate.",
        tag: &ANALYTICS,
        parameters: &[parameters::<ShortIdPath>(), BOTS_PARAMETER],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The summary.",
            content: &[json_body::<AnalyticsSummary>(
                || json!({"short_id": "aB3xY9z", "total_hits": 81, "last_7_days": 81, "last_30_days": 81}),
            )],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::Validation),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::UntrackedLink),
        ],
    },
};

pub async fn summary(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let bots = bots(&mut query);
    query.finish()?;
    let (name, summary) = api.analytics.summary(&caller.key, LinkName::parse(&path), bots).await?;
    Ok(web::Json(AnalyticsSummary {
        short_id: name.to_string(),
        total_hits: summary.total_hits,
        last_7_days: summary.last_7_days,
        last_30_days: summary.last_30_days,
    }))
}

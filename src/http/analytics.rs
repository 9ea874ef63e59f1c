//! `GET /links/{short_id}/analytics` and `…/summary`.

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;

use super::Api;
use super::gate::Caller;
use super::problem::Problem;
use super::query::Query;
use crate::domain::analytics::{Analytics, Labelled};
use crate::domain::link::ShortId;

/// Hits of one day.
#[derive(Debug, Serialize)]
pub struct DailyCount {
    /// `YYYY-MM-DD`, UTC.
    pub date: String,
    pub count: u64,
}

/// Hits under one label.
#[derive(Debug, Serialize)]
pub struct LabelCount {
    pub label: String,
    pub count: u64,
}

/// Full analytics of a link.
#[derive(Debug, Serialize)]
pub struct AnalyticsRecord {
    pub total_hits: u64,
    pub last_7_days: u64,
    pub daily: Vec<DailyCount>,
    pub referrers: Vec<LabelCount>,
    pub countries: Vec<LabelCount>,
    pub regions: Vec<LabelCount>,
    pub cities: Vec<LabelCount>,
    pub devices: Vec<LabelCount>,
}

/// Lightweight analytics of a link.
#[derive(Debug, Serialize)]
pub struct AnalyticsSummary {
    pub short_id: String,
    pub total_hits: u64,
    pub last_7_days: u64,
    pub last_30_days: u64,
}

impl From<Analytics> for AnalyticsRecord {
    fn from(analytics: Analytics) -> Self {
        let labels =
            |labels: Vec<Labelled>| labels.into_iter().map(|(label, count)| LabelCount { label, count }).collect();
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

/// `GET /links/{short_id}/analytics`
pub async fn full(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    let analytics = api.analytics.full(&caller.key, ShortId::parse(&path)).await?;
    Ok(web::Json(AnalyticsRecord::from(analytics)))
}

/// `GET /links/{short_id}/analytics/summary`
pub async fn summary(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    let (id, summary) = api.analytics.summary(&caller.key, ShortId::parse(&path)).await?;
    Ok(web::Json(AnalyticsSummary {
        short_id: id.to_string(),
        total_hits: summary.total_hits,
        last_7_days: summary.last_7_days,
        last_30_days: summary.last_30_days,
    }))
}

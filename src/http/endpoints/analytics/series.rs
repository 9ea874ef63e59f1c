//! Series: hits by hour, day, week or month.

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::ANALYTICS;
use super::query::{self, BOTS_PARAMETER, TABLE_PARAMETERS};
use super::table::{CountTable, TableFormat};
use crate::domain::calendar::Timestamp;
use crate::domain::key::Scope;
use crate::domain::link::LinkName;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::domain::series::{SeriesAnswer, SeriesParameters};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Parameters, Requirement, ResponseDoc, inline_shape, json_body, parameters, problem,
    shape,
};
use crate::http::openapi::schemas::{IntervalName, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::http::times;
use crate::service::analytics::{HitsOf, SeriesRequest};

/// The rate limit of series, of links and of keys.
pub static SERIES_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(13), name: "series", setting: "series_per_minute" };

/// The range of a series.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct SeriesRangeParameters {
    /// When the series begins: a date in `timezone`, such as `2026-11-01`, or a time, such as `2026-11-01T06:30:00Z`, which
    /// is rounded to a full quarter of an hour: `from` down, `until` up. Default: 29 days before the last day of the series.
    #[param(min_length = 10, example = "2026-11-01", nullable = false)]
    from: Option<String>,
    /// When the series ends, exclusive: as `from`. Default: the end of today in `timezone`.
    #[param(min_length = 10, example = "2026-12-01", nullable = false)]
    until: Option<String>,
    /// The length of the intervals. Weeks begin on Monday.
    #[param(default = "day")]
    interval: Option<IntervalName>,
    /// The time zone of dates, days, weeks and months: a name of the tz database (IANA), such as `Europe/Berlin`.
    #[param(default = "UTC", min_length = 1, max_length = 64, nullable = false)]
    timezone: Option<String>,
}

const RANGE_PARAMETERS: Parameters = parameters::<SeriesRangeParameters>().with_schemas(&[shape::<IntervalName>()]);

/// Hits by interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Series)]
pub struct SeriesRecord {
    /// When the series begins.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub from: Timestamp,
    /// When the series ends, exclusive.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub until: Timestamp,
    /// The length of the intervals.
    #[schema(value_type = IntervalName)]
    pub interval: &'static str,
    /// The time zone of days, weeks and months, as the tz database spells it.
    pub timezone: String,
    /// All hits of the range: the sum of the points.
    pub total: u64,
    /// All intervals in order, also those without hits.
    #[schema(min_items = 1, max_items = 2000)]
    pub points: Vec<SeriesPointRecord>,
}

/// Hits of one interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SeriesPoint)]
pub struct SeriesPointRecord {
    /// When the interval begins. It ends where the next one begins, the last one at `until`.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub start: Timestamp,
    /// Hits in the interval.
    pub count: u64,
}

impl From<SeriesAnswer> for SeriesRecord {
    fn from(answer: SeriesAnswer) -> Self {
        let SeriesAnswer { from, until, interval, timezone, total, points } = answer;
        let points = points.into_iter().map(|point| SeriesPointRecord { start: point.start, count: point.count });
        Self {
            from,
            until,
            interval: interval.name(),
            timezone: timezone.name().to_owned(),
            total,
            points: points.collect(),
        }
    }
}

impl CountTable for SeriesRecord {
    const COLUMNS: [&'static str; 2] = ["start", "count"];

    fn rows(&self) -> impl Iterator<Item = (Cow<'_, str>, u64)> {
        self.points.iter().map(|point| (Cow::Owned(point.start.to_string()), point.count))
    }
}

/// The answer of both endpoints.
const ANSWERS: &[ResponseDoc] = &[ResponseDoc {
    status: 200,
    description: "The series.",
    content: &[
        json_body::<SeriesRecord>(|| {
            json!({
                "from": "2026-11-19T23:00:00.000Z",
                "until": "2026-11-22T23:00:00.000Z",
                "interval": "day",
                "timezone": "Europe/Berlin",
                "total": 81,
                "points": [
                    {"start": "2026-11-19T23:00:00.000Z", "count": 14},
                    {"start": "2026-11-20T23:00:00.000Z", "count": 0},
                    {"start": "2026-11-21T23:00:00.000Z", "count": 67},
                ],
            })
        }),
        Content { media_type: "text/csv", shape: inline_shape::<String>(), example: None },
    ],
    headers: &["Vary"],
    names: None,
}];

pub static OF_LINK: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}/analytics/series",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &SERIES_RATE, or_self: false }),
    handler: || web::route().to(of_link),
    docs: Docs {
        id: "getLinkSeries",
        summary: "Hits of a link by hour, day, week or month",
        description: "\
Returns the hits of a link in each interval of a range, to its owner and to the root key; without parameters of today (UTC)
and the 29 days before, by day. Counts are exact and visible within 2 s, as in the full analytics. A series has at most
2,000 points.

Intervals are those of the clock in `timezone`; the first one begins at `from`, the last one ends at `until`. Days in UTC are
kept as long as the link. Hours, other time zones and times of the day are counted by quarters of an hour, which are kept for
35 days: then `from` must be within the last 35 days. An hour that a clock shows twice is two intervals. Times of the answer
are UTC. In a query, `+` is written `%2B`.

With `format=csv`, or if `Accept` prefers `text/csv`, the answer is CSV (RFC 4180): the line `start,count`, then a line for
each point.

For a link that was created with `tracked: false`: 403 `untracked-link`.",
        tag: &ANALYTICS,
        parameters: &[parameters::<ShortIdPath>(), RANGE_PARAMETERS, BOTS_PARAMETER, TABLE_PARAMETERS],
        body: None,
        answers: ANSWERS,
        problems: &[
            problem(ProblemKind::Validation),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::UntrackedLink),
        ],
    },
};

pub async fn of_link(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    series(&api, &caller, &request, HitsOf::Link(LinkName::parse(&path))).await
}

pub static OF_KEY: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/analytics/series",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &SERIES_RATE, or_self: false }),
    handler: || web::route().to(of_key),
    docs: Docs {
        id: "getSeries",
        summary: "Hits of all links by hour, day, week or month",
        description: "\
Returns the hits of all tracked links that the calling key has created, in each interval of a range. Parameters and answer are
those of the series of a link. Hits of links that were deleted since are counted, too; those that were counted by release 0.1.0
are not. The root key gets those of its own links.",
        tag: &ANALYTICS,
        parameters: &[RANGE_PARAMETERS, BOTS_PARAMETER, TABLE_PARAMETERS],
        body: None,
        answers: ANSWERS,
        problems: &[problem(ProblemKind::Validation)],
    },
};

pub async fn of_key(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    series(&api, &caller, &request, HitsOf::Caller).await
}

async fn series(api: &Api, caller: &Caller, request: &HttpRequest, of: HitsOf) -> Result<HttpResponse, Problem> {
    let (asked, format) = read(api, request)?;
    let answer = api.analytics.series(&caller.key, of, asked).await?;
    Ok(format.answer(&SeriesRecord::from(answer)))
}

/// Takes the query apart.
fn read(api: &Api, request: &HttpRequest) -> Result<(SeriesRequest, TableFormat), Problem> {
    let mut query = Query::of(request);
    let [from, until, interval, timezone] = ["from", "until", "interval", "timezone"].map(|name| query.take(name));
    let range = api.analytics.series_range(SeriesParameters {
        from: from.as_deref(),
        until: until.as_deref(),
        interval: interval.as_deref(),
        timezone: timezone.as_deref(),
    });
    let range = query::range(&mut query, range);
    let (bots, format) = (query::bots(&mut query), TableFormat::read(&mut query, request));
    query.finish()?;
    // What is missing now had a fault.
    let range = range.ok_or_else(Problem::internal)?;
    Ok((SeriesRequest { range, bots }, format))
}

//! Breakdowns: hits by one of their properties.

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::ANALYTICS;
use super::query::{self, BOTS_PARAMETER, TABLE_PARAMETERS};
use super::table::{CountTable, TableFormat};
use crate::domain::breakdown::{BreakdownAnswer, Dimension};
use crate::domain::key::Scope;
use crate::domain::link::LinkName;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Parameters, Requirement, ResponseDoc, inline_shape, json_body, parameters, problem,
    shape,
};
use crate::http::openapi::schemas::{DimensionName, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::analytics::{BreakdownRequest, HitsOf};

/// The rate limit of breakdowns, of links and of keys.
pub static BREAKDOWN_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(14), name: "breakdown", setting: "breakdown_per_minute" };

/// The default number of labels.
const DEFAULT_LABELS: usize = 10;
/// The most labels of an answer: as many as a list of a month has.
const MOST_LABELS: usize = 1_000;

/// The dimension and the range of a breakdown.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct BreakdownParameters {
    /// The property by which hits are counted.
    #[param(example = "referrer")]
    dimension: DimensionName,
    /// The first day, UTC: one of those whose hits are kept by day (the last 90, unless the operator has set another number), or the first of a month. Default: since the first hit.
    #[param(min_length = 10, example = "2026-11-01", nullable = false)]
    from: Option<String>,
    /// The day after the last one, UTC: one of these days, tomorrow, or the first of a month. Default: until now.
    #[param(min_length = 10, example = "2026-12-01", nullable = false)]
    until: Option<String>,
    /// Maximum number of labels.
    #[param(minimum = 1, maximum = 1000, default = 10)]
    limit: Option<u16>,
}

const OWN_PARAMETERS: Parameters = parameters::<BreakdownParameters>().with_schemas(&[shape::<DimensionName>()]);

/// Hits by one property: `total` is exactly the sum of all other numbers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breakdown)]
pub struct BreakdownRecord {
    /// The property by which hits are counted.
    #[schema(value_type = DimensionName)]
    pub dimension: &'static str,
    /// All hits of the range.
    pub total: u64,
    /// Hits with labels that were not kept, because there were too many different ones.
    pub other: u64,
    /// Hits without a label, such as those without a referrer, and those from before this property was noted.
    pub none: u64,
    /// Hits of visitors who want no tracking, where the operator respects their signal.
    pub private: u64,
    /// Hits with labels beyond `limit`.
    pub more: u64,
    /// By count, then by label.
    #[schema(max_items = 1000)]
    pub labels: Vec<BreakdownLabel>,
}

/// Hits under one label of a breakdown.
#[derive(Debug, Serialize, ToSchema)]
pub struct BreakdownLabel {
    /// The label; of at most 128 bytes, longer ones are cut.
    pub label: String,
    /// Hits with this label in the range.
    #[schema(minimum = 1)]
    pub count: u64,
}

impl From<BreakdownAnswer> for BreakdownRecord {
    fn from(answer: BreakdownAnswer) -> Self {
        let BreakdownAnswer { dimension, total, other, none, private, more, labels } = answer;
        let labels = labels.into_iter().map(|(label, count)| BreakdownLabel { label, count });
        Self { dimension: dimension.name(), total, other, none, private, more, labels: labels.collect() }
    }
}

impl CountTable for BreakdownRecord {
    const COLUMNS: [&'static str; 2] = ["label", "count"];

    fn rows(&self) -> impl Iterator<Item = (Cow<'_, str>, u64)> {
        let labels = self.labels.iter().map(|labelled| (Cow::Borrowed(labelled.label.as_str()), labelled.count));
        let others =
            [("(other)", self.other), ("(none)", self.none), ("(private)", self.private), ("(more)", self.more)];
        labels.chain(others.map(|(name, count)| (Cow::Borrowed(name), count)))
    }
}

/// The answer of both endpoints.
const ANSWERS: &[ResponseDoc] = &[ResponseDoc {
    status: 200,
    description: "The breakdown.",
    content: &[
        json_body::<BreakdownRecord>(|| {
            json!({
                "dimension": "referrer",
                "total": 81,
                "other": 0,
                "none": 25,
                "private": 3,
                "more": 0,
                "labels": [{"label": "news.example.com", "count": 41}, {"label": "example.org", "count": 12}],
            })
        }),
        Content { media_type: "text/csv", shape: inline_shape::<String>(), example: None },
    ],
    headers: &["Vary"],
    names: None,
}];

pub static OF_LINK: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}/analytics/breakdown",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &BREAKDOWN_RATE, or_self: false }),
    handler: || web::route().to(of_link),
    docs: Docs {
        id: "getLinkBreakdown",
        summary: "Hits of a link by a property",
        description: "\
Returns the hits of a link by one of their properties, to its owner and to the root key; without a range those since the first
hit. `total` is exactly the sum of the labels and of `other`, `none`, `private` and `more`. Counts are exact and visible within 2 s, as in the full analytics.

| dimension | labels |
|---|---|
| `referrer` | referring domains, without `www.` |
| `country`, `region`, `city` | `US`, `California, US`, `San Francisco, California, US` |
| `device` | `desktop`, `mobile`, `tablet` |
| `browser` | `chrome`, `safari`, `firefox`, `edge`, `opera`, `samsung`, `other` |
| `os` | `ios`, `android`, `windows`, `macos`, `linux`, `chromeos`, `other` |
| `language` | the visitor's first one: `de`, `pt-br` |
| `utm_source`, `utm_medium`, `utm_campaign`, `utm_term`, `utm_content` | values of the parameters, of the request or else of the target |
| `destination` | `default` |
| `bot` | `prefetch`, `preview`, `crawler`, `monitor`, `scanner`, `tool`; hits of people have `none` |

A day of UTC can be an end of a range for 90 days (setting `analytics.sheet_days`), and the first of a month for ever. A link
keeps up to 1,000 labels of each property and month, and up to 200 of a single day; further ones are `other`.

With `format=csv`, or if `Accept` prefers `text/csv`, the answer is CSV (RFC 4180): the line `label,count`, a line for each
label, and, always last, four lines for `(other)`, `(none)`, `(private)` and `(more)`. A label that begins with `=`, `+`, `-`, `@` or a tab
gets a `'` in front, so that no spreadsheet takes it for a formula.

For a link that was created with `tracked: false`: 403 `untracked-link`.",
        tag: &ANALYTICS,
        parameters: &[parameters::<ShortIdPath>(), OWN_PARAMETERS, BOTS_PARAMETER, TABLE_PARAMETERS],
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
    breakdown(&api, &caller, &request, HitsOf::Link(LinkName::parse(&path))).await
}

pub static OF_KEY: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/analytics/breakdown",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &BREAKDOWN_RATE, or_self: false }),
    handler: || web::route().to(of_key),
    docs: Docs {
        id: "getBreakdown",
        summary: "Hits of all links by a property",
        description: "\
Returns the hits of all tracked links that the calling key has created, by one of their properties. Parameters and answer are
those of the breakdown of a link. Hits of links that were deleted since are counted, too; those that were counted by release
0.1.0 are not. The root key gets those of its own links.",
        tag: &ANALYTICS,
        parameters: &[OWN_PARAMETERS, BOTS_PARAMETER, TABLE_PARAMETERS],
        body: None,
        answers: ANSWERS,
        problems: &[problem(ProblemKind::Validation)],
    },
};

pub async fn of_key(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    breakdown(&api, &caller, &request, HitsOf::Caller).await
}

async fn breakdown(api: &Api, caller: &Caller, request: &HttpRequest, of: HitsOf) -> Result<HttpResponse, Problem> {
    let (asked, format) = read(api, request)?;
    let answer = api.analytics.breakdown(&caller.key, of, asked).await?;
    Ok(format.answer(&BreakdownRecord::from(answer)))
}

/// Takes the query apart.
fn read(api: &Api, request: &HttpRequest) -> Result<(BreakdownRequest, TableFormat), Problem> {
    let mut query = Query::of(request);
    let dimension = query.take("dimension").as_deref().and_then(Dimension::parse);
    if dimension.is_none() {
        let names = Dimension::ALL.map(Dimension::name).join(", ");
        query.faults.parameter("dimension", format!("must be one of {names}"));
    }
    let [from, until] = ["from", "until"].map(|name| query.take(name));
    let range = query::range(&mut query, api.analytics.breakdown_range(from.as_deref(), until.as_deref()));
    let limit = query.parse("limit", |text| {
        let number = text.parse().ok().filter(|limit| (1..=MOST_LABELS).contains(limit));
        number.ok_or("must be an integer from 1 to 1000")
    });
    let (bots, format) = (query::bots(&mut query), TableFormat::read(&mut query, request));
    query.finish()?;
    // What is missing now had a fault.
    let (Some(dimension), Some(range)) = (dimension, range) else { return Err(Problem::internal()) };
    Ok((BreakdownRequest { dimension, range, bots, limit: limit.unwrap_or(DEFAULT_LABELS) }, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_ends_with_the_hits_that_no_label_has() {
        let answer = BreakdownAnswer {
            dimension: Dimension::City,
            total: 21,
            other: 1,
            none: 2,
            private: 3,
            more: 4,
            labels: vec![("Paris, Île-de-France, FR".into(), 6), ("=1+1".into(), 4), ("(none)".into(), 1)],
        };
        let csv = BreakdownRecord::from(answer).to_csv();
        let expected = "label,count\r\n\"Paris, Île-de-France, FR\",6\r\n'=1+1,4\r\n(none),1\r\n\
                        (other),1\r\n(none),2\r\n(private),3\r\n(more),4\r\n";
        assert_eq!(csv, expected);
    }
}

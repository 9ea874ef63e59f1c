//! `GET /exports/links`: all links of a list in one answer, which is made while it is sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use utoipa::IntoParams;

use super::links::LINKS as LINKS_TAG;
use super::links::list::{FILTER_PARAMETERS, LinkOfList, RequestedList};
use crate::domain::key::{ApiKey, Scope};
use crate::domain::link::ListPlace;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::accept::prefers_csv;
use crate::http::auth::{Access, Caller, presented_secret};
use crate::http::csv;
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Requirement, ResponseDoc, inline_shape, parameters, problem, shape,
};
use crate::http::openapi::schemas::ExportFormatName;
use crate::http::pages::BY_ACCEPT;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::http::streamed::{head_of_streamed, streamed};
use crate::service::authentication::{AuthenticationError, Trust};
use crate::service::exports::ExportSlot;
use crate::service::link_lists::{ListRequest, ListedPage};
use crate::store::StoreError;

/// The rate limit of exports.
pub static EXPORTS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(11), name: "exports", setting: "exports_per_minute" };

/// Links in one part of the answer. The longest have some 40 KiB each.
const PART: usize = 100;
/// For how long a part is tried again if the store does not give it.
const RETRIED_FOR: Duration = Duration::from_secs(30);
const RETRIED_AFTER: Duration = Duration::from_millis(500);
/// `Retry-After` where too many exports are under way, in seconds.
const LATER_SECONDS: u32 = 10;
/// The first line of a CSV.
const COLUMNS: [&str; 10] = [
    "short_id",
    "short_url",
    "redirect_url",
    "title",
    "tags",
    "created_at",
    "updated_at",
    "expires_at",
    "archived",
    "total_hits",
];

/// The format of an export.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct ExportParameters {
    /// The format. Default: `csv` if `Accept` prefers `text/csv`, else `ndjson`.
    format: Option<ExportFormatName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportFormat {
    Ndjson,
    Csv,
}

pub static LINKS: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/exports/links",
    requires: Requirement::Key(Access { scope: Scope::LinksRead, rate_limit: &EXPORTS_RATE, or_self: false }),
    handler: || web::route().to(links),
    docs: Docs {
        id: "exportLinks",
        summary: "Export links",
        description: "\
All links that `GET /links` would list with the same filters, in the same order, in one answer: a line of JSON for each
link (`application/x-ndjson`), as in the list, or CSV (RFC 4180) with a header line and the columns `short_id`,
`short_url`, `redirect_url`, `title`, `tags` (separated by commas), `created_at`, `updated_at`, `expires_at`, `archived`
and `total_hits` (empty for an untracked link). A text of the CSV that begins with `=`, `+`, `-`, `@` or a tab gets a
`'` in front, so that no spreadsheet takes it for a formula.

The answer is sent while it is made. It ends early, without the end of its chunked encoding, if the service can't read
all links or stops, or if the key is revoked or expires. A key may have 4 exports at once on a
node, and all keys together 32; one more is answered 503. The root key may have as many as there is room for.",
        tag: &LINKS_TAG,
        parameters: &[parameters::<ExportParameters>().with_schemas(&[shape::<ExportFormatName>()]), FILTER_PARAMETERS],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The links.",
            content: &[
                Content { media_type: "application/x-ndjson", shape: inline_shape::<String>(), example: None },
                Content { media_type: "text/csv", shape: inline_shape::<String>(), example: None },
            ],
            headers: &["Vary"],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation), problem(ProblemKind::NotFound)],
    },
};

pub async fn links(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request);
    let format = query.parse("format", |text| match text {
        "ndjson" => Ok(ExportFormat::Ndjson),
        "csv" => Ok(ExportFormat::Csv),
        _ => Err("must be ndjson or csv"),
    });
    let requested = RequestedList::read(&api, &caller, query, None)?;
    let format =
        format.unwrap_or_else(|| if prefers_csv(request.headers()) { ExportFormat::Csv } else { ExportFormat::Ndjson });
    let slot = api.link_lists.exports.enter(&caller.key).ok_or_else(too_many_exports)?;
    let list = requested.list(&api, &caller).await?;
    let secret = presented_secret(request.headers()).unwrap_or_default().to_vec();
    let (reader, with_hits) = (caller.key, requested.with_hits);
    let export = LinkExport { api, reader, list, format, with_hits, secret, _slot: slot };
    // A failure of the first part is answered as such.
    let first = export.page(None).await?;
    let media_type = match format {
        ExportFormat::Ndjson => "application/x-ndjson",
        ExportFormat::Csv => "text/csv; charset=utf-8",
    };
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, media_type));
    response.insert_header((VARY, BY_ACCEPT));
    if request.method() == Method::HEAD {
        // A body that is not sent would be made to its end all the same.
        return Ok(head_of_streamed(response));
    }
    Ok(streamed(&request, response, export.parts(first)))
}

/// Not 429: the request has taken its place in the rate limit, and nobody knows when an export ends.
fn too_many_exports() -> Problem {
    let detail = "Too many exports are under way at once; retry when one of them has ended.";
    Problem::new(ProblemKind::Unavailable, detail).with_header(RETRY_AFTER, HeaderValue::from(LATER_SECONDS))
}

/// Why an export ends before its end.
#[derive(Debug, Error)]
enum ExportCut {
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    #[error("its key is revoked or expired, or may not read links any more")]
    KeyEnded,
    #[error("the service stops")]
    Stopping,
}

/// An export under way.
struct LinkExport {
    api: web::Data<Api>,
    /// The key that has asked for it.
    reader: Arc<ApiKey>,
    list: ListRequest,
    format: ExportFormat,
    with_hits: bool,
    /// The secret that the client has sent.
    secret: Vec<u8>,
    _slot: ExportSlot,
}

impl LinkExport {
    async fn page(&self, after: Option<ListPlace>) -> Result<ListedPage, StoreError> {
        let with_hits = self.with_hits || self.format == ExportFormat::Csv;
        let page = self.api.link_lists.page(&self.list, after, PART, with_hits).await?;
        self.api.metrics.link_lists.count(page.examined, page.links.len());
        Ok(page)
    }

    /// The page after a place, if the export may go on.
    async fn page_after(&self, place: ListPlace) -> Result<ListedPage, ExportCut> {
        if !self.api.readiness.is_serving() {
            return Err(ExportCut::Stopping);
        }
        match self.api.authentication.authenticate(&self.secret, Trust::AtOnce).await {
            Ok(key) if key.scopes.contains(Scope::LinksRead) => {}
            Ok(_) | Err(AuthenticationError::Unauthorized) => return Err(ExportCut::KeyEnded),
            Err(AuthenticationError::Store(error)) => return Err(error.into()),
        }
        self.page(Some(place)).await.map_err(|error| Arc::new(error).into())
    }

    /// As [`page_after`](Self::page_after), again and again while the store is out of reach, for some time.
    async fn next_page(&self, place: ListPlace) -> Result<ListedPage, ExportCut> {
        let until = Instant::now() + RETRIED_FOR;
        loop {
            let error = match self.page_after(place).await {
                Err(ExportCut::Store(error)) => error,
                done => return done,
            };
            if matches!(*error, StoreError::Corrupt { .. }) || Instant::now() >= until {
                return Err(error.into());
            }
            tracing::debug!(%error, "can't read the next links of an export: retrying");
            sleep(RETRIED_AFTER).await;
        }
    }

    /// The parts of the answer. Each is read when the one before is sent.
    fn parts(self, first: ListedPage) -> impl Stream<Item = Result<Bytes, io::Error>> {
        let head = match self.format {
            ExportFormat::Ndjson => String::new(),
            ExportFormat::Csv => {
                let mut line = String::new();
                csv::line(&mut line, COLUMNS);
                line
            }
        };
        let next = first.next;
        let begin = head + &self.text_of(first);
        let rest = stream::try_unfold((self, next), |(export, place)| async move {
            let Some(place) = place else { return Ok(None) };
            let page = export.next_page(place).await.map_err(|error| {
                // The client sees only that the answer is cut off.
                tracing::warn!(%error, "an export of links was cut off");
                io::Error::other(error)
            })?;
            let next = page.next;
            let text = export.text_of(page);
            Ok(Some((Bytes::from(text), (export, next))))
        });
        let parts = stream::iter([Ok(Bytes::from(begin))]).chain(rest);
        // An empty part would end the answer.
        parts.filter(|part| std::future::ready(part.as_ref().map_or(true, |part| !part.is_empty())))
    }

    fn text_of(&self, page: ListedPage) -> String {
        let mut text = String::new();
        for listed in page.links {
            let total = listed.hits.as_ref().map(|hits| hits.total.to_string());
            let record = LinkOfList::of(&self.api, &self.reader, listed, self.with_hits);
            match self.format {
                ExportFormat::Ndjson => {
                    // A record has no key that is not a text.
                    text.push_str(&serde_json::to_string(&record).unwrap_or_default());
                    text.push('\n');
                }
                ExportFormat::Csv => csv_line(&mut text, &record, total.as_deref()),
            }
        }
        text
    }
}

fn csv_line(to: &mut String, record: &LinkOfList, total: Option<&str>) {
    let LinkOfList { link, fields, .. } = record;
    let expires_at = fields.expires_at.map(|at| at.to_string());
    csv::line(
        to,
        [
            link.short_id.as_str(),
            &link.short_url,
            &link.redirect_url,
            fields.title.as_deref().unwrap_or_default(),
            &fields.tags.join(","),
            &link.created_at.to_string(),
            &fields.updated_at.to_string(),
            expires_at.as_deref().unwrap_or_default(),
            if fields.archived { "true" } else { "false" },
            total.unwrap_or_default(),
        ],
    );
}

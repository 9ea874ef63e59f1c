//! `GET /{short_id}+`.

use actix_web::http::header::{CACHE_CONTROL, VARY};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::links::LINKS;
use super::qr::rendered;
use crate::cache::link::RedirectOutcome;
use crate::domain::link::LinkName;
use crate::domain::qr::{Colour, Light, QrFormat, QrOptions, Scale};
use crate::http::Api;
use crate::http::accept::prefers_html;
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Requirement, ResponseDoc, inline_shape, json_body, parameters, problem,
};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::pages::{BY_ACCEPT, NO_STORE, NOINDEX, Values, X_ROBOTS_TAG};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::redirect;

/// Where a link leads.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Preview)]
pub struct PreviewRecord<'a> {
    /// Id of the link.
    #[schema(pattern = "^[0-9A-Za-z_-]{1,64}$")]
    short_id: &'a str,
    /// The short link.
    #[schema(format = "uri")]
    short_url: &'a str,
    /// Target of the link.
    #[schema(format = "uri")]
    redirect_url: &'a str,
    /// Title of the link; `null` if it has none.
    #[schema(required = true)]
    title: Option<&'a str>,
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/{short_id}+",
    requires: Requirement::RedirectLimit,
    handler: || web::route().to(get),
    docs: Docs {
        id: "getPreview",
        summary: "Preview a link",
        description: "\
Shows where a link leads, without following it: the short link with a `+` behind it. Needs no key, ignores the query, and is not \
a hit. It counts against the client's limit of redirects.

If `Accept` prefers `text/html` to JSON, the answer is a page with title, target and QR code, else JSON. Errors are a page or a \
problem document in the same way.

A link with `preview: false` has no preview (404). An expired or blocked link has none either (410), nor of one before its
`not_before` (404).",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "Where the link leads.",
            content: &[
                json_body::<PreviewRecord<'static>>(|| {
                    json!({
                        "short_id": "aB3xY9z",
                        "short_url": "https://sign.example/aB3xY9z",
                        "redirect_url": "https://example.com/summer?ref=mail",
                        "title": null,
                    })
                }),
                Content { media_type: "text/html", shape: inline_shape::<String>(), example: None },
            ],
            headers: &["Cache-Control", "Vary", "X-Robots-Tag"],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::LinkExpired),
            problem(ProblemKind::LinkBlocked),
            problem(ProblemKind::RateLimited),
            problem(ProblemKind::Unavailable),
        ],
    },
};

async fn get(api: web::Data<Api>, request: HttpRequest, path: web::Path<String>) -> HttpResponse {
    match show(&api, &request, &path).await {
        Ok(response) => response,
        Err(problem) => redirect::error(&api, request.head(), &problem).into(),
    }
}

async fn show(api: &Api, request: &HttpRequest, name: &str) -> Result<HttpResponse, Problem> {
    let head = request.head();
    if let Err(retry_after) = api.redirects.admit(api.redirects.place_of(api.client_address(head))) {
        api.metrics.redirects.preview_limited();
        api.notices.check_refused(head.peer_addr, &head.headers, &api.trusted_proxies);
        return Err(retry_after.into());
    }
    let name = LinkName::parse(name).ok_or_else(Problem::no_such_link)?;
    let known = match api.redirects.cached(&name) {
        Some(entry) => entry,
        None => api.redirects.load(&name).await?,
    };
    let link = known.filter(|link| link.has_preview).ok_or_else(Problem::no_such_link)?;
    match link.redirect_at(api.clock.now()) {
        RedirectOutcome::Target => {}
        RedirectOutcome::Scheduled => return Err(Problem::no_such_link()),
        RedirectOutcome::Expired(_) => return Err(Problem::link_expired()),
        RedirectOutcome::Blocked => return Err(Problem::link_blocked()),
    }
    let target = link.head.location.to_str().map_err(|_| Problem::internal())?;
    // Redirects need no title, so it is not in memory. Without the store, the page has none.
    let stored = api.links.find(name).await.ok().flatten().filter(|stored| stored.revision.0 == link.revision);
    let title = stored.as_ref().and_then(|link| link.options.title.as_deref());
    let short_url = api.base_url.short_url(name);
    let mut response = if prefers_html(&head.headers) {
        let qr = qr_code(&short_url)?;
        api.pages.preview(&Values {
            title: title.unwrap_or(&short_url),
            target,
            short_url: &short_url,
            qr: &qr,
            ..Values::default()
        })
    } else {
        let record = PreviewRecord { short_id: name.as_str(), short_url: &short_url, redirect_url: target, title };
        let mut response = HttpResponse::Ok().json(record);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        if api.pages.noindex {
            response.headers_mut().insert(X_ROBOTS_TAG, NOINDEX);
        }
        response
    };
    response.headers_mut().insert(VARY, BY_ACCEPT);
    Ok(response)
}

/// An `svg` element.
fn qr_code(content: &str) -> Result<String, Problem> {
    // Black and white are far apart, and SVG is text.
    let options = QrOptions::new(QrFormat::Svg, Scale::DEFAULT, Colour::default(), Light::default());
    let image = rendered(content, &options.map_err(|_| Problem::internal())?)?;
    String::from_utf8(image.bytes).map_err(|_| Problem::internal())
}

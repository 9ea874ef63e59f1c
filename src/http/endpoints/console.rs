//! `GET /console`: the console's page, and its assets.

use actix_web::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpRequest, HttpResponse, web};

use crate::http::Api;
use crate::http::conditions::is_known_to_client;
use crate::http::console::{ConsoleFile, ConsoleFiles};
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Requirement, ResponseDoc, Tag, inline_shape, parameters, problem,
};
use crate::http::openapi::schemas::{ConsoleAssetPath, Revalidation};
use crate::http::problem::{Problem, ProblemKind};

static CONSOLE: Tag = Tag { name: "Console", description: "A page for people with an API key." };

/// No inline script or style, nothing from elsewhere, no markup from text.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Browsers ask again each time, with the `ETag`.
const REVALIDATED: HeaderValue = HeaderValue::from_static("no-cache");
/// The path of an asset changes with its content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Relative, so that it is right below the path of a proxy.
const WITHOUT_SLASH: HeaderValue = HeaderValue::from_static("../console");

pub static PAGE: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/console",
    requires: Requirement::Nothing,
    handler: || web::route().to(page),
    docs: Docs {
        id: "getConsole",
        summary: "Console",
        description: "A page for people: it signs in with an API key, and uses this API. 404 if the operator has set \
        `console.enabled = false`. Ignores the query.",
        tag: &CONSOLE,
        parameters: &[parameters::<Revalidation>()],
        body: None,
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The page.",
                content: &[Content { media_type: "text/html", shape: inline_shape::<String>(), example: None }],
                headers: &["Cache-Control", "Content-Security-Policy", "ETag", "Vary"],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 304,
                description: "The client's copy of the page is current.",
                headers: &["Cache-Control", "Content-Security-Policy", "ETag", "Vary"],
                ..ResponseDoc::NONE
            },
        ],
        problems: &[problem(ProblemKind::NotFound)],
    },
};

async fn page(api: web::Data<Api>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let (file, etag) = enabled(&api)?.page();
    let mut response =
        if is_known_to_client(request.headers(), etag.to_str().unwrap_or_default().trim_start_matches("W/")) {
            with_headers(HttpResponse::NotModified().finish(), REVALIDATED)
        } else {
            answer(&request, file, REVALIDATED)
        };
    let headers = response.headers_mut();
    headers.insert(ETAG, etag.clone());
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    Ok(response)
}

pub static SLASH: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/console/",
    requires: Requirement::Nothing,
    handler: || web::route().to(slash),
    docs: Docs {
        id: "getConsoleSlash",
        summary: "Console, with a slash",
        description: "Redirects to the console, whose addresses are relative to its path without a slash. Ignores the query.",
        tag: &CONSOLE,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 308,
            description: "A redirect to `/console`.",
            headers: &["Location"],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::NotFound)],
    },
};

async fn slash(api: web::Data<Api>) -> Result<HttpResponse, Problem> {
    enabled(&api)?;
    Ok(HttpResponse::PermanentRedirect().insert_header((LOCATION, WITHOUT_SLASH)).finish())
}

pub static ASSET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/console/{version}/{file}",
    requires: Requirement::Nothing,
    handler: || web::route().to(asset),
    docs: Docs {
        id: "getConsoleAsset",
        summary: "File of the console",
        description: "A style sheet, script or image of the console. The page names their paths, which change with their content. \
        Ignores the query.",
        tag: &CONSOLE,
        parameters: &[parameters::<ConsoleAssetPath>()],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The file.",
            content: &[
                Content { media_type: "text/javascript", shape: inline_shape::<String>(), example: None },
                Content { media_type: "text/css", shape: inline_shape::<String>(), example: None },
                Content { media_type: "image/svg+xml", shape: inline_shape::<String>(), example: None },
            ],
            headers: &["Cache-Control", "Vary"],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::NotFound)],
    },
};

async fn asset(
    api: web::Data<Api>,
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let file = enabled(&api)?.asset(&path.0, &path.1).ok_or_else(Problem::no_such_page)?;
    Ok(answer(&request, file, FOREVER))
}

fn enabled(api: &Api) -> Result<&ConsoleFiles, Problem> {
    api.console.as_ref().ok_or_else(Problem::no_such_page)
}

fn answer(request: &HttpRequest, file: &ConsoleFile, caching: HeaderValue) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, file.content_type));
    let response = if takes_gzip(request) {
        response.insert_header((CONTENT_ENCODING, "gzip")).body(file.gzip.clone())
    } else {
        response.body(file.text.clone())
    };
    with_headers(response, caching)
}

fn with_headers(mut response: HttpResponse, caching: HeaderValue) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, caching);
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whether the client names gzip as an encoding that it takes.
fn takes_gzip(request: &HttpRequest) -> bool {
    let lists = request.headers().get_all(ACCEPT_ENCODING).filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let is_refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

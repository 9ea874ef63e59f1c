//! Pages for people: what a browser gets where a link leads nowhere, and the preview of a link.

mod template;

use actix_http::Response;
use actix_http::body::BoxBody;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use bytes::Bytes;

pub use self::template::{Template, TemplateError, Values};
use super::problem::{Problem, ProblemKind};
use crate::cache::redirect_head::RedirectHead;
use crate::domain::link::BaseUrl;

pub const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
pub const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");
/// The `Vary` of what is negotiated.
pub const BY_ACCEPT: HeaderValue = HeaderValue::from_static("Accept");
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub const NOINDEX: HeaderValue = HeaderValue::from_static("noindex");

/// Longest name of a link. A longer name in a path is not shown on a page.
const MAX_NAME_BYTES: usize = 64;

/// Where requests are redirected that have no link. `None`: nowhere.
#[derive(Clone, Debug, Default)]
pub struct Fallbacks {
    /// `GET /` of those that prefer HTML.
    pub root: Option<RedirectHead>,
    /// `GET /{short_id}` of unknown links.
    pub not_found: Option<RedirectHead>,
    /// `GET /{short_id}` of expired links that have no fallback of their own.
    pub expired: Option<RedirectHead>,
}

/// The pages that an operator can replace.
#[derive(Clone, Debug, Default)]
pub struct OperatorPages {
    pub not_found: Option<Template>,
    pub gone: Option<Template>,
    pub blocked: Option<Template>,
    pub preview: Option<Template>,
    /// `robots.txt`.
    pub robots: Option<Bytes>,
}

/// All pages, as they are configured.
pub struct Pages {
    base_url: BaseUrl,
    /// Whether redirects, pages and errors have `X-Robots-Tag: noindex`.
    pub noindex: bool,
    /// As the operator has set it.
    pub robots: Option<Bytes>,
    not_found: Template,
    /// Of links that lead nowhere any more.
    pub gone: Template,
    /// Of links that the operator has blocked.
    pub blocked: Template,
    limited: Template,
    unavailable: Template,
    failed: Template,
    preview: Template,
}

impl Pages {
    /// The pages of the operator, and the service's own for all others.
    ///
    /// # Errors
    /// Never: the service's own pages are checked by a unit test.
    pub fn new(base_url: BaseUrl, noindex: bool, operator: OperatorPages) -> Result<Self, TemplateError> {
        let OperatorPages { not_found, gone, blocked, preview, robots } = operator;
        let or_own = |page: Option<Template>, own: fn() -> Result<Template, TemplateError>| page.map_or_else(own, Ok);
        Ok(Self {
            base_url,
            noindex,
            robots,
            not_found: or_own(not_found, || {
                own_error(
                    "Link not found",
                    "There is no link at this address. Check that the address is complete and spelled correctly; \
                     upper and lower case letters are different.",
                )
            })?,
            gone: or_own(gone, || {
                own_error(
                    "Link expired",
                    "This link no longer leads anywhere. Ask whoever gave it to you for a new one.",
                )
            })?,
            blocked: or_own(blocked, || {
                own_error("Link blocked", "The operator of this service has blocked this link.")
            })?,
            limited: own_error(
                "Too many requests",
                "Too many links were opened from your network. Try again in {{seconds}} s.",
            )?,
            unavailable: own_error(
                "Temporarily unavailable",
                "The service can't look up this link at the moment. Try again in a few seconds.",
            )?,
            failed: own_error("Internal error", "The service could not answer this request. Try again later.")?,
            preview: or_own(preview, || {
                let style = concat!(include_str!("own/style.css"), include_str!("own/preview.css"));
                own("{{title}}", include_str!("own/preview.html"), style)
            })?,
        })
    }

    /// An error of a short link: a page for those that prefer HTML, else the problem. `name` is what the path has.
    pub fn error(&self, problem: &Problem, prefers_html: bool, name: &str) -> ErrorAnswer {
        let mut answer = if prefers_html { self.error_page(problem, name) } else { ErrorAnswer::from(problem) };
        answer.headers.push((VARY, BY_ACCEPT));
        answer
    }

    fn error_page(&self, problem: &Problem, name: &str) -> ErrorAnswer {
        let template = match problem.kind() {
            ProblemKind::NotFound => &self.not_found,
            ProblemKind::LinkExpired => &self.gone,
            ProblemKind::LinkBlocked => &self.blocked,
            ProblemKind::RateLimited => &self.limited,
            ProblemKind::Unavailable => &self.unavailable,
            _ => &self.failed,
        };
        let problem_headers = || problem.headers().filter(|(name, _)| *name != CONTENT_TYPE && *name != CACHE_CONTROL);
        let retry_after = problem_headers().find(|(name, _)| *name == RETRY_AFTER).map(|(_, value)| value);
        let seconds = retry_after.as_ref().and_then(|seconds| seconds.to_str().ok()).unwrap_or_default();
        let short_url = self.short_url(name);
        let values = Values { title: &short_url, short_url: &short_url, seconds, ..Values::default() };
        let headers = page_headers(template).into_iter().chain(problem_headers()).collect();
        ErrorAnswer { status: problem.kind().status(), headers, body: template.render(&values) }
    }

    /// Whether the page of unknown links is the same for all names.
    pub fn not_found_is_constant(&self) -> bool {
        self.not_found.is_constant()
    }

    /// The page of a link, for those who want to see where it leads.
    pub fn preview(&self, values: &Values<'_>) -> HttpResponse {
        let mut response = HttpResponse::Ok().body(self.preview.render(values));
        write_headers(page_headers(&self.preview), response.headers_mut());
        response
    }

    fn short_url(&self, name: &str) -> String {
        if name.len() > MAX_NAME_BYTES { String::new() } else { format!("{}/{name}", self.base_url.as_str()) }
    }
}

/// An error of the service's own.
fn own_error(heading: &str, text: &str) -> Result<Template, TemplateError> {
    own(heading, &format!("<p>{text}</p>\n"), include_str!("own/style.css"))
}

fn own(heading: &str, body: &str, style: &str) -> Result<Template, TemplateError> {
    let frame = include_str!("own/frame.html").trim_end();
    let page = frame.replace("{{heading}}", heading).replace("{{body}}", body).replace("{{style}}", style.trim_end());
    Template::parse_own(&page)
}

/// What every page has.
fn page_headers(template: &Template) -> [(HeaderName, HeaderValue); 5] {
    [
        (CONTENT_TYPE, HTML),
        (CACHE_CONTROL, NO_STORE),
        (CONTENT_SECURITY_POLICY, template.policy.clone()),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ]
}

fn write_headers(from: impl IntoIterator<Item = (HeaderName, HeaderValue)>, to: &mut HeaderMap) {
    for (name, value) in from {
        to.insert(name, value);
    }
}

/// An error answer: a problem, or a page in its place.
#[derive(Debug)]
pub struct ErrorAnswer {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: String,
}

impl ErrorAnswer {
    /// Has search engines not list it.
    #[must_use]
    pub fn with_noindex(mut self, noindex: bool) -> Self {
        if noindex {
            self.headers.push((X_ROBOTS_TAG, NOINDEX));
        }
        self
    }

    /// As an answer outside of the router.
    pub fn into_bare_response(self) -> Response<BoxBody> {
        let mut response = Response::with_body(self.status, BoxBody::new(self.body));
        write_headers(self.headers, response.headers_mut());
        response
    }
}

impl From<&Problem> for ErrorAnswer {
    fn from(problem: &Problem) -> Self {
        Self { status: problem.kind().status(), headers: problem.headers().collect(), body: problem.to_json() }
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn pages(operator: OperatorPages) -> Pages {
        let base_url = BaseUrl::new(Url::parse("https://sign.example/s").unwrap());
        Pages::new(base_url, true, operator).unwrap()
    }

    #[test]
    fn own_pages_run_and_load_nothing_and_are_whole() {
        let pages = pages(OperatorPages::default());
        for page in [
            &pages.not_found,
            &pages.gone,
            &pages.blocked,
            &pages.limited,
            &pages.unavailable,
            &pages.failed,
            &pages.preview,
        ] {
            let values =
                Values { title: "T", target: "https://a/", short_url: "https://b/c", seconds: "7", qr: "<svg>" };
            let html = page.render(&values);
            assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">") && html.ends_with("</html>"), "{html}");
            for forbidden in ["<script", "javascript:", "src=", "@import", "url(", " style=", " onclick", "<link", "{{"]
            {
                assert!(!html.contains(forbidden), "{forbidden} in {html}");
            }
            assert!(html.contains("name=\"viewport\"") && html.matches("<h1>").count() == 1, "{html}");
            assert!(page.policy.to_str().unwrap().starts_with("default-src 'none'; style-src 'sha256-"));
            assert!(html.len() < 3_000, "{}", html.len());
        }
        assert!(pages.not_found_is_constant());
    }

    #[test]
    fn a_page_of_the_operator_has_the_name_that_was_asked_for_escaped_and_no_endless_one() {
        let not_found = Template::parse("<p>{{title}}|{{target}}|{{short_url}}").unwrap();
        let pages = pages(OperatorPages { not_found: Some(not_found), ..OperatorPages::default() });
        assert!(!pages.not_found_is_constant());
        let shown = |name: &str| pages.error(&Problem::no_such_link(), true, name).body;
        assert_eq!(shown("a<b&c"), "<p>https://sign.example/s/a&lt;b&amp;c||https://sign.example/s/a&lt;b&amp;c");
        assert_eq!(shown(&"x".repeat(65)), "<p>||");
        // Only for unknown links.
        assert!(pages.error(&Problem::unavailable(), true, "a").body.contains("<h1>Temporarily unavailable</h1>"));
    }

    #[test]
    fn a_page_has_the_headers_of_its_problem() {
        let pages = pages(OperatorPages::default());
        let header = |answer: &ErrorAnswer, name: HeaderName| {
            let mut all = answer.headers.iter().filter(|(known, _)| *known == name);
            let value = all.next().map(|(_, value)| value.to_str().unwrap().to_owned());
            assert!(all.next().is_none(), "{name} twice");
            value.unwrap_or_default()
        };
        let page = pages.error(&Problem::rate_limited(17), true, "a");
        assert_eq!((page.status.as_u16(), header(&page, RETRY_AFTER).as_str()), (429, "17"));
        assert!(page.body.contains("Try again in 17 s."), "{}", page.body);
        let problem = pages.error(&Problem::rate_limited(17), false, "a");
        assert_eq!(problem.body, Problem::rate_limited(17).to_json());
        for (answer, content_type) in [(&page, "text/html; charset=utf-8"), (&problem, "application/problem+json")] {
            assert_eq!(header(answer, CONTENT_TYPE), content_type);
            assert_eq!(header(answer, CACHE_CONTROL), "no-store");
            assert_eq!(header(answer, VARY), "Accept");
        }
    }
}

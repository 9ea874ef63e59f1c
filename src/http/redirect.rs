//! `GET /{short_id}` behind the dispatcher.

use actix_http::body::BoxBody;
use actix_http::{RequestHead, Response};
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use actix_web::{HttpRequest, HttpResponse, web};

use super::Api;
use super::accept::prefers_html;
use super::answer_fields::AnswerFields;
use super::problem::Problem;
use super::resolve::{AdmittedRequest, Answer, Client, RedirectAnswer, look_up};
use crate::cache::redirect_head::RedirectHead;
use crate::domain::link::LinkName;

/// The name of the link that a `GET` or `HEAD` is for, by its path alone; `None` leaves the request to the routes.
pub fn link_name_of(head: &RequestHead) -> Option<LinkName> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return None;
    }
    LinkName::parse(head.uri.path().strip_prefix('/')?)
}

/// Marks an answer of the routes that the metrics of redirects have.
#[derive(Clone, Copy)]
pub struct CountedAsRedirect;

/// How far a look-up got without waiting.
pub enum Resolved {
    Answered(Response<BoxBody>),
    /// The store has to be asked.
    NotCached(AdmittedRequest),
}

/// Answers from what is in memory.
pub fn resolve(api: &Api, head: &RequestHead, name: LinkName) -> Resolved {
    let client = Client::new(api, api.client_address(head));
    let request = match AdmittedRequest::admit(api, name, head.method == Method::GET, client) {
        Ok(request) => request,
        Err(retry_after) => {
            api.notices.check_refused(head.peer_addr, &head.headers, &api.trusted_proxies);
            return Resolved::Answered(error(api, head, &retry_after.into()));
        }
    };
    match look_up(api, &name) {
        Some((entry, by)) => {
            let answer = request.answer(api, AnswerFields::of(head), entry.as_deref(), by);
            Resolved::Answered(response_of(api, head, &request, answer))
        }
        None => Resolved::NotCached(request),
    }
}

/// Answers by way of the store.
pub async fn load(api: &Api, head: &RequestHead, mut request: AdmittedRequest) -> Response<BoxBody> {
    let loaded = api.redirects.load(&request.name).await;
    let answer = request.answer_loaded(api, AnswerFields::of(head), &loaded);
    response_of(api, head, &request, answer)
}

/// A problem, or a page in its place for those that prefer HTML.
pub fn error(api: &Api, head: &RequestHead, problem: &Problem) -> Response<BoxBody> {
    let name = head.uri.path().trim_start_matches('/');
    api.pages.error(problem, prefers_html(&head.headers), name).into_bare_response()
}

fn response_of(api: &Api, head: &RequestHead, request: &AdmittedRequest, answer: Answer<'_>) -> Response<BoxBody> {
    let RedirectAnswer { head: redirect, cache_control, recorded } = match answer {
        Answer::Redirect(redirect) => redirect,
        Answer::Refused(refusal) => return error(api, head, &refusal.into()),
    };
    let mut response = redirect_to(redirect, cache_control);
    if let Some(position) = recorded.filter(|_| api.reporting.is_on()) {
        response.extensions_mut().insert(api.redirects.hit_id(position, request.at));
    }
    response
}

/// What the edge service leaves to the routes: paths of one segment that are no short id as they stand, and escaped ones.
///
/// They count against the client's limit like every other look-up.
pub async fn by_route(api: web::Data<Api>, request: HttpRequest, path: web::Path<String>) -> HttpResponse {
    let head = request.head();
    let mut response = if let Some(name) = LinkName::parse(&path) {
        match resolve(&api, head, name) {
            Resolved::Answered(response) => response,
            Resolved::NotCached(request) => load(&api, head, request).await,
        }
    } else {
        match Client::new(&api, api.client_address(head)).admit(&api) {
            Ok(_) => return HttpResponse::from(no_such_name(&api, head)),
            Err(retry_after) => error(&api, head, &retry_after.into()),
        }
    };
    response.extensions_mut().insert(CountedAsRedirect);
    HttpResponse::from(response)
}

/// To a name that no link can have.
fn no_such_name(api: &Api, head: &RequestHead) -> Response<BoxBody> {
    match &api.fallbacks.not_found {
        Some(head) => to_fallback(head),
        None => error(api, head, &Problem::no_such_link()),
    }
}

/// A redirect that no link has.
pub fn to_fallback(head: &RedirectHead) -> Response<BoxBody> {
    redirect_to(head, None)
}

/// A redirect; `cache_control` in place of the head's.
fn redirect_to(head: &RedirectHead, cache_control: Option<HeaderValue>) -> Response<BoxBody> {
    let mut response = Response::with_body(head.status, BoxBody::new(()));
    let headers = response.headers_mut();
    headers.insert(LOCATION, head.location.clone());
    headers.insert(CACHE_CONTROL, cache_control.unwrap_or_else(|| head.cache_control.clone()));
    response
}

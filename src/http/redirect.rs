//! `GET /{short_id}` behind the dispatcher.

use actix_http::body::BoxBody;
use actix_http::{RequestHead, Response};
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, LOCATION};
use actix_web::{HttpRequest, HttpResponse, Responder, web};

use super::Api;
use super::answer_fields::AnswerFields;
use super::problem::Problem;
use super::resolve::{AdmittedRequest, Answer, RedirectAnswer, admit, look_up};
use crate::domain::link::ShortId;

/// The short id that a `GET` or `HEAD` is for, by its path alone; `None` leaves the request to the routes.
pub fn short_id_of(head: &RequestHead) -> Option<ShortId> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return None;
    }
    ShortId::parse(head.uri.path().strip_prefix('/')?)
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
pub fn resolve(api: &Api, head: &RequestHead, id: ShortId) -> Resolved {
    let client = api.client_address(head);
    let request = match AdmittedRequest::admit(api, id, head.method == Method::GET, client) {
        Ok(request) => request,
        Err(retry_after) => {
            api.notices.see_refused(head.peer_addr, &head.headers, &api.trusted_proxies);
            return Resolved::Answered(Problem::from(retry_after).into_bare_response());
        }
    };
    match look_up(api, id) {
        Some((entry, by)) => {
            let answer = request.answer(api, AnswerFields::of(&head.headers), entry.as_deref(), by);
            Resolved::Answered(response_of(api, &request, answer))
        }
        None => Resolved::NotCached(request),
    }
}

/// Answers by way of the store.
pub async fn load(api: &Api, head: &RequestHead, request: AdmittedRequest) -> Response<BoxBody> {
    let loaded = api.redirects.load(request.id).await;
    response_of(api, &request, request.answer_loaded(api, AnswerFields::of(&head.headers), &loaded))
}

fn response_of(api: &Api, request: &AdmittedRequest, answer: Answer<'_>) -> Response<BoxBody> {
    let RedirectAnswer { status, location, cache_control, recorded } = match answer {
        Answer::Redirect(redirect) => redirect,
        Answer::Refused(refusal) => return Problem::from(refusal).into_bare_response(),
    };
    let mut response = Response::with_body(status, BoxBody::new(()));
    if let Some(position) = recorded.filter(|_| api.reporting.is_on()) {
        response.extensions_mut().insert(api.redirects.hit_id(position, request.at));
    }
    let headers = response.headers_mut();
    headers.insert(LOCATION, location.clone());
    headers.insert(CACHE_CONTROL, cache_control.clone());
    response
}

/// What the edge service leaves to the routes: paths of one segment that are no short id as they stand, and escaped ones.
///
/// They count against the client's limit like every other look-up.
pub async fn by_route(
    api: web::Data<Api>,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let head = request.head();
    let mut response = if let Some(id) = ShortId::parse(&path) {
        match resolve(&api, head, id) {
            Resolved::Answered(response) => response,
            Resolved::NotCached(request) => load(&api, head, request).await,
        }
    } else {
        match admit(&api, api.client_address(head)) {
            Ok(_) => return Err(Problem::no_such_link()),
            Err(retry_after) => Problem::from(retry_after).into_bare_response(),
        }
    };
    response.extensions_mut().insert(CountedAsRedirect);
    Ok(HttpResponse::from(response))
}

//! `GET /{short_id}`: the redirect.

use std::net::IpAddr;

use actix_http::body::BoxBody;
use actix_http::{RequestHead, Response};
use actix_web::http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, LOCATION, REFERER, USER_AGENT};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, Responder, web};

use super::Api;
use super::fields::Fields;
use super::problem::Problem;
use crate::cache::links::{CachedLink, Entry};
use crate::domain::calendar::Timestamp;
use crate::domain::hit::Position;
use crate::domain::link::ShortId;
use crate::limits::client::RetryAfter;
use crate::service::redirects::Visit;
use crate::telemetry::metrics::requests::LookUp;

const SEC_CH_UA_MOBILE: HeaderName = HeaderName::from_static("sec-ch-ua-mobile");
const PRIVATE_NO_STORE: HeaderValue = HeaderValue::from_static("private, no-store");

/// A `GET` or `HEAD` for a short link, whoever has parsed it.
pub struct Ask<'a, F: ?Sized> {
    pub id: ShortId,
    /// `HEAD` asks what a `GET` would answer, and is no hit.
    pub is_hit: bool,
    pub client: IpAddr,
    pub fields: &'a F,
}

impl<'a, F: Fields + ?Sized> Ask<'a, F> {
    /// Lets the request in, whatever it asks for.
    ///
    /// # Errors
    /// When the client is over its limit.
    pub fn admit(&self, api: &Api) -> Result<Timestamp, RetryAfter> {
        api.redirects.admit(self.client).inspect_err(|_| api.metrics.redirects.limited())
    }

    /// Is to be called with what a link was found to be, before the answer goes out: counts, and records the hit. Answers
    /// where that is.
    pub fn found(&self, api: &Api, link: &CachedLink, by: LookUp, at: Timestamp) -> Option<Position> {
        let recorded = if self.is_hit { api.redirects.record(link, &self.visit(), at) } else { None };
        api.metrics.redirects.found(by);
        recorded
    }

    fn visit(&self) -> Visit<'a> {
        Visit {
            client: self.client,
            user_agent: self.fields.first(USER_AGENT),
            referer: self.fields.first(REFERER),
            ch_ua_mobile: match self.fields.first(SEC_CH_UA_MOBILE) {
                b"?1" => Some(true),
                b"?0" => Some(false),
                _ => None,
            },
        }
    }
}

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

/// A request that was let in: when.
#[derive(Clone, Copy)]
pub struct Admitted(Timestamp);

/// How far the cache got.
pub enum Resolved {
    Answered(Response<BoxBody>),
    /// The store has to be asked.
    NotCached(Admitted),
}

/// What is told of a link without waiting, and by what.
pub fn find(api: &Api, id: ShortId) -> Option<(Entry, LookUp)> {
    let cached = api.redirects.cached(id).map(|entry| (entry, LookUp::Memory));
    cached.or_else(|| api.redirects.known(id).map(|entry| (entry, LookUp::Store)))
}

/// Answers from what is in memory.
pub fn resolve(api: &Api, head: &RequestHead, id: ShortId) -> Resolved {
    let ask = ask_of(api, head, id);
    match ask.admit(api) {
        Err(retry_after) => Resolved::Answered(Problem::from(retry_after).into_bare_response()),
        Ok(at) => match find(api, id) {
            Some((entry, by)) => Resolved::Answered(answer(api, &ask, &entry, by, at)),
            None => Resolved::NotCached(Admitted(at)),
        },
    }
}

/// Answers by way of the store.
pub async fn load(api: &Api, head: &RequestHead, id: ShortId, Admitted(at): Admitted) -> Response<BoxBody> {
    match api.redirects.load(id).await {
        Ok(entry) => answer(api, &ask_of(api, head, id), &entry, LookUp::Store, at),
        Err(error) => {
            api.metrics.redirects.unavailable();
            Problem::from(error).into_bare_response()
        }
    }
}

fn ask_of<'a>(api: &Api, head: &'a RequestHead, id: ShortId) -> Ask<'a, HeaderMap> {
    Ask { id, is_hit: head.method == Method::GET, client: api.client_address(head), fields: &head.headers }
}

fn answer(api: &Api, ask: &Ask<'_, HeaderMap>, entry: &Entry, by: LookUp, at: Timestamp) -> Response<BoxBody> {
    let Some(link) = entry else {
        api.metrics.redirects.unknown(by);
        return Problem::no_such_link().into_bare_response();
    };
    let recorded = ask.found(api, link, by, at);
    let mut response = Response::with_body(StatusCode::FOUND, BoxBody::new(()));
    if let Some(position) = recorded.filter(|_| api.reporting.is_on()) {
        response.extensions_mut().insert(api.redirects.hit_id(position, at));
    }
    let headers = response.headers_mut();
    headers.insert(LOCATION, link.location.clone());
    headers.insert(CACHE_CONTROL, PRIVATE_NO_STORE);
    response
}

/// What the front did not take: paths of one segment that are no short id as they stand, and escaped ones.
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
            Resolved::NotCached(admitted) => load(&api, head, id, admitted).await,
        }
    } else {
        match api.redirects.admit(api.client_address(head)) {
            Ok(_) => return Err(Problem::no_such_link()),
            Err(retry_after) => {
                api.metrics.redirects.limited();
                Problem::from(retry_after).into_bare_response()
            }
        }
    };
    response.extensions_mut().insert(CountedAsRedirect);
    Ok(HttpResponse::from(response))
}

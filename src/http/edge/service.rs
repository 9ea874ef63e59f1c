//! A thin service between the dispatcher and the router. Redirects that do not come by the fast path are answered here: the
//! router would cost them a good quarter more. Everything else goes on to the routes.
//!
//! Also here, because it is for every answer: the request id, the report of the request, and a panic turned into an answer.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use actix_http::body::{BodySize, BoxBody, EitherBody, MessageBody};
use actix_http::{ConnectionType, HttpMessage, Request, RequestHead, Response};
use actix_service::{IntoServiceFactory, Service, ServiceFactory};
use actix_web::Error;
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Ready, ready};
use tracing::Instrument;

use super::handlers::{HandlerGuard, Handlers};
use crate::domain::hit::HitId;
use crate::http::Api;
use crate::http::fields::is_host;
use crate::http::pages::{HTML, NOINDEX, X_ROBOTS_TAG};
use crate::http::problem::{PROBLEM_JSON, Problem, ProblemKind};
use crate::http::redirect::{self, CountedAsRedirect, Resolved};
use crate::http::report::{Report, span_of, watched};
use crate::http::request_id::{X_REQUEST_ID, request_id};
use crate::http::resolve::AdmittedRequest;
use crate::http::routes::{self, REDIRECT};
use crate::readiness::Readiness;

/// Puts the edge service before the service that `app` makes.
pub struct EdgeFactory<F> {
    app: F,
    api: Arc<Api>,
}

impl<F> EdgeFactory<F> {
    pub fn new(api: Arc<Api>, app: impl IntoServiceFactory<F, Request>) -> Self
    where
        F: ServiceFactory<Request>,
    {
        Self { app: app.into_factory(), api }
    }
}

impl<F, B> ServiceFactory<Request> for EdgeFactory<F>
where
    F: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    F::Future: 'static,
    F::Service: 'static,
    B: 'static,
{
    type Response = EdgeAnswer<B>;
    type Error = Error;
    type Config = ();
    type Service = EdgeService<F::Service>;
    type InitError = ();
    type Future = LocalBoxFuture<'static, Result<Self::Service, ()>>;

    fn new_service(&self, (): ()) -> Self::Future {
        // It tells the router under which name it is reached, for URLs that it would make. It makes none.
        let app = self.app.new_service(AppConfig::default());
        let api = Arc::clone(&self.api);
        Box::pin(async move { Ok(EdgeService { app: Rc::new(app.await?), api }) })
    }
}

/// The service of one worker.
pub struct EdgeService<S> {
    app: Rc<S>,
    api: Arc<Api>,
}

impl<S, B> Service<Request> for EdgeService<S>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: 'static,
{
    type Response = EdgeAnswer<B>;
    type Error = Error;
    type Future = EdgeFuture<B>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.app.poll_ready(context)
    }

    fn call(&self, request: Request) -> EdgeFuture<B> {
        let at_work = request.conn_data::<Handlers>().map(Handlers::enter);
        // While the service stops, every answer is its connection's last: a client that sees this sends its next
        // request elsewhere, and none is lost on its way to a connection that is being closed.
        let answer = match self.answer(request) {
            Answered::Now(answer) if self.api.readiness.is_serving() => PendingAnswer::Now(ready(Ok(answer))),
            Answered::Now(answer) => PendingAnswer::Now(ready(Ok(answer.into_last()))),
            Answered::Later(answer) => PendingAnswer::Later(answer, self.api.readiness.clone()),
        };
        EdgeFuture { answer, at_work }
    }
}

impl<S, B> EdgeService<S>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: 'static,
{
    fn answer(&self, request: Request) -> Answered<B> {
        let began = Instant::now();
        let id = request_id(request.headers());
        let report = self.api.reporting.begin(request.head(), &id);
        if request.headers().get(HOST).is_some_and(|host| !is_host(host.as_bytes())) {
            let problem = Problem::new(
                ProblemKind::MalformedBody,
                "The Host header is empty, or has a character that no host has.",
            );
            let answer = problem.into_bare_response();
            self.api.metrics.requests.answered(None, answer.status().as_u16(), began.elapsed());
            if let Some(report) = report {
                report.answered(None, answer.status(), None);
            }
            return Answered::Now(EdgeResponse::Bare(answer).finished(&self.api, id));
        }
        let Some(name) = redirect::link_name_of(request.head()) else {
            return Answered::Later(Box::pin(route(Rc::clone(&self.app), Arc::clone(&self.api), request, id, report)));
        };
        let resolve = AssertUnwindSafe(|| redirect::resolve(&self.api, request.head(), name));
        let answer = match catch_unwind(resolve) {
            Ok(Resolved::Answered(answer)) => answer,
            Ok(Resolved::NotCached(admitted)) => {
                let api = Arc::clone(&self.api);
                return Answered::Later(Box::pin(load(api, request, (id, report), admitted, began)));
            }
            Err(_) => redirect_panicked(&self.api, request.head()),
        };
        self.api.metrics.redirects.dispatched(began.elapsed());
        report_redirect(report, &answer);
        Answered::Now(EdgeResponse::Bare(answer).finished(&self.api, id))
    }
}

/// A redirect by way of the store.
async fn load<B>(
    api: Arc<Api>,
    request: Request,
    (id, report): (HeaderValue, Option<Report>),
    admitted: AdmittedRequest,
    began: Instant,
) -> Result<EdgeResponse<B>, Error> {
    let loading = AssertUnwindSafe(redirect::load(&api, request.head(), admitted)).catch_unwind();
    let loading = watched(report.as_ref(), loading.instrument(span_of(&id)));
    let answer = loading.await.unwrap_or_else(|_| redirect_panicked(&api, request.head()));
    api.metrics.redirects.dispatched(began.elapsed());
    report_redirect(report, &answer);
    Ok(EdgeResponse::Bare(answer).finished(&api, id))
}

/// Through the router, with what every answer gets.
async fn route<S, B>(
    app: Rc<S>,
    api: Arc<Api>,
    request: Request,
    id: HeaderValue,
    report: Option<Report>,
) -> Result<EdgeResponse<B>, Error>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
{
    let began = Instant::now();
    api.notices.check_forwarding(request.head().peer_addr, request.headers(), &api.trusted_proxies);
    let route = routes::pattern_of(request.path());
    // In a block of its own, so that a panic of the router's own is caught too.
    let answering = AssertUnwindSafe(async { app.call(request).await }).catch_unwind();
    let response = match watched(report.as_ref(), answering.instrument(span_of(&id))).await {
        Ok(Ok(response)) if is_whole(response.status(), response.headers()) => EdgeResponse::Routed(response),
        Ok(Ok(response)) => EdgeResponse::Bare(Problem::of_status(response.status()).into_bare_response()),
        Ok(Err(error)) => {
            let response = Response::from(error.error_response()).map_into_boxed_body();
            let is_whole = is_whole(response.status(), response.headers());
            let problem = || Problem::of_status(response.status()).into_bare_response();
            EdgeResponse::Bare(if is_whole { response } else { problem() })
        }
        Err(_) => EdgeResponse::Bare(panicked().into_bare_response()),
    };
    let (is_redirect, hit) = response.as_redirect();
    if is_redirect {
        api.metrics.redirects.dispatched(began.elapsed());
    } else {
        api.metrics.requests.answered(route, response.status().as_u16(), began.elapsed());
    }
    if let Some(report) = report {
        report.answered(route, response.status(), hit);
    }
    Ok(response.finished(&api, id))
}

/// Whether an answer is as it may go out: what actix itself refuses (an extractor that fails) is neither a problem
/// document nor a page.
fn is_whole(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_error = status.is_client_error() || status.is_server_error();
    !is_error
        || headers.get(CONTENT_TYPE).is_some_and(|content_type| content_type == PROBLEM_JSON || content_type == HTML)
}

/// Whether an answer is a redirect, an error or a page, which search engines are not to list.
fn is_for_noindex(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_page = || headers.get(CONTENT_TYPE).is_some_and(|content_type| content_type == HTML);
    match status {
        StatusCode::OK => is_page(),
        StatusCode::NOT_MODIFIED => false,
        status => !status.is_success(),
    }
}

/// With the id of the hit, by which its webhooks can be followed.
fn report_redirect(report: Option<Report>, answer: &Response<BoxBody>) {
    if let Some(report) = report {
        report.answered(Some(REDIRECT), answer.status(), answer.extensions().get::<HitId>().copied());
    }
}

fn panicked() -> Problem {
    tracing::error!("a panic in a request handler");
    Problem::internal()
}

fn redirect_panicked(api: &Api, head: &RequestHead) -> Response<BoxBody> {
    api.metrics.redirects.failed();
    redirect::error(api, head, &panicked())
}

/// An answer of the edge service itself, or of the router behind it.
pub enum EdgeResponse<B> {
    Bare(Response<BoxBody>),
    Routed(ServiceResponse<B>),
}

impl<B> EdgeResponse<B> {
    fn status(&self) -> StatusCode {
        match self {
            Self::Bare(response) => response.status(),
            Self::Routed(response) => response.status(),
        }
    }

    /// Whether the routes took it for a redirect after all, and the hit that was recorded then.
    fn as_redirect(&self) -> (bool, Option<HitId>) {
        match self {
            Self::Bare(_) => (false, None),
            Self::Routed(response) => {
                let notes = response.response().extensions();
                (notes.contains::<CountedAsRedirect>(), notes.get::<HitId>().copied())
            }
        }
    }

    /// With what every answer has.
    fn finished(mut self, api: &Api, id: HeaderValue) -> Self {
        let status = self.status();
        let headers = match &mut self {
            Self::Bare(response) => response.headers_mut(),
            Self::Routed(response) => response.headers_mut(),
        };
        headers.insert(X_REQUEST_ID, id);
        if api.pages.noindex && is_for_noindex(status, headers) {
            headers.insert(X_ROBOTS_TAG, NOINDEX);
        }
        self
    }

    fn into_last(mut self) -> Self {
        let response = match &mut self {
            Self::Bare(response) => response.head_mut(),
            Self::Routed(response) => response.response_mut().head_mut(),
        };
        response.set_connection_type(ConnectionType::Close);
        self
    }
}

/// An answer on its way to the dispatcher, with the note that its request is at work.
pub struct EdgeAnswer<B> {
    response: EdgeResponse<B>,
    at_work: Option<HandlerGuard>,
}

impl<B> From<EdgeAnswer<B>> for Response<AnswerBody<EitherBody<BoxBody, B>>> {
    fn from(EdgeAnswer { response, at_work }: EdgeAnswer<B>) -> Self {
        let body = |body| AnswerBody { body, _at_work: at_work };
        match response {
            EdgeResponse::Bare(response) => response.map_body(|_, bare| body(EitherBody::left(bare))),
            EdgeResponse::Routed(response) => {
                Response::from(response).map_body(|_, routed| body(EitherBody::right(routed)))
            }
        }
    }
}

/// The body of an answer. Its request is at work until the dispatcher has the last of it: the next one has to wait for that.
pub struct AnswerBody<T> {
    body: T,
    _at_work: Option<HandlerGuard>,
}

impl<T: MessageBody + Unpin> MessageBody for AnswerBody<T> {
    type Error = T::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, T::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

/// What was made of a request: its answer, or work that leads to it.
enum Answered<B> {
    Now(EdgeResponse<B>),
    Later(LocalBoxFuture<'static, Result<EdgeResponse<B>, Error>>),
}

/// An answer, and the note that a request is at work.
pub struct EdgeFuture<B> {
    answer: PendingAnswer<B>,
    at_work: Option<HandlerGuard>,
}

/// Ready at once for redirects from cache, without a box.
enum PendingAnswer<B> {
    Now(Ready<Result<EdgeResponse<B>, Error>>),
    /// Whether the service stops is read when the answer is there.
    Later(LocalBoxFuture<'static, Result<EdgeResponse<B>, Error>>, Readiness),
}

impl<B> Future for EdgeFuture<B> {
    type Output = Result<EdgeAnswer<B>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.answer {
            PendingAnswer::Now(answer) => answer.poll_unpin(context),
            PendingAnswer::Later(answer, readiness) => {
                let answer = answer.as_mut().poll(context);
                if readiness.is_serving() { answer } else { answer.map_ok(EdgeResponse::into_last) }
            }
        };
        answer.map_ok(|response| EdgeAnswer { response, at_work: self.at_work.take() })
    }
}

impl<B> Unpin for EdgeFuture<B> {}

//! A thin service in front of the router. A redirect from cache is answered here: HOT-PATH of the whole product, and the
//! router with its middleware would cost it half as much again. Everything else goes on to the routes.
//!
//! Also here, because it is for every answer: the request id, the log line, and a panic turned into an answer.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_http::body::{BoxBody, EitherBody};
use actix_http::{HttpMessage, Request, Response};
use actix_service::{IntoServiceFactory, Service, ServiceFactory};
use actix_web::Error;
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::http::header::HeaderValue;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Ready, ready};
use std::task::{Context, Poll};
use tracing::Instrument;

use super::Api;
use super::problem::Problem;
use super::redirect::{self, Resolved};
use super::request_id::{X_REQUEST_ID, request_id};

/// Puts the front before the service that `app` makes.
pub struct FrontFactory<F> {
    app: F,
    api: Arc<Api>,
}

impl<F> FrontFactory<F> {
    pub fn new(api: Arc<Api>, app: impl IntoServiceFactory<F, Request>) -> Self
    where
        F: ServiceFactory<Request>,
    {
        Self { app: app.into_factory(), api }
    }
}

impl<F, B> ServiceFactory<Request> for FrontFactory<F>
where
    F: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    F::Future: 'static,
    F::Service: 'static,
    B: 'static,
{
    type Response = FrontResponse<B>;
    type Error = Error;
    type Config = AppConfig;
    type Service = Front<F::Service>;
    type InitError = ();
    type Future = LocalBoxFuture<'static, Result<Self::Service, ()>>;

    fn new_service(&self, config: AppConfig) -> Self::Future {
        let app = self.app.new_service(config);
        let api = Arc::clone(&self.api);
        Box::pin(async move { Ok(Front { app: Rc::new(app.await?), api }) })
    }
}

/// The service of one worker.
pub struct Front<S> {
    app: Rc<S>,
    api: Arc<Api>,
}

impl<S, B> Service<Request> for Front<S>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: 'static,
{
    type Response = FrontResponse<B>;
    type Error = Error;
    type Future = FrontFuture<B>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.app.poll_ready(context)
    }

    fn call(&self, request: Request) -> FrontFuture<B> {
        let id = request_id(request.headers());
        if let Some(short_id) = redirect::short_id_of(request.head()) {
            let answer = match redirect::resolve(&self.api, request.head(), short_id) {
                Resolved::Answered(answer) => answer,
                Resolved::NotCached(admitted) => {
                    let api = Arc::clone(&self.api);
                    let load = async move {
                        let answer = redirect::load(&api, request.head(), short_id, admitted).await;
                        Ok(FrontResponse::Bare(with_request_id(answer, id)))
                    };
                    return FrontFuture::Later(Box::pin(load));
                }
            };
            return FrontFuture::Now(ready(Ok(FrontResponse::Bare(with_request_id(answer, id)))));
        }
        FrontFuture::Later(Box::pin(route(Rc::clone(&self.app), request, id, self.api.log_requests)))
    }
}

/// Through the router, with what every answer gets.
async fn route<S, B>(app: Rc<S>, request: Request, id: HeaderValue, log: bool) -> Result<FrontResponse<B>, Error>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
{
    let began = Instant::now();
    let method = request.method().clone();
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default());
    let answered = AssertUnwindSafe(app.call(request)).catch_unwind().instrument(span.clone()).await;
    let _in_span = span.enter();
    let response = match answered {
        Ok(Ok(mut response)) => {
            response.headers_mut().insert(X_REQUEST_ID, id);
            FrontResponse::Routed(response)
        }
        Ok(Err(error)) => {
            let mut response = Response::from(error.error_response()).map_into_boxed_body();
            response.headers_mut().insert(X_REQUEST_ID, id);
            FrontResponse::Bare(response)
        }
        Err(_) => {
            tracing::error!("a handler panicked");
            FrontResponse::Bare(with_request_id(Problem::internal().into_bare_response(), id))
        }
    };
    if log {
        // The route's pattern, never the path: ids of links and keys stay out of the log.
        let (route, status) = match &response {
            FrontResponse::Routed(response) => (response.request().match_pattern(), response.status()),
            FrontResponse::Bare(response) => (None, response.status()),
        };
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(%method, route = route.as_deref(), status = status.as_u16(), micros, "request");
    }
    Ok(response)
}

fn with_request_id(mut response: Response<BoxBody>, id: HeaderValue) -> Response<BoxBody> {
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}

/// An answer of the front itself, or of the router behind it.
pub enum FrontResponse<B> {
    Bare(Response<BoxBody>),
    Routed(ServiceResponse<B>),
}

impl<B> From<FrontResponse<B>> for Response<EitherBody<BoxBody, B>> {
    fn from(response: FrontResponse<B>) -> Self {
        match response {
            FrontResponse::Bare(response) => response.map_body(|_, body| EitherBody::left(body)),
            FrontResponse::Routed(response) => Response::from(response).map_body(|_, body| EitherBody::right(body)),
        }
    }
}

/// Ready at once for redirects from cache, without a box.
pub enum FrontFuture<B> {
    Now(Ready<Result<FrontResponse<B>, Error>>),
    Later(LocalBoxFuture<'static, Result<FrontResponse<B>, Error>>),
}

impl<B> Future for FrontFuture<B> {
    type Output = Result<FrontResponse<B>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(answer) => answer.poll_unpin(context),
            Self::Later(answer) => answer.as_mut().poll(context),
        }
    }
}

impl<B> Unpin for FrontFuture<B> {}

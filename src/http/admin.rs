//! The operator's listener: `/metrics`, `/livez`, `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{Error, HttpResponse, Resource, Responder, Route, guard};

use super::problem::{Kind, Problem};
use super::request_id::{X_REQUEST_ID, request_id};
use crate::readiness::Readiness;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;

/// How long the store may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the operator's endpoints know.
pub struct Admin {
    pub readiness: Readiness,
    pub store: Arc<dyn Store>,
    pub metrics: Arc<Metrics>,
}

pub fn configure(config: &mut ServiceConfig) {
    let nothing_here = || async {
        let detail = "There is nothing at this path; this listener answers /metrics, /livez and /readyz.";
        Err::<&str, _>(Problem::new(Kind::NotFound, detail))
    };
    config
        .service(reading("/metrics", web::route().to(metrics)))
        .service(reading("/livez", web::route().to(|| async { "ok" })))
        .service(reading("/readyz", web::route().to(ready)))
        .default_service(web::to(nothing_here));
}

/// A path that is read; other methods are answered 405, as by the public listener.
fn reading(path: &str, route: Route) -> Resource {
    const METHODS: [Method; 2] = [Method::GET, Method::HEAD];
    let refuse = web::to(|| async { Err::<&str, _>(Problem::method_not_allowed(&METHODS)) });
    let is_read = guard::fn_guard(|context| METHODS.contains(&context.head().method));
    web::resource(path).route(route.guard(is_read)).default_service(refuse)
}

/// Gives every answer the request's id, as on the public listener.
pub async fn identified(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let id = request_id(request.headers());
    let mut response = next.call(request).await?;
    response.headers_mut().insert(X_REQUEST_ID, id);
    Ok(response)
}

async fn metrics(admin: Data<Admin>) -> impl Responder {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(admin.metrics.render())
}

async fn ready(admin: Data<Admin>) -> Result<&'static str, Problem> {
    if !admin.readiness.is_serving() {
        return Err(Problem::unavailable());
    }
    match tokio::time::timeout(PATIENCE, admin.store.ready()).await {
        Ok(Ok(())) => Ok("ready"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable()),
    }
}

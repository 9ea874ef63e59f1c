//! The operator's listener: `/metrics`, `/livez`, `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpResponse, Responder};

use super::problem::Problem;
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
    config
        .route("/metrics", web::get().to(metrics))
        .route("/livez", web::get().to(|| async { "ok" }))
        .route("/readyz", web::get().to(ready))
        .default_service(web::to(|| async { Err::<&str, _>(Problem::no_such_page()) }));
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

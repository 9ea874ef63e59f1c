//! The operator's listener: `/metrics`, `/livez`, `/readyz`.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, Error, HttpResponse, HttpServer, Resource, Responder, Route, guard};
use tokio::task::JoinHandle;

use super::problem::{Problem, ProblemKind};
use super::request_id::{X_REQUEST_ID, request_id};
use crate::readiness::Readiness;
use crate::store::Lifecycle;
use crate::telemetry::metrics::Metrics;

/// The time limit of the store's readiness check.
const PATIENCE: Duration = Duration::from_secs(1);

/// The state of the operator's endpoints.
struct AdminState {
    readiness: Readiness,
    /// Empty until the store is open.
    store: OnceLock<Arc<dyn Lifecycle>>,
    metrics: Arc<Metrics>,
}

/// The running server. It starts before the store is open and ends after the store is closed. If dropped, it ends at
/// once.
pub struct AdminServer {
    admin: Data<AdminState>,
    handle: ServerHandle,
    server: JoinHandle<io::Result<()>>,
}

/// Answers on `socket`. Not ready until [`set_store`](AdminServer::set_store) is called.
pub async fn serve(socket: TcpListener, readiness: Readiness, metrics: Arc<Metrics>) -> io::Result<AdminServer> {
    let admin = Data::new(AdminState { readiness, store: OnceLock::new(), metrics });
    let shared = admin.clone();
    let router = move || App::new().app_data(shared.clone()).wrap(from_fn(identified)).configure(configure);
    let server = HttpServer::new(router).workers(1).shutdown_timeout(1).disable_signals().listen(socket)?.run();
    let serving = AdminServer { admin, handle: server.handle(), server: tokio::spawn(server) };
    // The server starts its threads at its first poll. Without this, the next steps of the start could delay it.
    tokio::task::yield_now().await;
    Ok(serving)
}

impl AdminServer {
    /// From now on, readiness includes whether the store is reachable.
    pub fn set_store(&self, store: Arc<dyn Lifecycle>) {
        // Set only once.
        let _ = self.admin.store.set(store);
    }

    /// Stops the server after the current requests are answered.
    ///
    /// # Errors
    /// If it could not accept connections.
    pub async fn stop(mut self) -> io::Result<()> {
        self.handle.stop(true).await;
        (&mut self.server).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // The future need not be awaited: the stop is requested already.
        drop(self.handle.stop(false));
    }
}

fn configure(config: &mut ServiceConfig) {
    let nothing_here = || async {
        let detail = "Unknown path. This listener has /metrics, /livez and /readyz.";
        Err::<&str, _>(Problem::new(ProblemKind::NotFound, detail))
    };
    config
        .service(reading("/metrics", web::route().to(metrics)))
        .service(reading("/livez", web::route().to(|| async { "ok" })))
        .service(reading("/readyz", web::route().to(ready)))
        .default_service(web::to(nothing_here));
}

/// A path with `GET` and `HEAD`. Other methods are answered 405, as on the public listener.
fn reading(path: &str, route: Route) -> Resource {
    const METHODS: [Method; 2] = [Method::GET, Method::HEAD];
    let refuse = web::to(|| async { Err::<&str, _>(Problem::method_not_allowed(&METHODS)) });
    let is_read = guard::fn_guard(|context| METHODS.contains(&context.head().method));
    web::resource(path).route(route.guard(is_read)).default_service(refuse)
}

/// Adds the request's id to every answer, as on the public listener.
async fn identified(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let id = request_id(request.headers());
    let mut response = next.call(request).await?;
    response.headers_mut().insert(X_REQUEST_ID, id);
    Ok(response)
}

async fn metrics(admin: Data<AdminState>) -> impl Responder {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(admin.metrics.render())
}

async fn ready(admin: Data<AdminState>) -> Result<&'static str, Problem> {
    if !admin.readiness.is_serving() {
        return Err(Problem::unavailable());
    }
    let Some(store) = admin.store.get() else { return Err(Problem::unavailable()) };
    match tokio::time::timeout(PATIENCE, store.ready()).await {
        Ok(Ok(())) => Ok("ready"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable()),
    }
}

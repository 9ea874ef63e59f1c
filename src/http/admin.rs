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

use super::problem::{Kind, Problem};
use super::request_id::{X_REQUEST_ID, request_id};
use crate::readiness::Readiness;
use crate::store::Lifecycle;
use crate::telemetry::metrics::Metrics;

/// How long the store may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the operator's endpoints know.
struct Admin {
    readiness: Readiness,
    /// Not there before it is open.
    store: OnceLock<Arc<dyn Lifecycle>>,
    metrics: Arc<Metrics>,
}

/// The listener while it answers: from before the store is open to behind its end. Dropped, it ends at once.
pub struct Serving {
    admin: Data<Admin>,
    handle: ServerHandle,
    server: JoinHandle<io::Result<()>>,
}

/// Answers on `socket`; not ready before [`tell_of`](Serving::tell_of) the store.
pub async fn serve(socket: TcpListener, readiness: Readiness, metrics: Arc<Metrics>) -> io::Result<Serving> {
    let admin = Data::new(Admin { readiness, store: OnceLock::new(), metrics });
    let shared = admin.clone();
    let router = move || App::new().app_data(shared.clone()).wrap(from_fn(identified)).configure(configure);
    let server = HttpServer::new(router).workers(1).shutdown_timeout(1).disable_signals().listen(socket)?.run();
    let serving = Serving { admin, handle: server.handle(), server: tokio::spawn(server) };
    // It has threads of its own, which begin when it is polled first: what the start does next may keep this one busy.
    tokio::task::yield_now().await;
    Ok(serving)
}

impl Serving {
    /// From now on the store is asked whether it is in reach.
    pub fn tell_of(&self, store: Arc<dyn Lifecycle>) {
        // It is told once.
        let _ = self.admin.store.set(store);
    }

    /// Ends it when the requests under way are answered.
    ///
    /// # Errors
    /// When it could not accept connections.
    pub async fn stop(mut self) -> io::Result<()> {
        self.handle.stop(true).await;
        (&mut self.server).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Told is enough.
        drop(self.handle.stop(false));
    }
}

fn configure(config: &mut ServiceConfig) {
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
async fn identified(
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
    let Some(store) = admin.store.get() else { return Err(Problem::unavailable()) };
    match tokio::time::timeout(PATIENCE, store.ready()).await {
        Ok(Ok(())) => Ok("ready"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable()),
    }
}

//! The public face: routes, who is asking, what is answered. The only user of actix-web.

pub mod admin;
pub mod analytics;
pub mod api_keys;
pub mod body;
pub mod client;
pub mod edge;
pub mod fast_path;
pub mod faults;
pub mod fields;
pub mod gate;
pub mod health;
pub mod links;
pub mod notices;
pub mod openapi;
pub mod problem;
pub mod qr;
pub mod query;
pub mod redirect;
pub mod report;
pub mod request_id;
pub mod resolve;
pub mod routes;
pub mod server;
mod stall;
pub mod surrogates;
pub mod unauthorized;
pub mod usage;
pub mod webhooks;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::RequestHead;

use self::client::TrustedProxies;
use self::notices::Notices;
use self::openapi::Reference;
use self::report::Reporting;
use self::unauthorized::UnauthorizedLimit;
use crate::actors::key_shard::KeyShards;
use crate::clock::Clock;
use crate::domain::guard::AddressGuard;
use crate::domain::link::BaseUrl;
use crate::domain::plan::Plans;
use crate::limits::client::ClientLimiter;
use crate::readiness::Readiness;
use crate::service::analytics::Analytics;
use crate::service::authentication::Authentication;
use crate::service::keys::Keys;
use crate::service::links::Links;
use crate::service::redirects::Redirects;
use crate::service::usage::Usage;
use crate::service::webhook_status::WebhookStatuses;
use crate::telemetry::metrics::Metrics;

/// What handlers call. One for all workers.
pub struct Api {
    pub authentication: Arc<Authentication>,
    pub shards: Arc<KeyShards>,
    pub plans: Plans,
    pub links: Links,
    pub keys: Keys,
    pub analytics: Analytics,
    pub usage: Usage,
    pub webhook_statuses: WebhookStatuses,
    pub redirects: Redirects,
    pub qr_limiter: ClientLimiter,
    pub unauthorized_limit: UnauthorizedLimit,
    pub trusted_proxies: TrustedProxies,
    pub notices: Notices,
    pub base_url: BaseUrl,
    pub webhook_guard: AddressGuard,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub readiness: Readiness,
    pub reference: Reference,
    /// How long a request's body may take to arrive.
    pub request_timeout: Duration,
    pub reporting: Reporting,
}

impl Api {
    /// The address of who sent the request.
    pub fn client_address(&self, head: &RequestHead) -> IpAddr {
        client::client_address(head.peer_addr, &head.headers, &self.trusted_proxies)
    }
}

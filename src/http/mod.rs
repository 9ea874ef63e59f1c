//! The HTTP interface: routes, authentication, endpoints, answers. The only user of actix-web.

pub mod accept;
pub mod admin;
mod answer_fields;
pub mod auth;
pub mod body;
pub mod client;
pub mod client_limits;
mod conditions;
pub mod console;
mod csv;
pub mod edge;
pub mod endpoint;
pub mod endpoints;
pub mod fast_path;
pub mod field_errors;
pub mod fields;
pub mod idempotency;
pub mod list_cursor;
pub mod merge_patch;
pub mod notices;
pub mod openapi;
pub mod pages;
pub mod problem;
pub mod query;
pub mod redirect;
pub mod report;
pub mod request_id;
pub mod resolve;
pub mod routes;
pub mod server;
mod stall;
mod streamed;
pub mod surrogates;
mod times;
pub mod unauthorized;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::RequestHead;

use self::client::TrustedProxies;
use self::client_limits::ClientLimits;
use self::console::ConsoleFiles;
use self::notices::Notices;
use self::openapi::Reference;
use self::pages::{Fallbacks, Pages};
use self::report::Reporting;
use self::unauthorized::UnauthorizedLimit;
use crate::actors::key_shard::KeyShards;
use crate::clock::Clock;
use crate::domain::blocked_hosts::BlockedHosts;
use crate::domain::guard::AddressGuard;
use crate::domain::link::BaseUrl;
use crate::domain::rate_limit::Rates;
use crate::readiness::Readiness;
use crate::service::analytics::AnalyticsService;
use crate::service::authentication::AuthenticationService;
use crate::service::hit_streams::HitStreamService;
use crate::service::keys::KeyService;
use crate::service::link_lists::LinkListService;
use crate::service::links::LinkService;
use crate::service::redirects::RedirectService;
use crate::service::usage::UsageService;
use crate::service::webhook_actions::WebhookActions;
use crate::service::webhook_status::WebhookStatusService;
use crate::telemetry::metrics::Metrics;

/// What handlers use; one for all workers.
pub struct Api {
    /// The hosts that no link leads to.
    pub blocked_hosts: BlockedHosts,
    pub authentication: Arc<AuthenticationService>,
    pub shards: Arc<KeyShards>,
    pub rates: Rates,
    pub links: LinkService,
    pub link_lists: LinkListService,
    pub keys: KeyService,
    pub analytics: AnalyticsService,
    pub hit_streams: Arc<HitStreamService>,
    pub usage: UsageService,
    pub webhook_statuses: WebhookStatusService,
    pub webhook_actions: WebhookActions,
    pub redirects: RedirectService,
    pub client_limits: ClientLimits,
    pub unauthorized_limit: UnauthorizedLimit,
    pub trusted_proxies: TrustedProxies,
    pub notices: Notices,
    pub base_url: BaseUrl,
    pub webhook_guard: AddressGuard,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub readiness: Readiness,
    pub reference: Reference,
    /// `None`: the operator has turned it off.
    pub console: Option<ConsoleFiles>,
    pub pages: Arc<Pages>,
    pub fallbacks: Fallbacks,
    /// The time limit of a request's body.
    pub request_timeout: Duration,
    pub reporting: Reporting,
}

impl Api {
    /// The client's address.
    pub fn client_address(&self, head: &RequestHead) -> IpAddr {
        client::client_address(head.peer_addr, &head.headers, &self.trusted_proxies)
    }
}

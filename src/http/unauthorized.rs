//! Requests without a valid key: how they are looked up, and their limit per client.

use std::sync::Arc;

use actix_web::dev::ServiceRequest;
use moka::sync::Cache;

use super::Api;
use super::auth::presented_secret;
use super::problem::Problem;
use crate::domain::key::ApiKey;
use crate::limits::client::{ClientKey, ClientLimiter, RetryAfter};
use crate::service::authentication::{AuthenticationError, Trust};

/// The maximum number of clients over the limit that are remembered.
const MAX_OVER: u64 = 10_000;

/// Counts the answers 401 of each client. Above the limit, the answer is 429; requests with a valid key are still
/// answered.
pub struct UnauthorizedLimit {
    limiter: ClientLimiter,
    /// Until when clients are over the limit, in milliseconds.
    over: Cache<ClientKey, u64>,
}

impl UnauthorizedLimit {
    pub fn new(limiter: ClientLimiter) -> Self {
        Self { limiter, over: Cache::new(MAX_OVER) }
    }

    fn is_over(&self, client: ClientKey, now_ms: u64) -> bool {
        self.over.get(&client).is_some_and(|until| now_ms < until)
    }

    /// Counts an answer 401, or returns that the limit is exceeded.
    fn count(&self, client: ClientKey, now_ms: u64) -> Result<(), RetryAfter> {
        let counted = self.limiter.admit(client, now_ms);
        if let Err(RetryAfter(seconds)) = counted {
            self.over.insert(client, now_ms + u64::from(seconds) * 1_000);
        }
        counted
    }
}

/// The key of the request's secret, or 401, or 429 for a client with too many answers 401.
pub async fn authenticate(api: &Api, request: &ServiceRequest) -> Result<Arc<ApiKey>, Problem> {
    let client = ClientKey::from(api.client_address(request.head()));
    let now = api.clock.now().0;
    let refusal = match presented_secret(request.headers()).filter(|secret| !secret.is_empty()) {
        None => Problem::unauthorized(),
        Some(secret) => {
            let is_over = api.unauthorized_limit.is_over(client, now);
            let trust = if is_over { Trust::Limited } else { Trust::AtOnce };
            match api.authentication.authenticate(secret, trust).await {
                Ok(key) => return Ok(key),
                Err(AuthenticationError::Unauthorized) => Problem::unauthorized(),
                Err(AuthenticationError::Store(error)) => return Err(error.into()),
            }
        }
    };
    match api.unauthorized_limit.count(client, now) {
        Ok(()) => Err(refusal),
        Err(retry_after) => {
            api.metrics.refusals.limited_unauthorized.increment(1);
            Err(retry_after.into())
        }
    }
}

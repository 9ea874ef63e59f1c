//! The limits of endpoints that count requests by client.

use std::collections::HashMap;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, web};

use super::Api;
use super::endpoint::ClientLimit;
use super::problem::Problem;
use crate::limits::client::{ClientKey, ClientLimiter};

/// The limiter of each limit, by the limit's name.
pub struct ClientLimits(HashMap<&'static str, ClientLimiter>);

impl ClientLimits {
    pub fn new(limiters: impl IntoIterator<Item = (&'static ClientLimit, ClientLimiter)>) -> Self {
        Self(limiters.into_iter().map(|(limit, limiter)| (limit.name, limiter)).collect())
    }
}

/// Passes a request to its handler, or refuses it.
pub async fn pass(
    limit: &'static ClientLimit,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    // The app adds it before routing.
    let api = request.app_data::<web::Data<Api>>().ok_or_else(Problem::internal)?;
    let limiter = api.client_limits.0.get(limit.name).ok_or_else(Problem::internal)?;
    let client = ClientKey::from(api.client_address(request.head()));
    if let Err(retry_after) = limiter.admit(client, api.clock.now().0) {
        api.metrics.refusals.client_limited(limit.name);
        return Err(Problem::from(retry_after).into());
    }
    next.call(request).await
}

//! Converts the limits of the configuration for the parts that use them.

use std::num::NonZeroU32;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use super::StartError;
use crate::config::{Config, TierConfig};
use crate::domain::key::Tier;
use crate::domain::plan::{Plan, Plans};
use crate::domain::rate_limit::Rates;
use crate::http::client_limits::ClientLimits;
use crate::http::endpoints;
use crate::http::unauthorized::UnauthorizedLimit;
use crate::limits::client::ClientLimiter;
use crate::service::hit_streams::StreamLimits;

pub(super) fn plans(config: &Config) -> Plans {
    Plans { free: plan(&config.tiers.free), pro: plan(&config.tiers.pro) }
}

fn plan(tier: &TierConfig) -> Plan {
    Plan {
        links_per_month: tier.links_per_month,
        webhook_deliveries_per_month: tier.webhook_deliveries_per_month,
        child_keys: Some(tier.child_keys.into()),
    }
}

/// A live stream ends after this time.
const LONGEST_STREAM: Duration = Duration::from_hours(1);

pub(super) fn streams(config: &Config) -> StreamLimits {
    StreamLimits { free: config.tiers.free.streams, pro: config.tiers.pro.streams, longest: LONGEST_STREAM }
}

pub(super) fn rates(config: &Config) -> Rates {
    Rates::new(endpoints::rate_limits(), |tier, limit| {
        let settings = match tier {
            Tier::Free => &config.tiers.free,
            Tier::Pro => &config.tiers.pro,
        };
        settings.per_minute(limit.setting)
    })
}

pub(super) fn redirect_limiter(config: &Config) -> Result<ClientLimiter, StartError> {
    limiter(config.limits.redirect_per_minute, config.limits.table_size)
}

pub(super) fn client_limits(config: &Config) -> Result<ClientLimits, StartError> {
    // Endpoints get far fewer requests than redirects.
    let cells = config.limits.table_size / 8;
    let limiters = endpoints::client_limits()
        .map(|(_, limit)| Ok((limit, limiter(config.limits.per_minute(limit.setting), cells)?)))
        .collect::<Result<Vec<_>, StartError>>()?;
    Ok(ClientLimits::new(limiters))
}

pub(super) fn unauthorized_limit(config: &Config) -> Result<UnauthorizedLimit, StartError> {
    let limiter = limiter(config.limits.unauthorized_per_minute, config.limits.table_size / 8)?;
    Ok(UnauthorizedLimit::new(limiter))
}

fn limiter(per_minute: Option<NonZeroU32>, cells: usize) -> Result<ClientLimiter, StartError> {
    // A random seed: clients can't choose addresses that share a cell.
    let mut seed = [0; 8];
    SystemRandom::new().fill(&mut seed).map_err(|_| StartError::NoRandomness)?;
    Ok(ClientLimiter::new(per_minute.map_or(0, NonZeroU32::get), cells, u64::from_ne_bytes(seed)))
}

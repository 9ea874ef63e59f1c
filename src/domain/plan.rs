//! What a tier allows: requests a minute by rate limit, uses a month, and live keys.

use std::num::NonZeroU32;

use super::key::{ApiKey, Tier};
use super::quota::{KeyLimit, MonthlyLimit};
use super::rate_limit::RateLimitId;

/// The limits of one tier; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By [`RateLimitId::index`].
    pub per_minute: [Option<NonZeroU32>; RateLimitId::COUNT],
    pub links_per_month: MonthlyLimit,
    pub webhook_deliveries_per_month: MonthlyLimit,
    pub child_keys: KeyLimit,
}

impl Plan {
    /// The root key's: no limit at all.
    pub const UNLIMITED: Self = Self {
        per_minute: [None; RateLimitId::COUNT],
        links_per_month: None,
        webhook_deliveries_per_month: None,
        child_keys: None,
    };

    pub fn requests_per_minute(&self, rate_limit: RateLimitId) -> Option<NonZeroU32> {
        self.per_minute[rate_limit.index()]
    }
}

/// The plan of every tier.
#[derive(Clone, Copy, Debug)]
pub struct Plans {
    pub free: Plan,
    pub pro: Plan,
}

impl Plans {
    /// The limits that `key` is under.
    pub fn of(&self, key: &ApiKey) -> &Plan {
        match key.tier {
            _ if key.is_root => &Plan::UNLIMITED,
            Tier::Free => &self.free,
            Tier::Pro => &self.pro,
        }
    }
}

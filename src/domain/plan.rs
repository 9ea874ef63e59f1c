//! The quotas of tiers: monthly quotas, and live keys. Rate limits are in `rate_limit.rs`.

use super::key::{ApiKey, Tier};
use super::quota::{KeyLimit, MonthlyLimit};

/// The quotas of a tier; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub links_per_month: MonthlyLimit,
    pub webhook_deliveries_per_month: MonthlyLimit,
    pub child_keys: KeyLimit,
}

impl Plan {
    /// The plan of the root key: unlimited.
    pub const UNLIMITED: Self = Self { links_per_month: None, webhook_deliveries_per_month: None, child_keys: None };
}

/// The plan of every tier.
#[derive(Clone, Copy, Debug)]
pub struct Plans {
    pub free: Plan,
    pub pro: Plan,
}

impl Plans {
    /// The plan of `key`.
    pub fn of(&self, key: &ApiKey) -> &Plan {
        match key.tier {
            _ if key.is_root => &Plan::UNLIMITED,
            Tier::Free => &self.free,
            Tier::Pro => &self.pro,
        }
    }
}

//! `[tiers.free]` and `[tiers.pro]`: what the keys of each tier may do.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{error::SettingError, layers::Settings, limits::rates};

/// Highest limit of live keys: a creation at the limit reads them all.
const MOST_CHILD_KEYS: u32 = 1_000;

/// The allowances of all tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// The tier `Free`.
    pub free: Tier,
    /// The tier `Pro`.
    pub pro: Tier,
}

impl Tiers {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self { free: Tier::read(settings, "tiers.free")?, pro: Tier::read(settings, "tiers.pro")? })
    }
}

/// One tier's allowances for each key: requests in a sliding 60 s, and quotas of a UTC calendar
/// month; and a quota of live keys. `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// By the key of the setting.
    per_minute: BTreeMap<String, Option<NonZeroU32>>,
    /// Links that may be made in a month; `Some(0)` allows none at all.
    pub links_per_month: Option<u64>,
    /// Webhook deliveries in a month; `Some(0)` allows none at all.
    pub webhook_deliveries_per_month: Option<u64>,
    /// Live keys that a key may have made; 0 allows none at all.
    pub child_keys: u32,
}

impl Tier {
    /// The requests a minute that the setting of this key allows, such as `shorten_per_minute`.
    pub fn per_minute(&self, key: &str) -> Option<NonZeroU32> {
        self.per_minute.get(key).copied().flatten()
    }

    /// The keys of all settings of requests a minute.
    pub fn rates(&self) -> impl Iterator<Item = &str> {
        self.per_minute.keys().map(String::as_str)
    }

    fn read(settings: &mut Settings, section: &str) -> Result<Self, SettingError> {
        Ok(Self {
            per_minute: rates(settings, section)?,
            links_per_month: settings.quota(&format!("{section}.links_per_month"))?,
            webhook_deliveries_per_month: settings.quota(&format!("{section}.webhook_deliveries_per_month"))?,
            child_keys: settings.integer(&format!("{section}.child_keys"), 0..=MOST_CHILD_KEYS)?,
        })
    }
}

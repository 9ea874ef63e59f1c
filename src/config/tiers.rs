//! `[tiers.free]` and `[tiers.pro]`: limits and quotas of the keys of each tier.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{error::SettingError, layers::LayeredSettings, limits::rates};

/// The highest limit of live keys. A creation at the limit reads them all.
const MOST_CHILD_KEYS: u32 = 1_000;
/// The highest limit of live streams. Each takes a connection.
const MOST_STREAMS: u32 = 10_000;

/// The limits and quotas of all tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TiersConfig {
    /// The tier `Free`.
    pub free: TierConfig,
    /// The tier `Pro`.
    pub pro: TierConfig,
}

impl TiersConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self { free: TierConfig::read(settings, "tiers.free")?, pro: TierConfig::read(settings, "tiers.pro")? })
    }
}

/// The limits of each key of a tier: requests in a sliding window of 60 s, quotas of a UTC calendar month, and a
/// quota of live keys. `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// Requests a minute, by the key of the setting.
    per_minute: BTreeMap<String, Option<NonZeroU32>>,
    /// Links that a key may create in a month; `Some(0)`: none.
    pub links_per_month: Option<u64>,
    /// Webhook deliveries in a month; `Some(0)`: none.
    pub webhook_deliveries_per_month: Option<u64>,
    /// Live keys that a key may have created; 0: none.
    pub child_keys: u32,
    /// Live streams of hits that a key may have open at once; 0: none.
    pub streams: u32,
}

impl TierConfig {
    /// The requests a minute that the setting with this key allows, such as `shorten_per_minute`.
    pub fn per_minute(&self, key: &str) -> Option<NonZeroU32> {
        self.per_minute.get(key).copied().flatten()
    }

    /// The keys of all settings of requests a minute.
    pub fn rates(&self) -> impl Iterator<Item = &str> {
        self.per_minute.keys().map(String::as_str)
    }

    fn read(settings: &mut LayeredSettings, section: &str) -> Result<Self, SettingError> {
        Ok(Self {
            per_minute: rates(settings, section)?,
            links_per_month: settings.quota(&format!("{section}.links_per_month"))?,
            webhook_deliveries_per_month: settings.quota(&format!("{section}.webhook_deliveries_per_month"))?,
            child_keys: settings.integer(&format!("{section}.child_keys"), 0..=MOST_CHILD_KEYS)?,
            streams: settings.integer(&format!("{section}.streams"), 0..=MOST_STREAMS)?,
        })
    }
}

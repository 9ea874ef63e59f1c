//! `[tiers.free]` and `[tiers.pro]`: what the keys of each tier may do.

use std::num::NonZeroU32;

use super::{error::SettingError, layers::Settings, limits::per_minute};

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
    /// `POST /shorten`.
    pub shorten_per_minute: Option<NonZeroU32>,
    /// `GET /links/{short_id}/analytics`.
    pub analytics_per_minute: Option<NonZeroU32>,
    /// `GET /links/{short_id}/analytics/summary`.
    pub summary_per_minute: Option<NonZeroU32>,
    /// `GET /usage`.
    pub usage_per_minute: Option<NonZeroU32>,
    /// `GET /{short_id}/webhooks/status`.
    pub status_per_minute: Option<NonZeroU32>,
    /// `GET /links/{short_id}`.
    pub link_per_minute: Option<NonZeroU32>,
    /// The four endpoints of `/api-keys` together.
    pub api_keys_per_minute: Option<NonZeroU32>,
    /// Links that may be made in a month; `Some(0)` allows none at all.
    pub links_per_month: Option<u64>,
    /// Webhook deliveries in a month; `Some(0)` allows none at all.
    pub webhook_deliveries_per_month: Option<u64>,
    /// Live keys that a key may have made; 0 allows none at all.
    pub child_keys: u32,
}

impl Tier {
    fn read(settings: &mut Settings, section: &str) -> Result<Self, SettingError> {
        let mut rate = |key: &str| per_minute(settings, &format!("{section}.{key}"));
        Ok(Self {
            shorten_per_minute: rate("shorten_per_minute")?,
            analytics_per_minute: rate("analytics_per_minute")?,
            summary_per_minute: rate("summary_per_minute")?,
            usage_per_minute: rate("usage_per_minute")?,
            status_per_minute: rate("status_per_minute")?,
            link_per_minute: rate("link_per_minute")?,
            api_keys_per_minute: rate("api_keys_per_minute")?,
            links_per_month: settings.quota(&format!("{section}.links_per_month"))?,
            webhook_deliveries_per_month: settings.quota(&format!("{section}.webhook_deliveries_per_month"))?,
            child_keys: settings.integer(&format!("{section}.child_keys"), 0..=MOST_CHILD_KEYS)?,
        })
    }
}

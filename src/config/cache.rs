//! `[cache]`: settings of the caches in front of the store.

use std::time::Duration;

use super::{error::SettingError, layers::LayeredSettings};

/// The settings of the caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Maximum number of links. A long target counts more than once.
    pub links: u64,
    /// How long a link is answered from memory.
    pub links_ttl: Duration,
    /// How long an unknown short id is cached as unknown.
    pub missing_ttl: Duration,
    /// How long an API key is cached; at most 4 s.
    pub keys_ttl: Duration,
}

impl CacheConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let millisecond = Duration::from_millis(1);
        Ok(Self {
            links: settings.integer("cache.links", 1..=100_000_000)?,
            links_ttl: settings.duration("cache.links_ttl", Duration::from_millis(100)..=Duration::from_hours(24))?,
            missing_ttl: settings.duration("cache.missing_ttl", millisecond..=Duration::from_mins(1))?,
            // A revoked key is refused on every node within 5 s. One second of that is for the look-up.
            keys_ttl: settings.duration("cache.keys_ttl", millisecond..=Duration::from_secs(4))?,
        })
    }
}

//! `[limits]`: limits of requests by client.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{error::SettingError, layers::LayeredSettings};

/// The highest limit per minute. Above it, a window that stores each request would cost more memory than the limit
/// saves.
const MOST_PER_MINUTE: u32 = 1_000_000;

/// Requests allowed for each client in a sliding window of 60 s; `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// `GET /{short_id}`, over all links of this node.
    pub redirect_per_minute: Option<NonZeroU32>,
    /// Answers 401, of all endpoints together.
    pub unauthorized_per_minute: Option<NonZeroU32>,
    /// Capacity of each limit's table, in clients.
    pub table_size: usize,
    /// The limits of single endpoints, by the key of the setting.
    of_endpoints: BTreeMap<String, Option<NonZeroU32>>,
}

impl LimitsConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let mut rates = rates(settings, "limits")?;
        let mut own = |key| rates.remove(key).flatten();
        Ok(Self {
            redirect_per_minute: own("redirect_per_minute"),
            unauthorized_per_minute: own("unauthorized_per_minute"),
            of_endpoints: rates,
            table_size: settings.integer("limits.table_size", 1024..=1 << 28)?,
        })
    }

    /// The requests a minute that the setting with this key allows at an endpoint, such as `qr_per_minute`.
    pub fn per_minute(&self, key: &str) -> Option<NonZeroU32> {
        self.of_endpoints.get(key).copied().flatten()
    }

    /// The keys of the settings of single endpoints.
    pub fn rates(&self) -> impl Iterator<Item = &str> {
        self.of_endpoints.keys().map(String::as_str)
    }
}

/// A limit per minute; 0 means no limit.
fn per_minute(settings: &mut LayeredSettings, name: &str) -> Result<Option<NonZeroU32>, SettingError> {
    settings.integer(name, 0..=MOST_PER_MINUTE).map(NonZeroU32::new)
}

/// All settings of requests a minute of a section. The endpoints decide which exist: each names its setting.
pub(super) fn rates(
    settings: &mut LayeredSettings,
    section: &str,
) -> Result<BTreeMap<String, Option<NonZeroU32>>, SettingError> {
    let of_section = settings.iter().filter_map(|setting| setting.name().strip_prefix(section)?.strip_prefix('.'));
    let keys: Vec<String> = of_section.filter(|key| key.ends_with("_per_minute")).map(str::to_owned).collect();
    keys.into_iter().map(|key| per_minute(settings, &format!("{section}.{key}")).map(|limit| (key, limit))).collect()
}

//! `[limits]`: requests by client.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{error::SettingError, layers::Settings};

/// Highest limit per minute: beyond it a window that keeps each request would cost more memory
/// than the limit can save.
const MOST_PER_MINUTE: u32 = 1_000_000;

/// Requests let in for each client in a sliding 60 s; `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `GET /{short_id}`, over all links of this node.
    pub redirect_per_minute: Option<NonZeroU32>,
    /// Answers 401, of all endpoints together.
    pub unauthorized_per_minute: Option<NonZeroU32>,
    /// Clients that the table of each limit has room for.
    pub table_size: usize,
    /// Those of single endpoints, by the key of the setting.
    of_endpoints: BTreeMap<String, Option<NonZeroU32>>,
}

impl Limits {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        let mut rates = rates(settings, "limits")?;
        let mut own = |key| rates.remove(key).flatten();
        Ok(Self {
            redirect_per_minute: own("redirect_per_minute"),
            unauthorized_per_minute: own("unauthorized_per_minute"),
            of_endpoints: rates,
            table_size: settings.integer("limits.table_size", 1024..=1 << 28)?,
        })
    }

    /// The requests a minute that the setting of this key allows at an endpoint, such as `qr_per_minute`.
    pub fn per_minute(&self, key: &str) -> Option<NonZeroU32> {
        self.of_endpoints.get(key).copied().flatten()
    }

    /// The keys of the settings of single endpoints.
    pub fn rates(&self) -> impl Iterator<Item = &str> {
        self.of_endpoints.keys().map(String::as_str)
    }
}

/// A limit per minute, of which 0 is none.
fn per_minute(settings: &mut Settings, name: &str) -> Result<Option<NonZeroU32>, SettingError> {
    settings.integer(name, 0..=MOST_PER_MINUTE).map(NonZeroU32::new)
}

/// All settings of requests a minute of a section. Which there are is up to the endpoints: each of them names its own.
pub(super) fn rates(
    settings: &mut Settings,
    section: &str,
) -> Result<BTreeMap<String, Option<NonZeroU32>>, SettingError> {
    let of_section = settings.iter().filter_map(|setting| setting.name().strip_prefix(section)?.strip_prefix('.'));
    let keys: Vec<String> = of_section.filter(|key| key.ends_with("_per_minute")).map(str::to_owned).collect();
    keys.into_iter().map(|key| per_minute(settings, &format!("{section}.{key}")).map(|limit| (key, limit))).collect()
}

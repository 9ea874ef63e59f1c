//! `[limits]`: requests by client.

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
    /// `GET /{short_id}/qr`.
    pub qr_per_minute: Option<NonZeroU32>,
    /// Answers 401, of all endpoints together.
    pub unauthorized_per_minute: Option<NonZeroU32>,
    /// Clients that the table of each limit has room for.
    pub table_size: usize,
}

impl Limits {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self {
            redirect_per_minute: per_minute(settings, "limits.redirect_per_minute")?,
            qr_per_minute: per_minute(settings, "limits.qr_per_minute")?,
            unauthorized_per_minute: per_minute(settings, "limits.unauthorized_per_minute")?,
            table_size: settings.integer("limits.table_size", 1024..=1 << 28)?,
        })
    }
}

/// A limit per minute, of which 0 is none.
pub(super) fn per_minute(settings: &mut Settings, name: &str) -> Result<Option<NonZeroU32>, SettingError> {
    settings.integer(name, 0..=MOST_PER_MINUTE).map(NonZeroU32::new)
}

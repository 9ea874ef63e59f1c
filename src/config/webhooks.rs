//! `[webhooks]`: settings of the delivery of hits.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::{error::SettingError, layers::LayeredSettings};

/// The maximum number of delays between attempts.
const MOST_RETRIES: usize = 10;

/// Delivery settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhooksConfig {
    /// Networks that deliveries may reach although they are not public.
    pub allowed_networks: Vec<IpNet>,
    /// The file with the name servers for receivers. It may be missing.
    pub resolv_conf: PathBuf,
    /// Deliveries under way at once, over all receivers.
    pub workers: usize,
    /// Deliveries under way at once to one host.
    pub in_flight_per_host: usize,
    /// Maximum number of deliveries in memory; the others wait in the store.
    pub buffer: usize,
    /// Time limit of one attempt: connect, send and the answer's head together.
    pub timeout: Duration,
    /// The delay after each failed attempt except the last, before jitter. There is one attempt more than there are
    /// delays.
    pub retry_delays: Vec<Duration>,
    /// How many deliveries in a row, over at least a day, fail until a URL is suspended; `None`: it never is.
    pub suspend_after: Option<NonZeroU32>,
}

impl WebhooksConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let hour = Duration::from_hours(1);
        let workers = settings.integer("webhooks.workers", 1..=4096)?;
        let buffer = settings.integer("webhooks.buffer", 2..=65_536)?;
        if buffer < 2 * workers {
            let message = format!("{buffer} is less than twice {workers}");
            return Err(settings.conflict(&["webhooks.buffer", "webhooks.workers"], &message));
        }
        Ok(Self {
            allowed_networks: settings.networks("webhooks.allowed_networks")?,
            resolv_conf: settings
                .parsed("webhooks.resolv_conf", "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?,
            workers,
            buffer,
            in_flight_per_host: settings.integer("webhooks.in_flight_per_host", 1..=4096)?,
            timeout: settings.duration("webhooks.timeout", Duration::from_millis(10)..=Duration::from_mins(1))?,
            retry_delays: {
                let name = "webhooks.retry_delays";
                let delays = settings.durations(name, Duration::ZERO..=hour)?;
                if delays.len() > MOST_RETRIES {
                    let message = format!("has {} delays; the maximum is {MOST_RETRIES}", delays.len());
                    return Err(settings.conflict(&[name], &message));
                }
                delays
            },
            suspend_after: NonZeroU32::new(settings.integer("webhooks.suspend_after", 0..=1_000_000)?),
        })
    }
}

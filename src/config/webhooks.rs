//! `[webhooks]`: delivery of hits.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::{error::SettingError, layers::Settings};

/// Most waits between tries.
const MOST_RETRIES: usize = 10;

/// Delivery settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhooks {
    /// Networks that may be called though they are not public.
    pub allowed_networks: Vec<IpNet>,
    /// Says which name servers are asked for the addresses of receivers. It need not be there.
    pub resolv_conf: PathBuf,
    /// Deliveries under way at once, over all receivers.
    pub workers: usize,
    /// Deliveries under way at once to one host.
    pub in_flight_per_host: usize,
    /// Deliveries in memory at once, at most; the others wait in the store.
    pub buffer: usize,
    /// Longest time for one try: connect, send and the answer's head together.
    pub timeout: Duration,
    /// The wait after each failed try but the last, before it is varied; there is one try more
    /// than there are waits.
    pub retry_delays: Vec<Duration>,
}

impl Webhooks {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
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
                    let message = format!("has {} waits, at most {MOST_RETRIES}", delays.len());
                    return Err(settings.conflict(&[name], &message));
                }
                delays
            },
        })
    }
}

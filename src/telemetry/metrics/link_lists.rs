//! Metrics of lists and exports of links.

use metrics::Counter;

use super::catalogue::LISTED_LINKS;

/// Counts the links that lists look at, and those that they return.
#[derive(Clone)]
pub struct LinkListMeters {
    examined: Counter,
    returned: Counter,
}

impl LinkListMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let counter = |kind: &'static str| metrics::counter!(LISTED_LINKS.name, "kind" => kind);
        Self { examined: counter("examined"), returned: counter("returned") }
    }

    /// Counts a page.
    pub fn count(&self, examined: usize, returned: usize) {
        self.examined.increment(examined as u64);
        self.returned.increment(returned as u64);
    }
}

//! A histogram of atomics, for observations on every request by many threads.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::catalogue::Definition;

/// Upper bounds of the buckets in nanoseconds, from a redirect from memory to one that waits for an overloaded store.
const BOUNDS: [u64; 14] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
];

/// Durations sorted into buckets. An observation takes two atomic adds, without a lock or an allocation. The
/// recorder's own histograms store each observation until they are read, which takes 16 ns, and more if threads
/// contend; an atomic add takes 2 ns (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23).
#[derive(Debug, Default)]
pub struct AtomicHistogram {
    /// The last bucket has no upper bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl AtomicHistogram {
    pub fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The sum of all of them, as Prometheus text.
    pub(super) fn render<'a>(
        all: &(impl Iterator<Item = &'a Self> + Clone),
        Definition { name, kind, help, .. }: &Definition,
    ) -> String {
        let sum = |of: fn(&Self, usize) -> &AtomicU64, index| -> u64 {
            all.clone().map(|it| of(it, index).load(Ordering::Relaxed)).sum()
        };
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        let mut count = 0;
        for index in 0..=BOUNDS.len() {
            count += sum(|it, index| &it.buckets[index], index);
            let bound = BOUNDS.get(index).map_or("+Inf".to_owned(), |nanos| seconds(*nanos).to_string());
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_sum {}", seconds(sum(|it, _| &it.nanos, 0)));
        let _ = writeln!(text, "{name}_count {count}\n");
        text
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::REDIRECT_DURATION;
    use super::*;

    #[test]
    fn times_are_counted_in_every_bucket_that_holds_them() {
        let times = [AtomicHistogram::default(), AtomicHistogram::default()];
        for (nanos, thread) in [(0, 0), (10_000, 1), (10_001, 0), (6_000_000_000, 1)] {
            times[thread].observe(Duration::from_nanos(nanos));
        }
        let text = AtomicHistogram::render(&times.iter(), &REDIRECT_DURATION);
        for line in [
            "# TYPE signpost_redirect_duration_seconds histogram",
            "signpost_redirect_duration_seconds_bucket{le=\"0.00001\"} 2",
            "signpost_redirect_duration_seconds_bucket{le=\"0.000025\"} 3",
            "signpost_redirect_duration_seconds_bucket{le=\"5\"} 3",
            "signpost_redirect_duration_seconds_bucket{le=\"+Inf\"} 4",
            "signpost_redirect_duration_seconds_sum 6.000020001",
            "signpost_redirect_duration_seconds_count 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }
}

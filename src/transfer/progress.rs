//! Shows progress: a bar on a terminal, otherwise a line from time to time, in the log if there is one.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tracing::dispatcher;

const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Progress {
    doing: &'static str,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    reported_at: Instant,
}

impl Progress {
    /// For an unknown number of records.
    pub fn of_records(doing: &'static str) -> Self {
        Self::new(doing, None, "{spinner} {msg} {human_pos} records, {per_sec}")
    }

    pub fn of_bytes(doing: &'static str, total: u64) -> Self {
        Self::new(doing, Some(total), "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left")
    }

    fn new(doing: &'static str, total: Option<u64>, template: &str) -> Self {
        let is_for_people = io::stderr().is_terminal() && !dispatcher::has_been_set();
        let bar = is_for_people.then(|| {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_message(doing);
            // The templates above are valid; the default style would do as well.
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { doing, bar, total, reported_at: Instant::now() }
    }

    pub fn at(&mut self, position: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(position),
            None if self.reported_at.elapsed() >= LINE_EVERY => {
                self.reported_at = Instant::now();
                let done = match self.total {
                    Some(total) => format!("{} of 100", position * 100 / total.max(1)),
                    None => format!("{position} records"),
                };
                if dispatcher::has_been_set() {
                    tracing::info!(%done, "{}", self.doing);
                } else {
                    // Standard error may be closed.
                    let _ = writeln!(io::stderr(), "{}: {done}", self.doing);
                }
            }
            None => {}
        }
    }

    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

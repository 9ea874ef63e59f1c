//! How far it has come: a bar on a terminal, elsewhere a line now and then. Where there is a log, the line is one of the log's.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tracing::dispatcher;

const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Progress {
    doing: &'static str,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    told: Instant,
}

impl Progress {
    /// Where nobody knows how many there are.
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
            // The templates above are well formed; the usual one would do too.
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { doing, bar, total, told: Instant::now() }
    }

    pub fn at(&mut self, position: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(position),
            None if self.told.elapsed() >= LINE_EVERY => {
                self.told = Instant::now();
                let done = match self.total {
                    Some(total) => format!("{} of 100", position * 100 / total.max(1)),
                    None => format!("{position} records"),
                };
                if dispatcher::has_been_set() {
                    tracing::info!(%done, "{}", self.doing);
                } else {
                    // Nobody may be there to read it.
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

//! Cells that are measured by turns, and figures over their rounds.

use std::fmt::Write;

use super::{
    cell::{Cell, Run},
    measure::Figures,
};

/// Rounds of the peer of record that lie farther apart in CPU a request say that the machine had other work.
const MOST_SPREAD: f64 = 0.25;
/// Not measured: connections, caches, the clock of the CPU.
const WARM_UP_SECONDS: u32 = 1;

/// The runs of one cell, a round each.
pub struct Series {
    pub title: String,
    pub runs: Vec<Run>,
}

/// A figure of a run.
pub type Figure = fn(&Run) -> f64;

pub const CPU: Figure = |run| run.cpu;
pub const RATE: Figure = |run| run.per_second;

impl Series {
    pub fn figures(&self, of: impl Fn(&Run) -> f64) -> Figures {
        Figures(self.runs.iter().map(of).collect())
    }

    /// How many times `peer`'s figure this one's is, round by round.
    pub fn times(&self, peer: &Self, of: impl Fn(&Run) -> f64) -> Figures {
        Figures(self.runs.iter().zip(&peer.runs).map(|(own, peers)| of(own) / of(peers)).collect())
    }
}

/// Series by what they are called.
pub struct Block(Vec<Series>);

impl Block {
    /// Runs all cells in turn, again and again.
    pub fn run(cells: &[Cell], rounds: u32, seconds: u32) -> Result<Self, String> {
        for cell in cells {
            cell.run(WARM_UP_SECONDS, rounds)?;
        }
        let mut block: Vec<_> =
            cells.iter().map(|cell| Series { title: cell.title.clone(), runs: Vec::new() }).collect();
        for round in 0..rounds {
            eprintln!("round {} of {rounds}", round + 1);
            for (cell, series) in cells.iter().zip(&mut block) {
                series.runs.push(cell.run(seconds, round)?);
            }
        }
        Ok(Self(block))
    }

    pub fn get(&self, title: &str) -> Option<&Series> {
        self.0.iter().find(|series| series.title == title)
    }

    /// A series that is always measured.
    pub fn of(&self, title: &str) -> &Series {
        self.get(title).unwrap_or_else(|| panic!("{title} was not measured"))
    }

    /// Those of `titles` that were measured.
    pub fn some<'a>(&'a self, titles: &'a [&str]) -> impl Iterator<Item = &'a Series> {
        titles.iter().filter_map(|title| self.get(title))
    }
}

/// `Err` where the rounds of the peer of record lie too far apart.
pub fn check_spread(peer: &Series) -> Result<(), String> {
    let spread = peer.figures(CPU).spread();
    if spread > MOST_SPREAD {
        return Err(format!(
            "the rounds of {} lie {:.0} % apart in CPU a request, more than {:.0} %: the machine has other work",
            peer.title,
            spread * 100.0,
            MOST_SPREAD * 100.0
        ));
    }
    Ok(())
}

/// `min / median / max`.
pub fn three(figures: &Figures, decimals: usize) -> String {
    figures.cells(decimals).replace(" | ", " / ")
}

/// A table of series, each beside `peer`.
pub fn table<'a>(series: impl Iterator<Item = &'a Series>, peer: &Series) -> String {
    let mut text = format!(
        "Each as min / median / max over the rounds; × is the ratio to \"{}\" within the round.\n\n\
         | | CPU a request, µs | × | requests/s | × | p50, ms | p99, ms | p99.9, ms | resident, MiB (peak) | busy cores: server, wrk |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        peer.title
    );
    for series in series {
        let [p50, p99, p999] = [0, 1, 2].map(|at| three(&series.figures(|run| run.percentiles[at]), 2));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {p50} | {p99} | {p999} | {:.0} ({:.0}) | {:.2}, {:.2} |",
            series.title,
            three(&series.figures(CPU), 2),
            three(&series.times(peer, CPU), 2),
            three(&series.figures(RATE), 0),
            three(&series.times(peer, RATE), 2),
            series.figures(|run| run.resident).median(),
            series.figures(|run| run.peak).median(),
            series.figures(|run| run.busy).median(),
            series.figures(|run| run.generator_busy).median(),
        )
        .unwrap();
    }
    text + "\n"
}

//! Cells that are measured by turns, and figures over their rounds.

use std::fmt::Write;

use loadtests::measure::Figures;

use super::cell::{Cell, Run};

/// Rounds that lie farther apart in CPU a request say that the machine had other work.
const MOST_SPREAD: f64 = 0.25;
/// Not measured: connections, caches, the clock of the CPU.
const WARM_UP_SECONDS: u32 = 1;
/// A round of a cell is measured in pieces of this length, by turns with those of the other cells. A disturbance of the machine
/// that lasts some seconds then affects all cells.
pub const PIECE_SECONDS: u32 = 1;

/// The runs of one cell, a round each.
pub struct Series {
    pub title: String,
    pub runs: Vec<Run>,
}

/// A figure of a run.
pub type Figure = fn(&Run) -> f64;

pub const CPU: Figure = |run| run.cpu;
pub const RATE: Figure = |run| run.per_second;
pub const RESIDENT: Figure = |run| run.resident;
pub const P99: Figure = |run| run.percentiles[1];

impl Series {
    pub fn figures(&self, of: impl Fn(&Run) -> f64) -> Figures {
        Figures::of(&self.runs, of)
    }

    /// How many times `peer`'s figure this one's is, round by round.
    pub fn times(&self, peer: &Self, of: impl Fn(&Run) -> f64) -> Figures {
        self.figures(&of).times(&peer.figures(&of))
    }
}

/// Series by what they are called.
pub struct Block(Vec<Series>);

impl Block {
    /// Runs all cells in turn, again and again; each for `seconds` in a round.
    pub fn run(cells: &[Cell], rounds: u32, seconds: u32) -> Result<Self, String> {
        for cell in cells {
            cell.run(WARM_UP_SECONDS, rounds * seconds)?;
        }
        let mut block: Vec<_> =
            cells.iter().map(|cell| Series { title: cell.title.clone(), runs: Vec::new() }).collect();
        for round in 0..rounds {
            eprintln!("round {} of {rounds}", round + 1);
            let mut pieces = vec![Vec::new(); cells.len()];
            for piece in 0..seconds / PIECE_SECONDS {
                for (cell, runs) in cells.iter().zip(&mut pieces) {
                    // A cell with files runs once a round: to load or to drop its files takes far longer than a piece.
                    let length = match (&cell.files, piece) {
                        (None, _) => PIECE_SECONDS,
                        (Some(_), 0) => seconds,
                        (Some(_), _) => continue,
                    };
                    runs.push(cell.run(length, round * seconds + piece)?);
                }
            }
            for ((cell, runs), series) in cells.iter().zip(&pieces).zip(&mut block) {
                let run = Run::of(runs);
                eprintln!("{}: {run}", cell.title);
                series.runs.push(run);
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
    pub fn some<'a>(&'a self, titles: &'a [&str]) -> impl Iterator<Item = &'a Series> + Clone {
        titles.iter().filter_map(|title| self.get(title))
    }
}

/// `Err` where rounds lie too far apart: those of the peer of record, which say what else the machine did, or those of a ratio to
/// it, which say that the two did not meet the same machine.
pub fn check_spread(peer: &Series, own: &Series) -> Result<(), String> {
    for (whose, figures) in
        [(peer.title.clone(), peer.figures(CPU)), (format!("{} × it", own.title), own.times(peer, CPU))]
    {
        let spread = figures.spread();
        if spread > MOST_SPREAD {
            return Err(format!(
                "the rounds of {whose} lie {:.0} % apart in CPU a request, more than {:.0} %: the machine has other work",
                spread * 100.0,
                MOST_SPREAD * 100.0
            ));
        }
    }
    Ok(())
}

/// `min / median / max`.
pub fn three(figures: &Figures, decimals: usize) -> String {
    figures.cells(decimals).replace(" | ", " / ")
}

/// Tables of series, each beside `peer`: what they cost, and how fast their answers came.
pub fn tables<'a>(series: &(impl Iterator<Item = &'a Series> + Clone), peer: &Series) -> String {
    let columns: [(&str, Figure, usize); 7] = [
        ("CPU a request, µs", CPU, 2),
        ("requests/s", RATE, 0),
        ("resident, MiB", RESIDENT, 0),
        ("p50, ms", |run| run.percentiles[0], 2),
        ("p99, ms", P99, 2),
        ("p99.9, ms", |run| run.percentiles[2], 2),
        ("resident at most, MiB", |run| run.peak, 0),
    ];
    let mut text = format!(
        "Each as min / median / max over the rounds; × is the ratio to \"{}\" within the round.\n\n",
        peer.title
    );
    // Those that limit each other beside each other.
    for (columns, has_busy) in [(&columns[..3], true), (&columns[3..], false)] {
        let mut rows = vec![
            columns.iter().fold("|".to_owned(), |row, (name, ..)| row + " | " + name + " | ×"),
            "|---".repeat(1 + 2 * columns.len()),
        ];
        if has_busy {
            rows[0] += " | busy cores: server, generator";
            rows[1] += "|---";
        }
        for series in series.clone() {
            let mut row = format!("| {}", series.title);
            for (_, of, decimals) in columns {
                let figures = three(&series.figures(of), *decimals);
                write!(row, " | {figures} | {}", three(&series.times(peer, of), 2)).unwrap();
            }
            if has_busy {
                let busy = [|run: &Run| run.busy, |run: &Run| run.generator_busy].map(|of| series.figures(of).median());
                write!(row, " | {:.2}, {:.2}", busy[0], busy[1]).unwrap();
            }
            rows.push(row);
        }
        for row in rows {
            writeln!(text, "{row} |").unwrap();
        }
        text += "\n";
    }
    text
}

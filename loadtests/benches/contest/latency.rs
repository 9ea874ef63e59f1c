//! Latency of the hot redirect at a fixed rate: half of what nginx reached just before.

use std::fmt::Write;

use loadtests::{
    measure::Figures,
    open_loop::{self, Kept},
    operator,
};

use super::{
    Contest,
    block::{Block, PIECE_SECONDS, RATE, three},
    redirects::{Field, HOT, RECORD},
    report::Report,
};

/// Rounds for each of a closed loop: p99 is what a shared machine disturbs most.
const MORE: u32 = 2;

/// Of ten rounds, in how many the program is to be no worse than nginx.
const IN_MOST_ROUNDS: (usize, usize) = (9, 10);

/// The record peer, measured a second time in each round: how far two measurements of the same server lie apart.
const AGAIN: &str = "nginx, log, again";

/// Each round's run of one contestant.
pub struct Latencies {
    pub title: String,
    pub rounds: Vec<Kept>,
}

impl Latencies {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rounds: Vec::new() }
    }

    pub fn figures(&self, of: impl Fn(&Kept) -> f64) -> Figures {
        Figures::of(&self.rounds, of)
    }

    pub fn times(&self, peer: &Self, of: impl Fn(&Kept) -> f64) -> Figures {
        self.figures(&of).times(&peer.figures(&of))
    }
}

pub const P99: fn(&Kept) -> f64 = |kept| kept.percentiles[1];

/// A table of latencies; ratios are to `peer`.
pub fn table(all: &[Latencies], peer: &Latencies) -> String {
    let mut text = format!(
        "Each as min / median / max over the rounds, in ms; × is the ratio to \"{}\" within the round.\n\n\
         | | p50 | × | p99 | × | p99.9 | × | longest | generator late, p99 |\n|---|---|---|---|---|---|---|---|---|\n",
        peer.title
    );
    for series in all {
        let [p50, p99, p999] = [0, 1, 2].map(|at| {
            let of = |kept: &Kept| kept.percentiles[at];
            format!("{} | {}", three(&series.figures(of), 2), three(&series.times(peer, of), 2))
        });
        let longest = three(&series.figures(|kept| kept.percentiles[3]), 2);
        let late = three(&series.figures(|kept| kept.late), 3);
        writeln!(text, "| {} | {p50} | {p99} | {p999} | {longest} | {late} |", series.title).unwrap();
    }
    text + "\n"
}

pub fn measure(contest: &Contest, field: &Field, block: &Block, report: &mut Report) -> Result<(), String> {
    let per_second = block.of(RECORD).figures(RATE).median() / 2.0;
    let hot = contest.requests().hot();
    let record = field.servers().find(|server| server.name == RECORD).expect("the record peer");
    let measured = || field.servers().map(|server| (server, server.name)).chain([(record, AGAIN)]);
    let mut all: Vec<Latencies> = measured().map(|(_, title)| Latencies::new(title)).collect();
    for _ in 0..contest.options.rounds * MORE {
        let mut pieces = vec![Vec::new(); all.len()];
        for _ in 0..contest.options.seconds / PIECE_SECONDS {
            for ((server, title), pieces) in measured().zip(&mut pieces) {
                let before = server.operator.as_ref().map(operator::Operator::counts);
                let seconds = f64::from(PIECE_SECONDS);
                let kept = open_loop::run(server.address, &hot.texts, per_second, seconds, 302)?;
                server.rest()?;
                if let (Some(operator), Some(before)) = (&server.operator, before) {
                    let counts = operator.counts().since(before);
                    if (counts.found, counts.hits) != (kept.answered, kept.answered) {
                        return Err(format!("{} redirects were answered, and counted are {counts:?}", kept.answered));
                    }
                }
                contest.doubt(report, kept.check(title))?;
                pieces.push(kept);
            }
        }
        for (pieces, latencies) in pieces.iter().zip(&mut all) {
            let kept = Kept::of(pieces);
            eprintln!("{} at {per_second:.0}/s: {kept:?}", latencies.title);
            latencies.rounds.push(kept);
        }
    }
    let pieces = contest.options.seconds / PIECE_SECONDS;
    let of = |title: &str| all.iter().find(|series| series.title == title).expect("every contestant was measured");
    report.add(&format!(
        "## Latency at {per_second:.0} requests a second, pinned\n\nHalf of what \"{RECORD}\" has reached above, the same for \
         all, on a schedule that is fixed in advance. A request's time counts from when it was due. A round has {pieces} pieces of \
         {PIECE_SECONDS} s of each, by turns; its percentiles are the medians of theirs, and its longest is the longest of all.\n\n"
    ));
    report.add(&table(&all, of(RECORD)));
    let again = of(AGAIN).times(of(RECORD), P99);
    let no_worse = again.0.iter().filter(|ratio| **ratio <= 1.0).count();
    report.add(&format!(
        "\"{AGAIN}\" is the same server as \"{RECORD}\", measured once more in each round: its p99 is no worse than its own in {no_worse} of {} \
         rounds.\n\n",
        again.0.len()
    ));
    report.plot(
        "latency",
        &format!("p99 at {per_second:.0} redirects a second, pinned"),
        "ms, min / median / max over the rounds",
        all.iter().map(|series| (&*series.title, series.figures(P99))),
        None,
    );
    report.at_most_in(
        "Latency at half of nginx's throughput: p99, × nginx",
        1.0,
        &of(HOT).times(of(RECORD), P99),
        IN_MOST_ROUNDS,
    );
    Ok(())
}

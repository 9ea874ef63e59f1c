//! The course of the run: what clients noticed of the faults, how soon it was over, and what the memory did.

use loadtests::measure::Figures;

use super::{claims::Claim, faults::Past, sample::Sample, traffic::Second};

/// Seconds in a row that have to be good for a fault to be over.
const GOOD: usize = 3;
/// Within this after the end of a fault every request is answered as ever.
const ANSWERS_WITHIN: f64 = 10.0;
/// What waits to be counted or delivered is little again when it is no more than this.
const FEW_BYTES: f64 = (4 << 20) as f64;
const FEW_DELIVERIES: f64 = 2_000.0;
/// How much more may be resident in the last third of a process's life than in its middle third, and for how many faults' periods
/// it has to last for that to be told.
const MOST_GROWTH: f64 = 0.05;
const LONG_LIFE: f64 = 10.0;

pub struct Course<'a> {
    pub faults: &'a [Past],
    pub seconds: &'a [Second],
    pub samples: &'a [Sample],
    /// Seconds from one fault to the next.
    pub period: f64,
}

/// What clients noticed of a fault.
pub struct Noticed {
    /// While it lasted and until all was well.
    pub failed: u64,
    pub cut: u64,
    pub unsent: u64,
    /// Redirects a second, the least of a second, and the highest p99 of one, in milliseconds.
    pub least_redirects: u64,
    pub worst_p99: f64,
    /// Seconds from its end until every request was answered, and until little waited; `None` where that was not before the
    /// next fault.
    pub answers_after: Option<f64>,
    pub worked_off_after: Option<f64>,
}

impl Course<'_> {
    /// Until when a fault can be told from the next.
    fn end_of(&self, index: usize) -> f64 {
        self.faults.get(index + 1).map_or(f64::INFINITY, |next| next.from)
    }

    /// When all was well again after a fault.
    fn well_again(&self, index: usize) -> Option<f64> {
        let after: Vec<_> = self.seconds.iter().filter(|second| second.at + 1.0 >= self.faults[index].to).collect();
        let good = after.windows(GOOD).find(|window| window.iter().all(|second| second.errors() == 0))?;
        let at = good[0].at.max(self.faults[index].to);
        (at < self.end_of(index)).then_some(at)
    }

    pub fn noticed(&self, index: usize) -> Noticed {
        let Past { from, to, .. } = self.faults[index];
        let well = self.well_again(index);
        let end = well.unwrap_or(self.end_of(index));
        let inside = || self.seconds.iter().filter(move |second| second.at + 1.0 > from && second.at < end.max(to));
        let few = |sample: &&Sample| {
            let is_few = |number: Option<f64>, few| number.is_some_and(|number| number <= few);
            sample.at >= to && is_few(sample.unread, FEW_BYTES) && is_few(sample.pending, FEW_DELIVERIES)
        };
        let worked_off = self.samples.iter().find(few).map(|sample| sample.at).filter(|at| *at < self.end_of(index));
        Noticed {
            failed: inside().map(|second| second.failed).sum(),
            cut: inside().map(|second| second.cut).sum(),
            unsent: inside().map(|second| second.unsent).sum(),
            least_redirects: inside().map(|second| second.redirects).min().unwrap_or_default(),
            worst_p99: inside().map(|second| second.latency[1]).fold(0.0, f64::max),
            answers_after: well.map(|at| at - to),
            worked_off_after: worked_off.map(|at| at - to),
        }
    }

    pub fn claims(&self) -> Vec<Claim> {
        vec![self.unseen(), self.quiet(), self.recovery(), self.resident()]
    }

    /// Some faults are no clients' business.
    fn unseen(&self) -> Claim {
        let unseen = || self.faults.iter().enumerate().filter(|(_, past)| past.fault.is_unseen_by_clients());
        let errors = |index| {
            let Noticed { failed, cut, unsent, .. } = self.noticed(index);
            failed + cut + unsent
        };
        let noticed: Vec<_> = unseen().filter(|(index, past)| errors(*index) > 0 || !past.as_expected).collect();
        let against = noticed.iter().map(|(index, past)| {
            format!("; {} at {:.0} s: {} errors; {}", past.fault, past.from, errors(*index), past.note)
        });
        Claim {
            what: "Dead receivers, moved clocks, idle and slow connections cost no request of the traffic its answer",
            held: Some(noticed.is_empty()),
            figures: format!("{} such faults{}", unseen().count(), against.collect::<String>()),
        }
    }

    fn quiet(&self) -> Claim {
        let in_a_fault = |second: &Second| {
            self.faults.iter().enumerate().any(|(index, past)| {
                let end = self.well_again(index).unwrap_or(self.end_of(index));
                second.at + 1.0 > past.from && second.at < end
            })
        };
        let outside: Vec<_> = self.seconds.iter().filter(|second| !in_a_fault(second)).collect();
        let errors: u64 = outside.iter().map(|second| second.errors()).sum();
        let bad = outside.iter().filter(|second| second.errors() > 0);
        let when: Vec<_> = bad.map(|second| format!("{:.0} s", second.at)).collect();
        Claim {
            what: "Outside of faults every request of the traffic is answered",
            held: Some(errors == 0),
            figures: format!("{} s outside, {errors} requests without, at [{}]", outside.len(), when.join(", ")),
        }
    }

    fn recovery(&self) -> Claim {
        let all: Vec<_> = (0..self.faults.len()).map(|index| self.noticed(index)).collect();
        let longest = |of: fn(&Noticed) -> Option<f64>| {
            all.iter().map(|noticed| of(noticed).unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
        };
        let (answers, worked_off) = (longest(|one| one.answers_after), longest(|one| one.worked_off_after));
        Claim {
            what: "After each fault all requests are answered within 10 s, and what waited is worked off before the next fault",
            held: Some(answers <= ANSWERS_WITHIN && worked_off.is_finite()),
            figures: format!("after {answers:.1} s and {worked_off:.1} s at the latest"),
        }
    }

    /// The lives of the process that are long enough to tell how its memory grows.
    pub fn long_lives(&self) -> Vec<Life> {
        let near_a_fault = |sample: &Sample| {
            let is_near = |past: &Past| sample.at > past.from - 1.0 && sample.at < past.to + self.period / 6.0;
            self.faults.iter().any(is_near)
        };
        // What is sampled after the last fault's period is the drain.
        let end = self.faults.len() as f64 * self.period;
        let alive: Vec<_> = self.samples.iter().filter(|one| one.resident > 0.0 && one.at < end).collect();
        let lives = alive.chunk_by(|one, next| one.process == next.process);
        let long = lives.filter_map(|life| Some((life.first()?.at, life.last()?.at, life)));
        let of = |(from, to, life): (f64, f64, &[&Sample])| {
            let third = |number: f64| {
                let begin = from + (to - from) * number / 3.0;
                let inside = |one: &&&Sample| one.at >= begin && one.at <= begin + (to - from) / 3.0;
                let quiet: Vec<_> = life.iter().filter(inside).filter(|sample| !near_a_fault(sample)).collect();
                let figures = |of: fn(&&&Sample) -> f64| Figures(quiet.iter().map(of).collect());
                Resident { anonymous: figures(|one| one.anonymous), all: figures(|one| one.resident) }
            };
            Life { from, to, thirds: [third(1.0), third(2.0)] }
        };
        let lives = long.filter(|(from, to, _)| to - from >= LONG_LIFE * self.period).map(of);
        lives.filter(|life| life.thirds.iter().all(|third| !third.anonymous.0.is_empty())).collect()
    }

    fn resident(&self) -> Claim {
        let medians = |life: &Life| life.thirds.each_ref().map(Resident::median);
        let lives: Vec<_> = self.long_lives().iter().map(medians).collect();
        let most = lives.iter().map(|[middle, last]| last / middle - 1.0).fold(f64::NAN, f64::max);
        let shown: Vec<_> = lives.iter().map(|[middle, last]| format!("{middle:.0} → {last:.0}")).collect();
        Claim {
            what: "Resident memory is flat after warm-up: in each life of the process of at least ten faults its median grows by at \
                   most a twentieth from the middle third to the last",
            held: (!lives.is_empty()).then_some(most <= MOST_GROWTH),
            figures: format!("without mapped files, MiB: {}; by {:.1} % at most", shown.join(", "), most * 100.0),
        }
    }
}

/// A long life of the process, in seconds since the traffic began.
pub struct Life {
    pub from: f64,
    pub to: f64,
    /// The middle third and the last.
    pub thirds: [Resident; 2],
}

/// Sizes in MiB.
pub struct Resident {
    pub anonymous: Figures,
    pub all: Figures,
}

impl Resident {
    fn median(&self) -> f64 {
        self.anonymous.median()
    }
}

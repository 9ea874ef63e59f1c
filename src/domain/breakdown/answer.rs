//! The hits of a breakdown.

use std::collections::HashMap;

use super::dimension::{Dimension, LabelForm};
use super::sheet::{Sheet, kept_text};
use crate::domain::analytics::{Labelled, by_count};
use crate::domain::hit::{DeviceHits, OTHER_LABEL};
use crate::domain::tally::{BotFilter, Tally};

/// A breakdown: `total` is the sum of the labels and of the four other numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakdownAnswer {
    pub dimension: Dimension,
    pub total: u64,
    /// Hits whose labels are not known any more, because there were too many different ones.
    pub other: u64,
    /// Hits without a label.
    pub none: u64,
    /// Hits of visitors who want no tracking.
    pub private: u64,
    /// Hits with labels that come after those in `labels`.
    pub more: u64,
    /// By count, then by label.
    pub labels: Vec<Labelled>,
}

/// The hits of a range by one dimension, while they are read.
///
/// Days and lists of months may come in any order and in any number of parts, such as one for each node that counts.
/// Hits that are counted by day and have no label are `none`: also those of days and months in which the dimension
/// was not noted yet.
#[derive(Debug)]
pub struct Breakdown {
    dimension: Dimension,
    hits: Tally,
    labels: HashMap<String, Tally>,
    other: Tally,
    private: Tally,
}

impl Breakdown {
    pub fn of(dimension: Dimension) -> Self {
        Self {
            dimension,
            hits: Tally::default(),
            labels: HashMap::new(),
            other: Tally::default(),
            private: Tally::default(),
        }
    }

    /// Counts the hits of a day of the range.
    pub fn add_day(&mut self, devices: DeviceHits) {
        for (code, tally) in devices.0.into_iter().enumerate() {
            self.hits += tally;
            if let (Dimension::Device, LabelForm::Codes(labels)) = (self.dimension, self.dimension.form()) {
                self.add_to(labels.get(code).copied(), tally);
            }
        }
    }

    /// Notes the labels of a day whose sheet is to be read: see [`BreakdownReads`](super::BreakdownReads).
    pub fn add_sheet<T: AsRef<str>>(&mut self, sheet: &Sheet<T>) {
        // Devices are counted by day.
        if self.dimension == Dimension::Device {
            return;
        }
        for entry in sheet.of(self.dimension) {
            self.add_to(entry.label.text(self.dimension), entry.tally);
        }
        if self.dimension.is_of_visitor() {
            self.private += sheet.private();
        }
    }

    /// Notes a label of a month whose lists are to be read.
    pub fn add_label(&mut self, label: &str, tally: Tally) {
        if self.dimension != Dimension::Device {
            self.add_to(Some(label).filter(|label| *label != OTHER_LABEL && !label.is_empty()), tally);
        }
    }

    /// Notes hits of a month, of visitors who want no tracking.
    pub fn add_private(&mut self, tally: Tally) {
        if self.dimension.is_of_visitor() {
            self.private += tally;
        }
    }

    /// `None`: the label is not known.
    fn add_to(&mut self, label: Option<&str>, tally: Tally) {
        let Some(label) = label.map(kept_text) else {
            self.other += tally;
            return;
        };
        match self.labels.get_mut(label) {
            Some(sum) => *sum += tally,
            None => {
                self.labels.insert(label.to_owned(), tally);
            }
        }
    }

    /// The first `limit` labels of the hits that `bots` means.
    pub fn answer(self, bots: BotFilter, limit: usize) -> BreakdownAnswer {
        // Labels may be read a moment after the hits. Persons and bots are compared each for themselves, so that the answers
        // without and with only bots add up to that of all.
        let noted: Tally = self.labels.values().copied().chain([self.other, self.private]).sum();
        let hits = Tally { persons: self.hits.persons.max(noted.persons), bots: self.hits.bots.max(noted.bots) };
        let counts = self.labels.into_iter().map(|(label, tally)| (label, bots.of(tally)));
        let mut labels: Vec<Labelled> = counts.filter(|(_, count)| *count > 0).collect();
        let order = |a: &Labelled, b: &Labelled| by_count((&a.0, a.1), (&b.0, b.1));
        let sum = |labels: &[Labelled]| labels.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let labelled = sum(&labels);
        if limit < labels.len() {
            labels.select_nth_unstable_by(limit, order);
            labels.truncate(limit);
        }
        labels.sort_unstable_by(order);
        let more = labelled - sum(&labels);
        let (other, private) = (bots.of(self.other), bots.of(self.private));
        let total = bots.of(hits);
        let none = total.saturating_sub(bots.of(noted));
        BreakdownAnswer { dimension: self.dimension, total, other, none, private, more, labels }
    }
}

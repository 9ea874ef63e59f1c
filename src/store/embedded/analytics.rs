//! Reads the counts of links and keys. All rows of an answer are of one snapshot.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use fjall::Snapshot;

use super::counts::{CountTable, decode};
use crate::domain::analytics::{Labelled, shortened};
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension, LabelList, MonthSpan, PRIVATE_LABEL};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{DayCount, HitSubject, LinkHits, OTHER_LABEL};
use crate::domain::link::ShortId;
use crate::domain::series::{SeriesAnswer, SeriesRange, SeriesSums};
use crate::domain::tally::{BotFilter, Tally};
use crate::store::StoreError;
use crate::store::records::counts::{Counts, WholeCounts};

const ALL_DAYS: RangeInclusive<Day> = Day(0)..=Day(u32::MAX);

/// Reads counts of one link or key.
pub struct CountReader<'a> {
    pub table: &'a CountTable,
    pub snapshot: &'a Snapshot,
    pub of: HitSubject,
}

impl CountReader<'_> {
    pub fn link_hits(
        table: &CountTable,
        snapshot: &Snapshot,
        link: ShortId,
        labels: Option<BotFilter>,
    ) -> Result<LinkHits, StoreError> {
        let of = HitSubject::Link(link);
        let reader = CountReader { table, snapshot, of };
        let row = table.row(snapshot, of)?;
        let counts = decode(row.as_ref())?;
        let mut hits = LinkHits::default();
        reader.each_day(&counts, ALL_DAYS, |day| {
            hits.days.push((day.day, day.devices));
            Ok(())
        })?;
        for dimension in labels.map(|_| Dimension::LISTED).into_iter().flatten() {
            let list = reader.top_labels(&counts, dimension, labels.unwrap_or_default())?;
            hits.labels.push((dimension, list));
        }
        Ok(hits)
    }

    pub fn series(&self, range: &SeriesRange, bots: BotFilter) -> Result<SeriesAnswer, StoreError> {
        let row = self.table.row(self.snapshot, self.of)?;
        let mut sums = SeriesSums::new(range, bots);
        self.each_day(&decode(row.as_ref())?, range.days(), |DayCount { day, devices, quarters, .. }| {
            if range.needs_quarters(day) {
                sums.add_quarters(day, &quarters);
            } else {
                sums.add_day(day, devices.total());
            }
            Ok(())
        })?;
        Ok(sums.answer())
    }

    pub fn breakdown(&self, dimension: Dimension, range: BreakdownRange) -> Result<Breakdown, StoreError> {
        let row = self.table.row(self.snapshot, self.of)?;
        let counts = decode(row.as_ref())?;
        let mut breakdown = Breakdown::of(dimension);
        let (from, until) =
            (range.from().unwrap_or(Day(0)), range.until().map_or(Day(u32::MAX), |until| until.minus(1)));
        self.each_day(&counts, from..=until, |day| {
            breakdown.add_day(day.devices);
            Ok(())
        })?;
        if dimension == Dimension::Device {
            return Ok(breakdown);
        }
        let reads = range.reads();
        for days in reads.days {
            self.table.each_sheet(self.snapshot, (self.of, &counts), days, |sheet| breakdown.add_sheet(sheet))?;
        }
        if let Some(months) = reads.months {
            self.each_label(&counts, LabelList::Of(dimension), months, |label, _, tally| {
                breakdown.add_label(label, tally);
            })?;
            if dimension.is_of_visitor() {
                self.each_label(&counts, LabelList::Private, months, |_, _, tally| breakdown.add_private(tally))?;
            }
        }
        Ok(breakdown)
    }

    #[cfg(test)]
    pub fn all_days(&self, mut read: impl FnMut(DayCount)) -> Result<(), StoreError> {
        let row = self.table.row(self.snapshot, self.of)?;
        self.each_day(&decode(row.as_ref())?, ALL_DAYS, |day| {
            read(day);
            Ok(())
        })
    }

    #[cfg(test)]
    pub fn all_labels(&self, list: LabelList, read: impl FnMut(&str, Month, Tally)) -> Result<(), StoreError> {
        let row = self.table.row(self.snapshot, self.of)?;
        self.each_label(&decode(row.as_ref())?, list, MonthSpan { first: None, end: None }, read)
    }

    /// Calls `read` with the days that have hits, oldest first.
    fn each_day(
        &self,
        counts: &Counts<'_>,
        days: RangeInclusive<Day>,
        mut read: impl FnMut(DayCount) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match counts {
            Counts::Spilled => self.table.days.between(self.snapshot, self.of, days).try_for_each(|day| read(day?)),
            Counts::Inline(whole) => {
                let mut of_range: Vec<_> = whole.day_counts(self.of).filter(|day| days.contains(&day.day)).collect();
                of_range.sort_unstable_by_key(|day| day.day);
                of_range.into_iter().try_for_each(read)
            }
        }
    }

    /// Calls `read` with the labels of a list in some months.
    fn each_label(
        &self,
        counts: &Counts<'_>,
        list: LabelList,
        months: MonthSpan,
        mut read: impl FnMut(&str, Month, Tally),
    ) -> Result<(), StoreError> {
        match counts {
            Counts::Spilled => self.table.labels.each(self.snapshot, self.of, list, |label, month, tally| {
                if months.has(month) {
                    read(label, month, tally);
                }
            }),
            Counts::Inline(whole) => {
                whole.each_label(list, |label, month, tally| {
                    if months.has(month) {
                        read(label, month, tally);
                    }
                });
                Ok(())
            }
        }
    }

    /// The first labels of a list since the first hit, by the hits that `bots` means.
    fn top_labels(
        &self,
        counts: &Counts<'_>,
        dimension: Dimension,
        bots: BotFilter,
    ) -> Result<Vec<Labelled>, StoreError> {
        let list = LabelList::Of(dimension);
        if let (Counts::Spilled, BotFilter::Include) = (counts, bots) {
            return self.table.labels.shown(self.snapshot, self.of, list);
        }
        let mut totals = HashMap::<String, u64>::new();
        let all = MonthSpan { first: None, end: None };
        self.each_label(counts, list, all, |label, _, tally| match totals.get_mut(label) {
            Some(total) => *total += bots.of(tally),
            None => drop(totals.insert(label.to_owned(), bots.of(tally))),
        })?;
        totals.retain(|_, total| *total > 0);
        Ok(shortened(totals.into_iter().collect()))
    }
}

impl WholeCounts<'_> {
    /// Calls `read` with the labels of a list.
    fn each_label(&self, list: LabelList, mut read: impl FnMut(&str, Month, Tally)) {
        for (month, sheet) in &self.months {
            match list {
                LabelList::Private if sheet.private().is_zero() => {}
                LabelList::Private => read(PRIVATE_LABEL, *month, sheet.private()),
                LabelList::Of(dimension) => {
                    for entry in sheet.of(dimension) {
                        read(entry.label.text(dimension).unwrap_or(OTHER_LABEL), *month, entry.tally);
                    }
                }
            }
        }
    }
}

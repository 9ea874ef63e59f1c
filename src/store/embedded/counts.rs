//! The counts of a link or key: all in one row, while that is short.
//!
//! Most links have few hits, and with many links, most hits are of such a link. Then one row is read, written and
//! merged for each hit, instead of one for its day and one for each of its labels. A row that would become longer than
//! [`MOST_BYTES`] is spilled to the tables of days and of labels, and is marked as spilled from then on.
//! [`SpillBudget`] bounds how much a batch spills: rows that exceed the length beyond that are spilled by a later
//! batch.
//!
//! The sheet of a day has no row of its own as long as the day is the only one of its month with hits, and the month is in
//! the row of all counts: the month's sheet is the day's then. So a hit of a link that is hit on one day a month writes
//! one row.

use std::ops::Range;

use fjall::{Keyspace, Slice};

use super::days::{DayTable, has_old_quarters};
use super::engine::Engine;
use super::labels::LabelTable;
use super::sheets::SheetTable;
use super::transaction::{MAX_ROW, RowReader, Transaction};
use crate::domain::breakdown::{Dimension, LabelList, PRIVATE_LABEL, Sheet, SheetLabel, kept_text};
use crate::domain::calendar::{Day, Month};
use crate::domain::device::Device;
use crate::domain::hit::{DayCount, DayHits, HitSubject, LabelCount, OTHER_LABEL};
use crate::domain::quarters::QuarterHits;
use crate::domain::tally::Tally;
use crate::store::StoreError;
use crate::store::records::counts::{self as records, Counts, SPILLED_ROW, WholeCounts, WholeDay};
use crate::store::records::{row_keys, sheets};

/// A longer row is to be spilled: this is about the length of all rows that a hit of a spilled link with its place writes.
const MOST_BYTES: usize = 1_024;
/// A batch with more days and labels of a link spills it: each takes at least three bytes.
const MOST_ENTRIES: usize = MOST_BYTES / 3;

/// How many rows may still be written for links that are spilled. A link that no longer fits into any row is spilled
/// regardless.
struct SpillBudget(usize);

impl SpillBudget {
    /// As many as the longest batch writes itself.
    const BATCH: Self = Self(50_000);
    /// For few links.
    const UNLIMITED: Self = Self(usize::MAX);
}

/// Decodes a row. Without one, nothing is counted yet.
pub fn decode(row: Option<&Slice>) -> Result<Counts<'_>, StoreError> {
    row.map_or_else(|| Ok(Counts::Inline(WholeCounts::default())), |row| records::decode(row))
}

impl WholeCounts<'_> {
    pub fn day_counts(&self, of: HitSubject) -> impl Iterator<Item = DayCount> {
        self.days.iter().map(move |WholeDay { day, devices, quarters }| DayCount {
            of,
            day: *day,
            devices: *devices,
            quarters: quarters.clone(),
        })
    }

    fn label_counts(&self, of: HitSubject) -> impl Iterator<Item = LabelCount> {
        self.months.iter().flat_map(move |(month, sheet)| {
            let month = *month;
            labels_of(sheet).map(move |(list, label, tally)| LabelCount { of, month, list, label: label.into(), tally })
        })
    }

    /// The sheet of a day that is the only one of its month: it is the month's, which has no devices. A row of that sheet, if there
    /// is one, is out of date.
    pub fn sheet_of_only_day(&self, day: Day) -> Option<Sheet<&str>> {
        let only = self.only_day(day)?;
        let mut sheet = Sheet::default();
        if let Some((_, month)) = self.months.iter().find(|(month, _)| *month == day.month()) {
            // A month has more texts than the sheet of a day may have.
            sheet.add_within_bounds(month);
        }
        for device in Device::ALL {
            sheet.add(Dimension::Device, SheetLabel::Code(device as u8), only.devices.0[device as usize]);
        }
        Some(sheet)
    }

    /// The counts of a day, if it is the only one of its month.
    pub fn only_day(&self, day: Day) -> Option<&WholeDay> {
        self.days.iter().find(|known| known.day == day).filter(|_| self.other_day_of_month(day).is_none())
    }

    /// Another day of the month of `day`.
    fn other_day_of_month(&self, day: Day) -> Option<Day> {
        self.days.iter().map(|known| known.day).find(|known| *known != day && known.month() == day.month())
    }

    fn entries(&self) -> usize {
        self.days.len() + self.months.iter().map(|(_, sheet)| sheet.entries().len() + 1).sum::<usize>()
    }

    /// Drops what is too old, now that there are hits of `newest`.
    fn drop_old_quarters(&mut self, newest: Day) {
        for day in self.days.iter_mut().filter(|day| has_old_quarters(day.day, newest)) {
            day.quarters = QuarterHits::default();
        }
    }
}

/// The labels of a sheet by the list of the month that has them, in the order of lists. Devices have no list.
pub fn labels_of<T: AsRef<str>>(sheet: &Sheet<T>) -> impl Iterator<Item = (LabelList, &str, Tally)> {
    let entries = sheet.entries().iter().filter(|entry| entry.dimension != Dimension::Device);
    let labels =
        entries.map(|entry| (LabelList::Of(entry.dimension), label_text(&entry.label, entry.dimension), entry.tally));
    let private = Some((LabelList::Private, PRIVATE_LABEL, sheet.private())).filter(|(.., tally)| !tally.is_zero());
    labels.chain(private)
}

fn label_text<T: AsRef<str>>(label: &SheetLabel<T>, dimension: Dimension) -> &str {
    label.text(dimension).unwrap_or(OTHER_LABEL)
}

/// The counts of all links and keys.
#[derive(Clone)]
pub struct CountTable {
    counts: Keyspace,
    pub days: DayTable,
    pub labels: LabelTable,
    pub sheets: SheetTable,
}

impl CountTable {
    pub fn new(engine: &Engine, sheet_days: u32) -> Self {
        Self {
            counts: engine.keyspaces.counts.clone(),
            days: DayTable::new(engine),
            labels: LabelTable::new(engine),
            sheets: SheetTable::new(engine, sheet_days),
        }
    }

    /// Counts a batch of many links.
    pub fn count_batch<'a, 't>(&'a self, transaction: &'a mut Transaction<'t>) -> HitAdder<'a, 't> {
        HitAdder { table: self, transaction, budget: SpillBudget::BATCH, is_import: false }
    }

    /// Counts what another store has counted.
    pub fn import<'a, 't>(&'a self, transaction: &'a mut Transaction<'t>) -> HitAdder<'a, 't> {
        HitAdder { table: self, transaction, budget: SpillBudget::UNLIMITED, is_import: true }
    }

    /// The row of a link or key; there is none before its first hit.
    pub fn row(&self, from: &impl RowReader, of: HitSubject) -> Result<Option<Slice>, StoreError> {
        match of {
            HitSubject::Link(link) => from.row(&self.counts, link.0),
            HitSubject::Key(_) => from.row(&self.counts, row_keys::subject(of)),
        }
    }

    /// Calls `read` with the sheet of each day of a range that has one.
    pub fn each_sheet(
        &self,
        from: &impl RowReader,
        (of, counts): (HitSubject, &Counts<'_>),
        days: Range<Day>,
        mut read: impl FnMut(&Sheet<&str>),
    ) -> Result<(), StoreError> {
        for day in (days.start.0..days.end.0).map(Day) {
            if let Counts::Inline(whole) = counts
                && let Some(sheet) = whole.sheet_of_only_day(day)
            {
                read(&sheet);
            } else if let Some(value) = self.sheets.bytes(from, day, of)? {
                read(&sheets::decode(&value)?);
            }
        }
        Ok(())
    }

    /// The days and labels in a row: none if they are spilled.
    pub fn read(of: HitSubject, row: &[u8]) -> Result<(Vec<DayCount>, Vec<LabelCount>), StoreError> {
        match records::decode(row)? {
            Counts::Inline(whole) => Ok((whole.day_counts(of).collect(), whole.label_counts(of).collect())),
            Counts::Spilled => Ok(Default::default()),
        }
    }
}

/// Counts hits in a transaction.
pub struct HitAdder<'a, 't> {
    table: &'a CountTable,
    transaction: &'a mut Transaction<'t>,
    budget: SpillBudget,
    /// Sheets of an import come as records of their own.
    is_import: bool,
}

impl HitAdder<'_, '_> {
    /// Adds hits of one link or key, of different days.
    pub fn add(&mut self, of: HitSubject, days: &[DayHits]) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, of)?;
        if let Counts::Inline(mut whole) = decode(row.as_ref())? {
            if days.iter().map(|day| 1 + day.sheet.entries().len()).sum::<usize>() <= MOST_ENTRIES {
                for hits in days {
                    self.add_sheet(&whole, hits)?;
                    whole.drop_old_quarters(hits.day);
                    let day = whole.day(hits.day);
                    day.devices += hits.devices;
                    day.quarters.add_all(&hits.quarters);
                    whole.month(hits.day.month()).add_to_month(&hits.sheet);
                }
                return self.write(of, &whole);
            }
            self.spill(of, &whole)?;
        }
        for hits in days {
            self.table.sheets.add(self.transaction, hits)?;
            self.table.days.add(self.transaction, hits)?;
            self.add_labels(of, hits.day.month(), &hits.sheet)?;
        }
        Ok(())
    }

    /// Adds hits that are not in `whole` yet to the sheet of their day, if that has a row.
    fn add_sheet(&mut self, whole: &WholeCounts<'_>, hits: &DayHits) -> Result<(), StoreError> {
        let Some(other) = whole.other_day_of_month(hits.day) else { return Ok(()) };
        self.write_only_day(hits.of, whole, other)?;
        self.table.sheets.add(self.transaction, hits)
    }

    /// Writes the sheet of a day that is not to be the only one of its month any more, or not in the row of all counts.
    fn write_only_day(&mut self, of: HitSubject, whole: &WholeCounts<'_>, day: Day) -> Result<(), StoreError> {
        let sheets = &self.table.sheets;
        match whole.sheet_of_only_day(day).filter(|_| sheets.is_kept() && !self.is_import) {
            Some(sheet) => sheets.set(self.transaction, of, day, &sheet),
            None => Ok(()),
        }
    }

    /// Adds the labels of a sheet to the lists of a month.
    fn add_labels<T: AsRef<str>>(&mut self, of: HitSubject, month: Month, sheet: &Sheet<T>) -> Result<(), StoreError> {
        let labels: Vec<_> = labels_of(sheet).collect();
        for labels in labels.chunk_by(|(a, ..), (b, ..)| a == b) {
            let added = labels.iter().map(|(_, label, tally)| (*label, *tally));
            self.table.labels.add(self.transaction, (of, labels[0].0), month, added)?;
        }
        Ok(())
    }

    /// Replaces the hits of a day by those that another store has counted.
    pub fn set_day(&mut self, count: &DayCount) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, count.of)?;
        if let Counts::Inline(mut whole) = decode(row.as_ref())? {
            let day = whole.day(count.day);
            (day.devices, day.quarters) = (count.devices, count.quarters.clone());
            return self.write(count.of, &whole);
        }
        self.table.days.set(self.transaction, count)
    }

    /// Replaces a label's hits in a month by those that another store has counted.
    pub fn set_label(&mut self, count: &LabelCount) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, count.of)?;
        if let Counts::Inline(mut whole) = decode(row.as_ref())? {
            let sheet = whole.month(count.month);
            match count.list {
                LabelList::Private => {
                    sheet.set_private(count.tally);
                    return self.write(count.of, &whole);
                }
                LabelList::Of(dimension) => {
                    let label = SheetLabel::of_text(dimension, &*count.label);
                    if let Some(label) = label.filter(|label| label_text(label, dimension) == &*count.label)
                        && kept_text(&count.label) == &*count.label
                    {
                        sheet.set(dimension, label, count.tally);
                        return self.write(count.of, &whole);
                    }
                }
            }
            // A label that does not fit into the row.
            drop(whole);
            let Counts::Inline(whole) = decode(row.as_ref())? else { return Ok(()) };
            self.spill(count.of, &whole)?;
        }
        self.table.labels.set(self.transaction, count)
    }

    /// Writes the row, or spills it if it would be too long.
    fn write(&mut self, of: HitSubject, whole: &WholeCounts<'_>) -> Result<(), StoreError> {
        let (row, key) = (records::encode(whole), row_keys::subject(of));
        let fits = row.len() <= MOST_BYTES || (whole.entries() > self.budget.0 && row.len() + key.len() <= MAX_ROW);
        if fits { self.transaction.insert(&self.table.counts, key, row) } else { self.spill(of, whole) }
    }

    fn spill(&mut self, of: HitSubject, whole: &WholeCounts<'_>) -> Result<(), StoreError> {
        self.budget.0 = self.budget.0.saturating_sub(whole.entries());
        self.transaction.insert(&self.table.counts, row_keys::subject(of), SPILLED_ROW)?;
        for day in whole.day_counts(of) {
            self.write_only_day(of, whole, day.day)?;
            self.table.days.set(self.transaction, &day)?;
        }
        whole.months.iter().try_for_each(|(month, sheet)| self.add_labels(of, *month, sheet))
    }
}

#[cfg(test)]
mod tests;

//! Counts of hits: days, lists of months, and sheets of days.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use uuid::Uuid;

use super::super::cluster::AT_ONCE;
use super::super::label_rows::{self, LabelRow};
use super::super::sheet_reads::{self, MonthLists, SheetsOfWriters};
use super::super::sheet_rows::{SheetRows, SheetSpan};
use super::super::sheets::{FOR_EVER, SheetPlace};
use super::super::{days, sheet_rows::subject_of};
use super::{IMPORTED, ONCE, PAGE, ScyllaTransfer, next_place};
use crate::domain::breakdown::{Dimension, LabelList, PRIVATE_LABEL, Sheet, SheetLabel, kept_text, sheet_kept_until};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{DayCount, HitSubject, LabelCount, OTHER_LABEL};
use crate::domain::key::KeyId;
use crate::domain::tally::Tally;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, day_from, month as month_column, month_from, short_id};
use crate::store::records::corrupt;
use crate::store::transfer::{Page, Record};

/// A place in the second of two tables begins with this.
const SECOND: &str = "second ";
/// Links and keys whose lists are read for one page: each may have many.
const LISTS: i32 = 100;
/// Links and keys whose sheets are read at once. A sheet of a month may have a megabyte from each node.
const SUBJECTS_AT_ONCE: usize = 16;

const TABLE: &str = "hit_sheets";

/// Where a page begins; `None`: at the table's beginning.
enum TablePlace<'a> {
    First(Option<&'a str>),
    Second(Option<&'a str>),
}

impl<'a> TablePlace<'a> {
    fn of(from: Option<&'a str>) -> Self {
        match from.and_then(|place| place.strip_prefix(SECOND)) {
            Some(place) => Self::Second(Some(place).filter(|place| !place.is_empty())),
            None => Self::First(from),
        }
    }
}

/// Goes on in the second table behind the end of the first.
fn or_second(next: Option<String>) -> String {
    next.unwrap_or_else(|| SECOND.to_owned())
}

/// Days: those of links, then those of keys.
impl ScyllaTransfer {
    pub(super) async fn days_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        match TablePlace::of(from) {
            TablePlace::First(place) => {
                let rows: Vec<(i64, String)> = self.scan(&self.scans.days, place, PAGE).await?;
                let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
                let links = rows.into_iter().map(|(_, link)| short_id("link_days", &link).map(HitSubject::Link));
                let records = self.days_of(links.collect::<Result<_, _>>()?).await?;
                Ok(Page { records, next: Some(or_second(next)) })
            }
            TablePlace::Second(place) => {
                let rows: Vec<(i64, Uuid)> = self.scan(&self.scans.key_days, place, PAGE).await?;
                let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
                let subjects = rows.into_iter().map(|(_, key)| HitSubject::Key(KeyId(key))).collect();
                let next = next.map(|token| format!("{SECOND}{token}"));
                Ok(Page { records: self.days_of(subjects).await?, next })
            }
        }
    }

    async fn days_of(&self, subjects: Vec<HitSubject>) -> Result<Vec<Record>, StoreError> {
        let cluster = &self.tables.cluster;
        let days_of = |of| async move {
            let mut sums = BTreeMap::<Day, DayCount>::new();
            for count in days::quarters_between(cluster, of, Day(0), Day(u32::MAX)).await? {
                match sums.get_mut(&count.day) {
                    Some(sum) => {
                        sum.devices += count.devices;
                        sum.quarters.add_all(&count.quarters);
                    }
                    None => drop(sums.insert(count.day, count)),
                }
            }
            Ok::<_, StoreError>(sums.into_values().map(Record::Day).collect::<Vec<_>>())
        };
        let records: Vec<_> = stream::iter(subjects).map(days_of).buffered(AT_ONCE).try_collect().await?;
        Ok(records.into_iter().flatten().collect())
    }

    pub(super) async fn put_day(&self, count: &DayCount) -> Result<(), StoreError> {
        days::import(&self.tables.cluster, IMPORTED, count, ONCE).await
    }
}

/// Lists of months: those of which a node has a sheet, then those that nodes of 0.1.0 alone have.
impl ScyllaTransfer {
    pub(super) async fn labels_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let (records, next): (Vec<_>, _) = match TablePlace::of(from) {
            TablePlace::First(place) => {
                let (subjects, next) = self.subjects_with_sheets(place).await?;
                let labels = stream::iter(subjects).map(|of| self.labels_of(of)).buffered(SUBJECTS_AT_ONCE);
                (labels.try_collect().await?, Some(or_second(next)))
            }
            TablePlace::Second(place) => {
                let rows: Vec<(i64, String, i32)> = self.scan(&self.scans.labels, place, LISTS).await?;
                let next = next_place(rows.len(), rows.last().map(|row| row.0), LISTS);
                let of_month =
                    |(_, link, month): (i64, String, i32)| self.labels_without_sheet(link, month_from(month));
                let labels = stream::iter(rows).map(of_month).buffered(AT_ONCE);
                (labels.try_collect().await?, next.map(|token| format!("{SECOND}{token}")))
            }
        };
        Ok(Page { records: records.into_iter().flatten().collect(), next })
    }

    async fn subjects_with_sheets(&self, from: Option<&str>) -> Result<(Vec<HitSubject>, Option<String>), StoreError> {
        let rows: Vec<(i64, String)> = self.scan(&self.scans.sheets, from, LISTS).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), LISTS);
        let subject = |(_, subject): (i64, String)| {
            subject_of(&subject).ok_or_else(|| corrupt(TABLE, &"neither a short id nor a key"))
        };
        Ok((rows.into_iter().map(subject).collect::<Result<_, _>>()?, next))
    }

    async fn labels_of(&self, of: HitSubject) -> Result<Vec<Record>, StoreError> {
        let cluster = &self.tables.cluster;
        let mut records = Vec::new();
        // One by one: all of a busy key may be more than a cluster answers at once.
        for at in sheet_reads::places(cluster, of, SheetSpan::MONTHS).await? {
            let month = month_from(at);
            let sheets = sheet_reads::read(cluster, of, SheetSpan::MONTHS, at..at + 1, &Dimension::ALL).await?;
            let rows = match of {
                HitSubject::Link(link) => Some(label_rows::of_month(cluster, link, month).await?),
                HitSubject::Key(_) => None,
            };
            records.extend(label_records(of, month, sheets.get(&at), rows.as_ref())?);
        }
        Ok(records)
    }

    async fn labels_without_sheet(&self, link: String, month: Month) -> Result<Vec<Record>, StoreError> {
        let (cluster, link) = (&self.tables.cluster, short_id("link_labels", &link)?);
        let of = HitSubject::Link(link);
        let at = month_column(month);
        let sheets = sheet_reads::read(cluster, of, SheetSpan::MONTHS, at..at + 1, &[]).await?;
        if !sheets.is_empty() {
            return Ok(Vec::new());
        }
        let rows = label_rows::of_month(cluster, link, month).await?;
        label_records(of, month, None, Some(&rows))
    }

    /// Writes labels of months that another store has counted. They are set: those that were written before stay.
    pub(super) async fn put_labels(&self, labels: Vec<LabelCount>) -> Result<(), StoreError> {
        let mut months = BTreeMap::<(HitSubject, Month), Vec<LabelCount>>::new();
        for label in labels {
            months.entry((label.of, label.month)).or_default().push(label);
        }
        self.tables.cluster.all(months, |((of, month), labels)| self.put_month(of, month, labels)).await
    }

    async fn put_month(&self, of: HitSubject, month: Month, labels: Vec<LabelCount>) -> Result<(), StoreError> {
        let cluster = &self.tables.cluster;
        let place = SheetPlace { writer: IMPORTED, of, span: SheetSpan::Month(month) };
        let before = place.read(cluster).await?;
        let sheet = with_labels(&before.sheet()?, &labels);
        let rows = SheetRows::of(&sheet);
        // Later than all writes of earlier attempts, and earlier than a removal.
        let upto = bigint(cluster.now().0).max(bigint(before.upto) + 1);
        let writes = place.writes(cluster, &rows, &before.rows, FOR_EVER, upto);
        Ok(cluster.cql.write_together(writes).await?)
    }
}

/// Sheets of days.
impl ScyllaTransfer {
    pub(super) async fn sheets_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let (subjects, next) = self.subjects_with_sheets(from).await?;
        let sheets_of = |of| async move {
            let cluster = &self.tables.cluster;
            let mut records = Vec::new();
            for at in sheet_reads::places(cluster, of, SheetSpan::DAYS).await? {
                let sheets = sheet_reads::read(cluster, of, SheetSpan::DAYS, at..at + 1, &Dimension::ALL).await?;
                let of_day = sheets.get(&at).map(|of_writers| sheet_record(of, day_from(at), of_writers));
                records.extend(of_day.transpose()?);
            }
            Ok::<_, StoreError>(records)
        };
        let records: Vec<Vec<Record>> =
            stream::iter(subjects).map(sheets_of).buffered(SUBJECTS_AT_ONCE).try_collect().await?;
        Ok(Page { records: records.into_iter().flatten().collect(), next })
    }

    /// Writes a sheet unless it is too old.
    pub(super) async fn put_sheet(&self, of: HitSubject, day: Day, sheet: &Sheet<Arc<str>>) -> Result<(), StoreError> {
        let cluster = &self.tables.cluster;
        let sheet_days = cluster.cql.settings.sheet_days;
        let kept = cluster.seconds_until(sheet_kept_until(day, sheet_days)).filter(|_| sheet_days > 0);
        let Some(time_to_live) = kept else { return Ok(()) };
        let place = SheetPlace { writer: IMPORTED, of, span: SheetSpan::Day(day) };
        let writes = place.writes(cluster, &SheetRows::of(sheet), &SheetRows::default(), time_to_live, ONCE);
        Ok(cluster.cql.write_together(writes).await?)
    }
}

/// All lists of a month, each bounded over all nodes.
fn label_records(
    of: HitSubject,
    month: Month,
    sheets: Option<&SheetsOfWriters>,
    rows: Option<&Vec<LabelRow>>,
) -> Result<Vec<Record>, StoreError> {
    let lists = MonthLists::of(sheets, rows)?;
    let record = |list, label: &str, tally| Record::Label(LabelCount { of, month, list, label: label.into(), tally });
    let mut records = Vec::new();
    for dimension in Dimension::ALL.into_iter().filter(|dimension| *dimension != Dimension::Device) {
        let mut sums = BTreeMap::<&str, Tally>::new();
        let labels = lists.bounded_labels(dimension);
        for (label, tally) in &labels {
            *sums.entry(label.unwrap_or(OTHER_LABEL)).or_default() += *tally;
        }
        let counted = sums.into_iter().filter(|(_, tally)| !tally.is_zero());
        records.extend(counted.map(|(label, tally)| record(LabelList::Of(dimension), label, tally)));
    }
    let private = Some(lists.private()).filter(|private| !private.is_zero());
    records.extend(private.map(|private| record(LabelList::Private, PRIVATE_LABEL, private)));
    Ok(records)
}

/// The sheet of a day over all nodes.
fn sheet_record(of: HitSubject, day: Day, of_writers: &SheetsOfWriters) -> Result<Record, StoreError> {
    let sheets: Vec<Sheet<&str>> = of_writers.iter().map(|(_, rows)| rows.sheet()).collect::<Result<_, _>>()?;
    let mut sum = Sheet::default();
    for sheet in &sheets {
        sum.add_within_bounds(sheet);
    }
    Ok(Record::Sheet { of, day, sheet: sum.to_shared() })
}

/// A sheet in which some labels have other hits. Labels past the bound are kept: of all nodes, there may be more.
fn with_labels<'a>(sheet: &Sheet<&'a str>, labels: &'a [LabelCount]) -> Sheet<&'a str> {
    let entries = sheet.entries().iter();
    let mut tallies: BTreeMap<(Dimension, SheetLabel<&str>), Tally> =
        entries.map(|entry| ((entry.dimension, entry.label.clone()), entry.tally)).collect();
    let mut private = sheet.private();
    let mut were_set = BTreeSet::new();
    for LabelCount { list, label, tally, .. } in labels {
        match *list {
            LabelList::Private => private = *tally,
            LabelList::Of(dimension) => {
                let Some(label) = SheetLabel::of_text(dimension, kept_text(label)) else { continue };
                let key = (dimension, label);
                // Long labels of earlier releases may begin alike.
                let is_new = were_set.insert(key.clone());
                let sum = tallies.entry(key).or_default();
                *sum = if is_new { *tally } else { [*sum, *tally].into_iter().sum() };
            }
        }
    }
    let mut changed = Sheet::default();
    changed.add_private(private);
    for ((dimension, label), tally) in tallies {
        changed.add(dimension, label, tally);
    }
    changed
}

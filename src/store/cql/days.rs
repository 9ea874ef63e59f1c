//! Hits by day and device, and by quarter of an hour: a row of a link's or key's day for each node that counts.

use std::collections::BTreeMap;

use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlValue;

use super::cluster::Cluster;
use super::own_rows::{Column, Own, OwnTable};
use crate::domain::calendar::Day;
use crate::domain::hit::{DayCount, DeviceHits, HitSubject, NodeId, Position};
use crate::domain::quarters::QuarterHits;
use crate::domain::series::quarters_kept_until;
use crate::domain::tally::Tally;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, day as day_column, day_from, number};
use crate::store::records::quarters as records;

/// All hits by device, then those of bots among them.
type Counts = [Column; 6];
/// A row as it is read: the day, and all of [`Counts`].
type CountsRow = (i32, Column, Column, Column, Column, Column, Column);
/// The same with the hits by quarter.
type QuartersRow = (i32, Column, Column, Column, Column, Column, Column, Option<Vec<u8>>);

/// The key of the partition, as a value of its column.
fn subject_value(of: HitSubject) -> CqlValue {
    match of {
        HitSubject::Link(link) => CqlValue::Ascii(link.as_str().to_owned()),
        HitSubject::Key(key) => CqlValue::Uuid(key.0),
    }
}

/// The statement for the table of links or of keys.
fn statement<'a>(of: HitSubject, link: &'a PreparedStatement, key: &'a PreparedStatement) -> &'a PreparedStatement {
    match of {
        HitSubject::Link(_) => link,
        HitSubject::Key(_) => key,
    }
}

fn devices_from([desktop, mobile, tablet, bots_desktop, bots_mobile, bots_tablet]: Counts) -> DeviceHits {
    let tally = |all, bots| Tally::of_total(number(all), number(bots));
    DeviceHits([tally(desktop, bots_desktop), tally(mobile, bots_mobile), tally(tablet, bots_tablet)])
}

/// What a node has counted of a day.
#[derive(Clone, Debug, Default)]
pub struct DayTotal {
    devices: DeviceHits,
    /// As they are stored.
    quarters: Vec<u8>,
}

/// Hits of a link or key on a day.
pub struct DayTotals;

impl OwnTable for DayTotals {
    type Key = (NodeId, HitSubject, Day);
    type Stored = Own<DayTotal>;
    type Added = (DeviceHits, QuarterHits);

    async fn read(cluster: &Cluster, (writer, of, day): Self::Key) -> Result<Self::Stored, StoreError> {
        type OwnRow = (Column, Column, Column, Column, Column, Column, Option<Vec<u8>>, Column);
        let statements = &cluster.statements;
        let statement = statement(of, &statements.own_link_day, &statements.own_key_day);
        let values = (subject_value(of), day_column(day), writer.0);
        let found: Option<OwnRow> = cluster.cql.read_one(statement, values).await?;
        let (a, b, c, bots_a, bots_b, bots_c, quarters, upto) = found.unwrap_or_default();
        let devices = devices_from([a, b, c, bots_a, bots_b, bots_c]);
        Ok(Own { total: DayTotal { devices, quarters: quarters.unwrap_or_default() }, upto: number(upto) })
    }

    async fn add(
        cluster: &Cluster,
        (writer, of, day): Self::Key,
        own: Self::Stored,
        (devices, quarters): Self::Added,
        upto: Position,
    ) -> Result<Self::Stored, StoreError> {
        if own.upto >= upto.0 {
            return Ok(own);
        }
        let mut total = own.total;
        total.devices += devices;
        let time_to_live = cluster.seconds_until(quarters_kept_until(day));
        if time_to_live.is_some() {
            let mut sum = records::decode(&total.quarters)?;
            sum.add_all(&quarters);
            total.quarters = records::encode(&sum);
        }
        write(cluster, writer, of, day, &total, time_to_live, bigint(upto.0)).await?;
        Ok(Own { total, upto: upto.0 })
    }

    fn weight(own: &Self::Stored) -> u32 {
        // A row takes some 150 bytes.
        u32::try_from(1 + own.total.quarters.len() / 150).unwrap_or(u32::MAX)
    }
}

/// Writes a row. Its quarters have a time to live; without one, they stay as they are.
async fn write(
    cluster: &Cluster,
    writer: NodeId,
    of: HitSubject,
    day: Day,
    total: &DayTotal,
    time_to_live: Option<i32>,
    upto: i64,
) -> Result<(), StoreError> {
    let statements = &cluster.statements;
    let key = [subject_value(of), CqlValue::Int(day_column(day)), CqlValue::Uuid(writer.0)];
    let all = total.devices.0.map(Tally::all);
    let bots = total.devices.0.map(|tally| tally.bots);
    let counts = all.into_iter().chain(bots).map(|count| CqlValue::BigInt(bigint(count)));
    let upto = CqlValue::BigInt(upto);
    let row: Vec<_> = key.iter().cloned().chain(counts).chain([upto.clone(), upto.clone()]).map(Some).collect();
    let put = statement(of, &statements.put_link_day, &statements.put_key_day);
    let Some(seconds) = time_to_live else { return Ok(cluster.cql.write(put, row).await?) };
    let put_quarters = statement(of, &statements.put_link_quarters, &statements.put_key_quarters);
    let values = [CqlValue::Int(seconds), upto, CqlValue::Blob(total.quarters.clone())];
    let quarters = values.into_iter().chain(key).map(Some).collect();
    Ok(cluster.cql.write_together(vec![(put, row), (put_quarters, quarters)]).await?)
}

/// Writes the counts of a day that another store has, once and for all.
pub async fn import(cluster: &Cluster, writer: NodeId, count: &DayCount, upto: i64) -> Result<(), StoreError> {
    let total = DayTotal { devices: count.devices, quarters: records::encode(&count.quarters) };
    let time_to_live = cluster.seconds_until(quarters_kept_until(count.day)).filter(|_| !total.quarters.is_empty());
    write(cluster, writer, count.of, count.day, &total, time_to_live, upto).await
}

/// All days of a link or key, over all nodes.
pub async fn all(cluster: &Cluster, of: HitSubject) -> Result<Vec<(Day, DeviceHits)>, StoreError> {
    let statements = &cluster.statements;
    let statement = statement(of, &statements.link_days, &statements.key_days);
    let rows: Vec<CountsRow> = cluster.cql.read(statement, (subject_value(of),)).await?;
    let mut days = BTreeMap::<Day, DeviceHits>::new();
    for (day, devices) in rows.into_iter().map(counts_of) {
        *days.entry(day).or_default() += devices;
    }
    Ok(days.into_iter().collect())
}

/// The days in `from..until` of a link or key: a row for each day and node.
pub async fn between(
    cluster: &Cluster,
    of: HitSubject,
    from: Day,
    until: Day,
) -> Result<impl Iterator<Item = (Day, DeviceHits)>, StoreError> {
    let statements = &cluster.statements;
    let statement = statement(of, &statements.link_days_between, &statements.key_days_between);
    let values = (subject_value(of), day_column(from), day_column(until));
    let rows: Vec<CountsRow> = cluster.cql.read(statement, values).await?;
    Ok(rows.into_iter().map(counts_of))
}

/// As [`between`], with the hits by quarter.
pub async fn quarters_between(
    cluster: &Cluster,
    of: HitSubject,
    from: Day,
    until: Day,
) -> Result<Vec<DayCount>, StoreError> {
    let statements = &cluster.statements;
    let statement = statement(of, &statements.link_quarters_between, &statements.key_quarters_between);
    let values = (subject_value(of), day_column(from), day_column(until));
    let rows: Vec<QuartersRow> = cluster.cql.read(statement, values).await?;
    let count = |(day, a, b, c, bots_a, bots_b, bots_c, quarters): QuartersRow| {
        let (day, devices) = counts_of((day, a, b, c, bots_a, bots_b, bots_c));
        let quarters = quarters.map_or_else(|| Ok(QuarterHits::default()), |bytes| records::decode(&bytes))?;
        Ok(DayCount { of, day, devices, quarters })
    };
    rows.into_iter().map(count).collect()
}

fn counts_of((day, a, b, c, bots_a, bots_b, bots_c): CountsRow) -> (Day, DeviceHits) {
    (day_from(day), devices_from([a, b, c, bots_a, bots_b, bots_c]))
}

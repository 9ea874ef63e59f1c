//! Keys of the embedded store's rows. Numbers in them are big-endian, so that rows sort by them.

use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

use super::corrupt;
use super::link_lists::{TimeList, TimeListKind};
use crate::domain::breakdown::LabelList;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitSubject, NodeId};
use crate::domain::key::{KeyId, SecretHash};
use crate::domain::link::{LinkName, Revision, ShortId};
use crate::domain::webhook::DeliveryId;
use crate::store::StoreError;
use crate::store::transfer::Metric;

/// Single rows of `meta`: the number of pending deliveries, the layout version, the stamp of the index of known links.
pub const PENDING_DELIVERIES: &[u8] = b"d";
pub const LAYOUT: &[u8] = b"l";
pub const KNOWN_LINKS_STAMP: &[u8] = b"i";
/// How far links of an earlier release are in `link_lists`.
pub const LISTED_UPTO: &[u8] = b"f";
/// Prefixes of `meta`, followed by a node, by a name, and by the id of a key.
pub const CURSORS: &[u8] = b"c";
pub const NAMES: &[u8] = b"n";
pub const KEY_USES: &[u8] = b"u";
/// Prefixes of `keys`: records by id, ids by secret hash, what a key sees, what a key has created.
pub const KEYS: &[u8] = b"k";
const KEY_SECRETS: &[u8] = b"s";
const KEY_VIEWS: &[u8] = b"v";
const KEY_CHILDREN: &[u8] = b"c";
/// Prefixes of `link_times`: links by the time of their expiry, deleted links by the time of their deletion, earlier
/// revisions by the time when they were replaced, and the same by link; failed deliveries in a row by link and URL.
pub const LINK_EXPIRIES: &[u8] = b"e";
pub const LINK_DELETIONS: &[u8] = b"d";
pub const REPLACEMENTS: &[u8] = b"r";
const REVISION_TIMES: &[u8] = b"v";
const FAILURE_RUNS: &[u8] = b"f";
/// Prefixes of `idempotency`: parts of answers by the hash of their request, and the hashes by the time when the request
/// began.
const ONCE_PARTS: &[u8] = b"a";
const ONCE_TIMES: &[u8] = b"t";
/// Bytes of the row key of a view before the key that is seen.
pub const KEY_VIEW_PREFIX: usize = 17;

/// The row of `meta` that says up to where a node's journal is counted.
pub fn cursor(writer: NodeId) -> Vec<u8> {
    [CURSORS, writer.0.as_bytes().as_slice()].concat()
}

/// The row of `meta` for a value that has a name.
pub fn name(name: &str) -> Vec<u8> {
    [NAMES, name.as_bytes()].concat()
}

/// The row of `meta` with the last use of a key.
pub fn key_use(id: KeyId) -> Vec<u8> {
    [KEY_USES, id.0.as_bytes()].concat()
}

pub fn key(id: KeyId) -> Vec<u8> {
    [KEYS, id.0.as_bytes()].concat()
}

pub fn key_secret(hash: &SecretHash) -> Vec<u8> {
    [KEY_SECRETS, &hash.0].concat()
}

/// All views of `viewer`.
pub fn key_views(viewer: KeyId) -> Vec<u8> {
    [KEY_VIEWS, viewer.0.as_bytes()].concat()
}

/// That `viewer` sees a key. Ids grow with time, so scans for the newest first go backwards.
pub fn key_view(viewer: KeyId, key: KeyId) -> Vec<u8> {
    [KEY_VIEWS, viewer.0.as_bytes(), key.0.as_bytes()].concat()
}

pub fn key_children(maker: KeyId) -> Vec<u8> {
    [KEY_CHILDREN, maker.0.as_bytes()].concat()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

pub fn short_id(bytes: &[u8]) -> Result<ShortId, StoreError> {
    let id = std::str::from_utf8(bytes).ok().and_then(ShortId::parse);
    id.ok_or_else(|| corrupt("keys of rows", &"not a short id"))
}

/// All row keys of a keyspace that begin with a link's id.
pub fn of_link(link: ShortId) -> Range<Vec<u8>> {
    let mut end = link.0.to_vec();
    // The last byte is a letter or a digit.
    end[ShortId::LENGTH - 1] += 1;
    link.0.to_vec()..end
}

/// A row of `link_times` whose prefix is followed by a time and the id of a link.
pub fn link_at(prefix: &[u8], at: Timestamp, link: ShortId) -> Vec<u8> {
    [prefix, &at.0.to_be_bytes(), &link.0].concat()
}

/// All rows of a prefix of `link_times` before a time.
pub fn links_before(prefix: &[u8], before: Timestamp) -> Range<Vec<u8>> {
    [prefix, &0_u64.to_be_bytes()].concat()..[prefix, &before.0.to_be_bytes()].concat()
}

/// The time and the id in a row key of `link_times`, and what follows.
pub fn link_at_of(row_key: &[u8]) -> Result<(Timestamp, ShortId, &[u8]), StoreError> {
    let invalid = || corrupt("link_times", &"not a time and an id");
    let (at, rest) = row_key.get(1..).and_then(<[u8]>::split_first_chunk).ok_or_else(invalid)?;
    let (link, rest) = rest.split_at_checked(ShortId::LENGTH).ok_or_else(invalid)?;
    Ok((Timestamp(u64::from_be_bytes(*at)), short_id(link)?, rest))
}

/// A row of `idempotency` with a part of an answer.
pub fn once_part(hash: [u8; 32], number: u16) -> Vec<u8> {
    [ONCE_PARTS, &hash, &number.to_be_bytes()].concat()
}

/// All parts of an answer.
pub fn once_parts(hash: [u8; 32]) -> RangeInclusive<Vec<u8>> {
    once_part(hash, 0)..=once_part(hash, u16::MAX)
}

/// The row of `idempotency` that says when a request began.
pub fn once_time(at: Timestamp, hash: [u8; 32]) -> Vec<u8> {
    [ONCE_TIMES, &at.0.to_be_bytes(), &hash].concat()
}

/// All requests that began before a time.
pub fn once_times_before(before: Timestamp) -> Range<Vec<u8>> {
    once_time(Timestamp(0), [0; 32])..once_time(before, [0; 32])
}

/// The time and the hash in such a row key.
pub fn once_time_of(row_key: &[u8]) -> Result<(Timestamp, [u8; 32]), StoreError> {
    let invalid = || corrupt("idempotency", &"not a time and a hash");
    let (at, hash) = row_key.get(1..).and_then(<[u8]>::split_first_chunk).ok_or_else(invalid)?;
    Ok((Timestamp(u64::from_be_bytes(*at)), hash.try_into().map_err(|_| invalid())?))
}

/// Where the id of a link begins in the row keys of a list by time: behind kind, owner and value of the list, and the time.
const TIME_LIST_ID: usize = 1 + 16 + 16 + 8;
/// The bytes of such a row key.
pub const TIME_LIST_ROW: usize = TIME_LIST_ID + ShortId::LENGTH;

/// The place of a link in a list by time. An array, because each new link has four.
pub fn time_list_place(list: &TimeList, at: Timestamp, link: ShortId) -> [u8; TIME_LIST_ROW] {
    let TimeList { kind, owner, value } = list;
    let mut row_key = [0; TIME_LIST_ROW];
    row_key[0] = match kind {
        TimeListKind::All => b'o',
        TimeListKind::Tag => b't',
        TimeListKind::Target => b'u',
    };
    row_key[1..17].copy_from_slice(owner.0.as_bytes());
    row_key[17..33].copy_from_slice(value);
    row_key[33..TIME_LIST_ID].copy_from_slice(&at.0.to_be_bytes());
    row_key[TIME_LIST_ID..].copy_from_slice(&link.0);
    row_key
}

/// The beginning of a list from a time on.
pub fn time_list_from(list: &TimeList, from: Timestamp) -> Vec<u8> {
    time_list_place(list, from, ShortId([0; ShortId::LENGTH]))[..TIME_LIST_ID].to_vec()
}

/// The time and the id at the end of a row key of a list by time.
pub fn time_list_place_of(row_key: &[u8]) -> Result<(Timestamp, ShortId), StoreError> {
    let invalid = || corrupt("link_lists", &"not a time and an id");
    let (rest, link) = row_key.split_last_chunk::<{ ShortId::LENGTH }>().ok_or_else(invalid)?;
    let (_, at) = rest.split_last_chunk().ok_or_else(invalid)?;
    Ok((Timestamp(u64::from_be_bytes(*at)), short_id(link)?))
}

/// The place of a name, or of the first names that begin with a text, in a list by slug.
pub fn slug_list(owner: KeyId, begin: &[u8]) -> Vec<u8> {
    [b"s".as_slice(), owner.0.as_bytes(), begin].concat()
}

/// The name in a row key of a list by slug.
pub fn slug_list_name(row_key: &[u8]) -> Option<LinkName> {
    let name = row_key.get(1 + 16..)?;
    // A later release may have a route of this name.
    std::str::from_utf8(name).ok().and_then(LinkName::of_form)
}

/// The row of `link_revisions` with an earlier revision of a link.
pub fn revision(link: ShortId, revision: Revision) -> Vec<u8> {
    [link.0.as_slice(), &revision.0.to_be_bytes()].concat()
}

/// That a revision of a link was replaced at a time.
pub fn replacement(at: Timestamp, link: ShortId, revision: Revision) -> Vec<u8> {
    [link_at(REPLACEMENTS, at, link).as_slice(), &revision.0.to_be_bytes()].concat()
}

/// The row of `link_times` that says when a revision of a link was replaced.
pub fn revision_time(link: ShortId, of: Revision) -> Vec<u8> {
    [REVISION_TIMES, &revision(link, of)].concat()
}

/// All rows of `link_times` that say when revisions of a link were replaced.
pub fn revision_times(link: ShortId) -> RangeInclusive<Vec<u8>> {
    revision_time(link, Revision(0))..=revision_time(link, Revision(u32::MAX))
}

/// The row of `link_times` with the failed deliveries in a row of a URL.
pub fn failure_run(link: ShortId, place: u8) -> Vec<u8> {
    [FAILURE_RUNS, link.0.as_slice(), &[place]].concat()
}

/// The failed deliveries in a row of all URLs of a link.
pub fn failure_runs(link: ShortId) -> RangeInclusive<Vec<u8>> {
    failure_run(link, 0)..=failure_run(link, u8::MAX)
}

/// The failed deliveries in a row of all URLs of all links.
pub fn all_failure_runs() -> Range<Vec<u8>> {
    FAILURE_RUNS.to_vec()..FAILURE_RUNS.iter().map(|byte| byte + 1).collect()
}

/// The revision at the end of a row key.
pub fn revision_of(bytes: &[u8]) -> Result<Revision, StoreError> {
    let bytes = bytes.try_into().map_err(|_| corrupt("keys of rows", &"not a revision"))?;
    Ok(Revision(u32::from_be_bytes(bytes)))
}

pub fn usage(key: KeyId, month: Month, metric: Metric) -> Vec<u8> {
    [key.0.as_bytes().as_slice(), &month.0.to_be_bytes(), &[metric_number(metric)]].concat()
}

/// The owner, month and metric of a row of `usage`.
pub fn usage_of(row_key: &[u8]) -> Option<(&[u8], Month, u8)> {
    let (metric, rest) = row_key.split_last()?;
    let (owner, month) = rest.split_last_chunk()?;
    Some((owner, Month(u32::from_be_bytes(*month)), *metric))
}

pub fn metric_number(metric: Metric) -> u8 {
    match metric {
        Metric::LinksCreated => 0,
        Metric::HitsServed => 1,
        Metric::WebhookDeliveries => 2,
    }
}

/// The first byte of what stands for a key. No short id begins with it.
const KEY_SUBJECT: u8 = 0;
const KEY_SUBJECT_BYTES: usize = 17;

/// What stands for a link or key at the beginning of the row keys of its counts: the short id, or 0 and the key's id.
pub fn subject(of: HitSubject) -> Vec<u8> {
    match of {
        HitSubject::Link(link) => link.0.to_vec(),
        HitSubject::Key(key) => [&[KEY_SUBJECT], key.0.as_bytes().as_slice()].concat(),
    }
}

/// Whose counts a row has, and the rest of its key.
pub fn subject_of(key: &[u8]) -> Result<(HitSubject, &[u8]), StoreError> {
    let short = || corrupt("keys of rows", &"neither a link nor a key");
    if let Some((KEY_SUBJECT, _)) = key.split_first().map(|(first, rest)| (*first, rest)) {
        let (subject, rest) = key.split_at_checked(KEY_SUBJECT_BYTES).ok_or_else(short)?;
        let id = uuid::Uuid::from_slice(&subject[1..]).map_err(|error| corrupt("keys of rows", &error))?;
        return Ok((HitSubject::Key(KeyId(id)), rest));
    }
    let (link, rest) = key.split_at_checked(ShortId::LENGTH).ok_or_else(short)?;
    Ok((HitSubject::Link(short_id(link)?), rest))
}

pub fn day(of: HitSubject, day: Day) -> Vec<u8> {
    [subject(of).as_slice(), &day.0.to_be_bytes()].concat()
}

/// By day first, so that all rows of old days are adjacent.
pub fn sheet(day: Day, of: HitSubject) -> Vec<u8> {
    [day.0.to_be_bytes().as_slice(), &subject(of)].concat()
}

/// Day and subject of a sheet; `None` for its overflow rows.
pub fn sheet_of(key: &[u8]) -> Result<Option<(Day, HitSubject)>, StoreError> {
    let (day, subject) = key.split_first_chunk().ok_or_else(|| corrupt("sheets", &"a short key"))?;
    let (of, rest) = subject_of(subject)?;
    Ok(rest.is_empty().then_some((Day(u32::from_be_bytes(*day)), of)))
}

/// The kinds of rows of a list of labels. All rows of a list are adjacent, in this order.
#[derive(Clone, Copy)]
pub enum LabelRow<'a> {
    Head,
    /// How many labels it has in a month.
    Size(Month),
    Label(&'a [u8]),
}

pub fn label_row(of: HitSubject, list: LabelList, row: LabelRow<'_>) -> Vec<u8> {
    let key = |kind: u8, rest: &[u8]| [subject(of).as_slice(), &[list.number(), kind], rest].concat();
    match row {
        LabelRow::Head => key(0, &[]),
        LabelRow::Size(month) => key(1, &month.0.to_be_bytes()),
        LabelRow::Label(label) => key(2, label),
    }
}

/// Subject, number of the list, and kind of a row; `None` for the overflow rows of a head.
pub fn label_row_of(key: &[u8]) -> Option<(HitSubject, u8, LabelRow<'_>)> {
    let (of, rest) = subject_of(key).ok()?;
    let (list, row) = match rest {
        [list, 0] => (*list, LabelRow::Head),
        [list, 1, month @ ..] => (*list, LabelRow::Size(Month(u32::from_be_bytes(month.try_into().ok()?)))),
        [list, 2, label @ ..] => (*list, LabelRow::Label(label)),
        _ => return None,
    };
    Some((of, list, row))
}

pub fn due(due_at: Timestamp, id: DeliveryId) -> Vec<u8> {
    [due_at.0.to_be_bytes().as_slice(), &id.to_bytes()].concat()
}

/// Deliveries that are kept for their first try, by the number of the row.
pub fn first_tries(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

/// Which deliveries of such a row are counted, in the order of the claims.
pub fn counted_first_tries(row: u64, claim: u16) -> Vec<u8> {
    [row.to_be_bytes().as_slice(), &claim.to_be_bytes()].concat()
}

/// The first and last possible row keys of a link's deliveries for hits in `[from, until)`, newest first.
pub fn deliveries_between(link: ShortId, from: Timestamp, until: Timestamp) -> (Vec<u8>, Vec<u8>) {
    // Times are stored inverted: the later one is the smaller key.
    let bound = |time: u64| [link.0.as_slice(), &(!time).to_be_bytes()].concat();
    (bound(until.0.saturating_sub(1)), [bound(from.0), vec![0xff; 18]].concat())
}

/// The sums of a day for one URL of a link.
pub fn delivery_day(link: ShortId, url_index: u8, day: Day) -> Vec<u8> {
    [link.0.as_slice(), &day.0.to_be_bytes(), &[url_index]].concat()
}

/// That a link has deliveries on a day: found by the day when they expire.
pub fn expiry(day: Day, link: ShortId) -> Vec<u8> {
    [day.0.to_be_bytes().as_slice(), &link.0].concat()
}

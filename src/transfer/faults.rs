//! What a record of a file must be before anything of it is kept: files come from elsewhere, and may have been changed.
//!
//! Serde sees to types alone. The rest is asked of the domain's own parsers, by the rules for what was accepted before.

use std::collections::HashSet;

use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::key::{ApiKey, KeyId, ScopeSet, SealedSecret, fault_of_name};
use crate::domain::link::{Link, TargetUrl};
use crate::domain::webhook_url::WebhookUrl;
use crate::store::transfer::{NAMES, Record};

/// Counts go up to 2^63-1.
const MOST: u64 = i64::MAX.unsigned_abs();
/// The end of the year 9999: what is later can't be written as a time.
const LAST: Timestamp = Timestamp(253_402_300_799_999);
const MOST_WEBHOOKS: usize = 10;
/// A nonce and a tag, and what they seal.
const SEALED_BYTES: std::ops::RangeInclusive<usize> = 29..=1_024;
/// A host of a referrer has at most 253 bytes, the longest names of places a few hundred.
const LONGEST_LABEL: usize = 1_024;
const PREFIX: usize = 8;

/// Why a record is not kept; `None` where nothing is wrong with it. `root_key` is the one that the file's first line names.
pub fn of(record: &Record, root_key: Option<&[u8]>) -> Option<String> {
    let fault = match record {
        Record::Key(key) => of_key(key, root_key),
        Record::KeyUse { at, .. } => of_time(*at),
        Record::Link(link) => of_link(link),
        Record::Usage { month, count, .. } => of_month(*month).and(of_count(*count)),
        Record::Day { day, devices, .. } => of_day(*day).and(devices.iter().try_for_each(|count| of_count(*count))),
        Record::Label { month, label, count, .. } => {
            let label = check(!label.is_empty() && label.len() <= LONGEST_LABEL, "label: must have 1 to 1024 bytes");
            label.and(of_month(*month)).and(of_count(*count))
        }
        Record::Cursor { counted, .. } => of_count(counted.0),
        Record::Name { name, value } => of_name(name, value),
    };
    fault.err()
}

type Judged = Result<(), String>;

fn check(holds: bool, fault: &str) -> Judged {
    if holds { Ok(()) } else { Err(fault.to_owned()) }
}

fn of_link(link: &Link) -> Judged {
    TargetUrl::parse_stored(link.target.as_str()).map_err(|error| format!("target: {error}"))?;
    check(link.data.is_well_formed(), "data: must be a JSON object of at most 10240 bytes without white space")?;
    check(link.webhooks.len() <= MOST_WEBHOOKS, "webhooks: must be at most 10")?;
    let mut known = HashSet::new();
    for (index, webhook) in link.webhooks.iter().enumerate() {
        let url = WebhookUrl::parse_stored(webhook).map_err(|error| format!("webhooks/{index}: {error}"))?;
        check(known.insert(url), "webhooks: must be distinct")?;
    }
    of_time(link.created_at)
}

fn of_key(key: &ApiKey, root_key: Option<&[u8]>) -> Judged {
    if let Some(fault) = fault_of_name(&key.name) {
        return Err(format!("name: {fault}"));
    }
    check(key.scopes.is_subset_of(ScopeSet::ALL), "scopes: there are no such ones")?;
    let is_the_root = root_key == Some(key.id.0.as_bytes().as_slice());
    check(!key.is_root || is_the_root, "is_root: the file's first line names another root key")?;
    let shown = key.prefix.chars().count() <= PREFIX && key.prefix.chars().all(|c| c.is_ascii_graphic());
    check(shown, "prefix: must be at most 8 visible ASCII characters")?;
    of_ancestors(key.id, &key.ancestors)?;
    of_sealed(&key.webhook_secret)?;
    key.retiring_webhook_secret.as_ref().map_or(Ok(()), |old| of_sealed(&old.secret).and(of_time(old.until)))?;
    let times = [key.expires_at, key.rotated_at, key.revoked_at, key.retiring_secret.as_ref().map(|old| old.until)];
    times.into_iter().flatten().chain([key.created_at]).try_for_each(of_time)?;
    of_count(key.revision)
}

fn of_ancestors(id: KeyId, ancestors: &[KeyId]) -> Judged {
    check(ancestors.len() <= ApiKey::MAX_DEPTH, "ancestors: must be at most 16")?;
    let distinct: HashSet<_> = ancestors.iter().chain([&id]).collect();
    check(distinct.len() == ancestors.len() + 1, "ancestors: must be distinct, and not the key itself")
}

fn of_sealed(secret: &SealedSecret) -> Judged {
    check(SEALED_BYTES.contains(&secret.0.len()), "webhook_secret: is no sealed secret")
}

fn of_name(name: &str, value: &[u8]) -> Judged {
    match NAMES.iter().position(|known| *known == name) {
        Some(0) => check(value.len() == 16, "root_key: is no id of a key"),
        Some(_) => check(SEALED_BYTES.contains(&value.len()), "master_key_check: is no sealed secret"),
        None => Err("name: is none that is carried".to_owned()),
    }
}

fn of_time(time: Timestamp) -> Judged {
    check(time <= LAST, "a time: must be before the year 10000")
}

fn of_day(day: Day) -> Judged {
    check(day <= LAST.day(), "day: must be before the year 10000")
}

fn of_month(month: Month) -> Judged {
    check((Timestamp(0).month()..=LAST.month()).contains(&month), "month: must be from 1970 to 9999")
}

fn of_count(count: u64) -> Judged {
    check(count <= MOST, "a count: must be at most 2^63-1")
}

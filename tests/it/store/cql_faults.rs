//! What the store on a CQL cluster makes of requests that are lost, late, done twice, or whose answers are.
//!
//! Each test is one method, called as the service calls it. It is run again and again: the fault meets the first request
//! that the call makes, then the second, and so on until there are no more; and all that for each fault. Whatever happens,
//! the call is answered right, or [`StoreError::Unavailable`]; and what the caller does then, as the service does it, comes
//! to what it would have come to without the fault. That is looked up through another store, which nothing disturbs.

mod child_keys;
mod hits;
mod late_replays;
mod link_batches;
mod links;
mod once;
mod replays;
mod run;
mod suspensions;
mod wire;

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::ApiKey;
use signpost::domain::link::Revision;
use signpost::domain::tally::BotFilter;
use signpost::domain::webhook::{DeliveryId, DeliveryStatus};
use signpost::domain::window::WindowLog;
use signpost::store::{
    CreateKeyError, CreateLinkError, DeliveryQuery, DueDelivery, QuotaClaim, StoreError, UpdateKeyError,
};

use self::child_keys::{
    create_child, create_child_in_the_place_of_an_expired_one, create_child_past_the_quota, extend_child,
    stop_key_creation,
};
use self::hits::{
    apply, apply_hits, apply_hits_again, apply_hits_behind_rows_of_0_1_0, apply_many_labels, hits,
    read_series_and_breakdowns,
};
use self::link_batches::{create_link_with_kept_name, create_links, create_links_with_slugs};
use self::links::{
    create_link_with_own_id, create_link_with_slug, create_link_with_slug_past_the_quota, delete_link, update_link,
    update_link_that_another_follows,
};
use self::once::{
    create_key_once, create_link_once, create_link_with_slug_once, create_links_ended_meanwhile,
    create_links_taken_over, create_some_links_once,
};
use self::replays::replay_deliveries;
use self::run::{LATE, Run, with_every_fault};
use self::suspensions::{count_failure_behind_success, count_failures, end_suspension};
use super::samples::{MINUTE, delivered, delivery, failed, key, key_id, link, noon, secret, settlement, short_id};
use crate::support::rate_limits::{LINK, SHORTEN, USAGE};
use crate::support::{SOON, eventually};

/// A test of one method under every fault.
macro_rules! under_every_fault {
    ($($name:ident: $test:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
            async fn $name() {
                with_every_fault($test).await;
            }
        )*
    };
}

under_every_fault! {
    // Links.
    a_name_is_given_once: put_if_absent;
    a_link_is_made_and_counted_or_neither: create_link;
    a_link_that_nobody_waits_for_is_not_made: create_link_that_nobody_waits_for;
    a_link_past_the_quota_is_not_made: create_link_past_the_quota;
    a_link_whose_id_is_taken_is_not_counted: create_link_with_a_taken_id;
    a_link_gets_its_name_or_is_not_made: create_link_with_slug;
    a_link_gets_its_name_as_its_id_or_is_not_made: create_link_with_own_id;
    a_link_with_a_name_past_the_quota_leaves_the_name_free: create_link_with_slug_past_the_quota;
    links_made_together_are_made_in_order_and_counted: create_links;
    links_made_together_get_their_names_or_are_not_made: create_links_with_slugs;
    a_kept_name_goes_to_a_link_or_stays_kept: create_link_with_kept_name;
    a_link_of_a_repeated_request_is_made_and_counted_once: create_link_once;
    a_link_with_a_name_of_a_repeated_request_is_made_and_counted_once: create_link_with_slug_once;
    links_of_a_repeated_request_are_made_and_counted_once: create_some_links_once;
    links_of_a_request_that_is_taken_over_are_made_and_counted_once: create_links_taken_over;
    links_of_a_request_that_is_ended_meanwhile_are_removed: create_links_ended_meanwhile;
    a_key_of_a_repeated_request_is_made_once: create_key_once;
    a_link_is_changed_once: update_link;
    a_change_that_another_follows_is_no_conflict: update_link_that_another_follows;
    a_link_is_deleted_and_its_name_kept: delete_link;
    // Keys.
    a_key_is_made_once: create_key;
    a_key_is_changed_once: update_key;
    a_key_is_revoked_for_good: revoke_key;
    the_last_use_of_a_key_is_kept: note_key_use;
    a_key_below_another_is_made_and_counted_or_neither: create_child;
    a_key_past_the_quota_is_not_made: create_child_past_the_quota;
    a_key_that_is_stopped_makes_no_more: stop_key_creation;
    a_key_that_is_extended_keeps_its_place: extend_child;
    a_key_is_made_in_the_place_of_an_expired_one_or_that_is_extended: create_child_in_the_place_of_an_expired_one;
    // Hits.
    a_batch_is_counted_once: apply_hits;
    a_batch_on_rows_that_are_there_is_counted_once: apply_hits_again;
    a_batch_that_splits_a_month_and_a_day_is_counted_once: apply_many_labels;
    a_month_of_labels_of_0_1_0_is_taken_over_once: apply_hits_behind_rows_of_0_1_0;
    // Deliveries.
    the_delivery_quota_counts_each_once: claim_delivery_quota;
    a_try_is_written_down_once: settle_deliveries;
    a_failed_delivery_is_replayed_once: replay_deliveries;
    a_failed_delivery_counts_once_for_the_suspension_of_its_url: count_failures;
    a_failure_behind_a_success_counts_once_for_the_suspension: count_failure_behind_success;
    a_suspension_is_ended: end_suspension;
    what_is_dropped_is_gone: drop_deliveries;
    // What only reads.
    links_and_keys_are_read_right_or_not_at_all: read_links_and_keys;
    hits_and_deliveries_are_read_right_or_not_at_all: read_hits_and_deliveries;
    series_and_breakdowns_are_read_right_or_not_at_all: read_series_and_breakdowns;
    windows_are_shared: share_windows;
    windows_are_read: read_windows;
}

async fn put_if_absent(run: &Run) {
    let name: &'static str = format!("name {}", run.n).leak();
    let kept = run.disturbed_until_done(async || run.store.put_if_absent(name, vec![1]).await).await;
    assert_eq!(kept, [1]);
    assert_eq!(run.clean.put_if_absent(name, vec![2]).await.unwrap(), [1], "{}", run.name());
}

async fn create_link(run: &Run) {
    let wanted = link(run.n, key_id(run.n));
    match run.disturbed(run.store.create_link(wanted.clone(), Some(50))).await {
        Ok(count) => {
            assert_eq!(count, 1, "{}", run.name());
            assert_eq!(run.clean.link(wanted.id.into()).await.unwrap(), Some(wanted), "{}", run.name());
        }
        Err(CreateLinkError::Store(StoreError::Unavailable(_))) => {}
        Err(error) => panic!("{error}: {}", run.name()),
    }
    create_another_and_count_all(run).await;
}

async fn create_link_that_nobody_waits_for(run: &Run) {
    run.disturbed(async {
        let creation = run.store.create_link(link(run.n, key_id(run.n)), Some(50));
        // It has begun, and goes on without its caller.
        assert!(creation.now_or_never().is_none(), "{}", run.name());
        tokio::time::sleep(LATE).await;
    })
    .await;
    create_another_and_count_all(run).await;
    assert_eq!(run.clean.link(short_id(run.n).into()).await.unwrap(), None, "{}", run.name());
}

/// After the creation of the run's link, whatever has become of it: a client that is told that it failed asks again, which is
/// for another id.
async fn create_another_and_count_all(run: &Run) {
    let owner = key_id(run.n);
    let mut asked = vec![short_id(run.n)];
    let count = eventually("another link", SOON, async || {
        // There are fewer runs than a thousand.
        let next = link(run.n + 1_000 * u32::try_from(asked.len()).unwrap(), owner);
        asked.push(next.id);
        run.store.create_link(next, Some(50)).await.ok()
    })
    .await;
    assert!(run.links_created(owner).await >= count, "{}", run.name());
    // What nobody waited for is brought to an end a moment later: made and counted, or neither.
    eventually(&format!("all links are counted and no other: {}", run.name()), SOON, async || {
        let found = join_all(asked.iter().map(|id| run.clean.link((*id).into()))).await;
        let there = found.into_iter().filter(|found| found.as_ref().unwrap().is_some()).count() as u64;
        (run.links_created(owner).await == there).then_some(())
    })
    .await;
}

async fn create_link_past_the_quota(run: &Run) {
    let owner = key_id(run.n);
    run.clean.create_link(link(1_000_000 + run.n, owner), Some(1)).await.unwrap();
    match run.disturbed(run.store.create_link(link(run.n, owner), Some(1))).await {
        Err(
            CreateLinkError::QuotaExceeded { limit: 1, current: 1 }
            | CreateLinkError::Store(StoreError::Unavailable(_)),
        ) => {}
        other => panic!("{other:?}: {}", run.name()),
    }
    eventually("no second link", SOON, async || {
        run.clean.link(short_id(run.n).into()).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(run.links_created(owner).await, 1, "{}", run.name());
}

async fn create_link_with_a_taken_id(run: &Run) {
    let (first, second) = (key_id(run.n), key_id(1_000_000 + run.n));
    run.clean.create_link(link(run.n, first), None).await.unwrap();
    match run.disturbed(run.store.create_link(link(run.n, second), Some(5))).await {
        Err(CreateLinkError::NameTaken | CreateLinkError::Store(StoreError::Unavailable(_))) => {}
        other => panic!("{other:?}: {}", run.name()),
    }
    assert_eq!(run.clean.link(short_id(run.n).into()).await.unwrap().unwrap().owner, first, "{}", run.name());
    assert_eq!((run.links_created(first).await, run.links_created(second).await), (1, 0), "{}", run.name());
}

async fn create_key(run: &Run) {
    let made = key(run.n, &[key_id(1_000_000 + run.n)]);
    let create = async || match run.store.create_key(made.clone(), None).await {
        Ok(()) => Ok(()),
        Err(CreateKeyError::Store(error)) => Err(error),
        Err(refused) => panic!("{refused}: {}", run.name()),
    };
    run.disturbed_until_done(create).await;
    assert_eq!(run.clean.key(made.id).await.unwrap().as_ref(), Some(&made), "{}", run.name());
    assert_eq!(run.clean.key_by_secret(made.secret_hash).await.unwrap().as_ref(), Some(&made), "{}", run.name());
    for viewer in [made.id, made.ancestors[0]] {
        let seen = run.clean.keys_seen_by(viewer, None, 10).await.unwrap();
        assert_eq!(seen, std::slice::from_ref(&made), "{}", run.name());
    }
}

/// Changes a key as the service does: where it is told of a conflict, it reads what is there and begins again.
async fn changed(run: &Run, change: impl Fn(&ApiKey) -> ApiKey) -> ApiKey {
    let made = key(run.n, &[]);
    run.clean.create_key(made.clone(), None).await.unwrap();
    let change_once = async || {
        let before = run.store.key(made.id).await?.unwrap();
        let after = ApiKey { revision: before.revision + 1, ..change(&before) };
        match run.store.update_key(after.clone()).await {
            Ok(()) => Ok(Some(after)),
            Err(UpdateKeyError::Conflict) => Ok(None),
            Err(UpdateKeyError::Store(error)) => Err(error),
        }
    };
    match run.disturbed_until_done(change_once).await {
        Some(changed) => changed,
        None => run.done(change_once).await.expect("nobody else changes it"),
    }
}

async fn update_key(run: &Run) {
    let renamed = |key: &ApiKey| ApiKey {
        name: "renamed".into(),
        secret_hash: secret(&format!("changed {}", run.n)),
        ..key.clone()
    };
    let changed = changed(run, renamed).await;
    assert_eq!(run.clean.key(changed.id).await.unwrap().as_ref(), Some(&changed), "{}", run.name());
    let by_secret = run.clean.key_by_secret(changed.secret_hash).await.unwrap();
    assert_eq!(by_secret.as_ref(), Some(&changed), "{}", run.name());
    let old_secret = key(run.n, &[]).secret_hash;
    assert_eq!(run.clean.key_by_secret(old_secret).await.unwrap(), None, "{}", run.name());
    let seen = run.clean.keys_seen_by(changed.id, None, 10).await.unwrap();
    assert_eq!(seen, [changed], "{}", run.name());
}

async fn revoke_key(run: &Run) {
    let revoked = changed(run, |key| ApiKey { revoked_at: Some(noon()), ..key.clone() }).await;
    assert_eq!(run.clean.key(revoked.id).await.unwrap().unwrap().revoked_at, Some(noon()), "{}", run.name());
    assert_eq!(run.clean.key_by_secret(revoked.secret_hash).await.unwrap(), None, "{}", run.name());
    assert_eq!(run.clean.keys_seen_by(revoked.id, None, 10).await.unwrap(), [], "{}", run.name());
}

async fn note_key_use(run: &Run) {
    let keys = [key_id(run.n), key_id(1_000_000 + run.n)];
    let uses = keys.map(|key| (key, noon()));
    run.disturbed_until_done(async || run.store.note_key_use(uses.to_vec()).await).await;
    assert_eq!(run.clean.last_uses(keys.to_vec()).await.unwrap(), [Some(noon()); 2], "{}", run.name());
}

/// As [`due`], once there are so many: while its last beat is too long ago, on a machine that has no time for it, a store
/// begins no work on its queue.
async fn due_once(run: &Run, now: Timestamp, count: usize) -> Vec<DueDelivery> {
    let what = format!("{count} deliveries are due: {}", run.name());
    eventually(&what, SOON, async || Some(due(run, now).await).filter(|due| due.len() == count)).await
}

/// Deliveries of this run's link that are due at `now`. Only the store that has them in its queue knows.
async fn due(run: &Run, now: Timestamp) -> Vec<DueDelivery> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let some = run.done(async || run.store.due_deliveries(now, after, 100).await).await;
        let Some(last) = some.last() else { break };
        after = Some(last.place());
        all.extend(some.into_iter().filter(|due| due.id.link == short_id(run.n)));
    }
    all
}

fn claims(ids: &[DeliveryId], limit: u64) -> Vec<QuotaClaim> {
    ids.iter().map(|id| QuotaClaim { id: *id, round: 0, month: noon().month(), limit: Some(limit) }).collect()
}

async fn claim_delivery_quota(run: &Run) {
    apply(run, 0, 6).await;
    apply(run, 6, 12).await;
    let ids: Vec<_> = due_once(run, noon().plus(MINUTE * 60), 4).await.into_iter().map(|due| due.id).collect();
    let claims = claims(&ids, 3);
    let granted = run.disturbed_until_done(async || run.store.claim_delivery_quota(claims.clone()).await).await;
    assert_eq!(granted.iter().filter(|granted| **granted).count(), 3, "{}: {granted:?}", run.name());
    let counts = run.clean.monthly_counts(key_id(run.n), noon().month()).await.unwrap();
    assert_eq!(counts.webhook_deliveries, 3, "{}", run.name());
    // Again they are the same, and count no more.
    let again = run.done(async || run.store.claim_delivery_quota(claims.clone()).await).await;
    assert_eq!(again, granted, "{}", run.name());
    let counts = run.clean.monthly_counts(key_id(run.n), noon().month()).await.unwrap();
    assert_eq!(counts.webhook_deliveries, 3, "{}", run.name());
}

async fn settle_deliveries(run: &Run) {
    apply(run, 0, 6).await;
    let [first, second] = [0, 1].map(|url| delivery(run.n, noon(), url));
    let settlements = vec![
        settlement(first, 1, delivered(), noon().plus(MINUTE)),
        settlement(second, 1, failed(Some(MINUTE)), noon().plus(MINUTE)),
    ];
    run.disturbed_until_done(async || run.store.settle_deliveries(settlements.clone()).await).await;
    let states = run.clean.delivery_states(vec![first, second]).await.unwrap();
    let seen: Vec<_> = states.into_iter().flatten().map(|state| (state.status, state.attempts)).collect();
    assert_eq!(seen, [(DeliveryStatus::Delivered, 1), (DeliveryStatus::Pending, 1)], "{}", run.name());
    let retried = DueDelivery { due_at: noon().plus(MINUTE * 2), id: second, revision: Revision::FIRST, round: 0 };
    assert_eq!(due_once(run, noon().plus(MINUTE * 60), 1).await, [retried], "{}", run.name());
    let summaries = run.clean.delivery_summaries(short_id(run.n), noon().day()).await.unwrap();
    let counts: Vec<_> = summaries.iter().map(|(_, url)| (url.delivered, url.pending, url.failed)).collect();
    assert_eq!(counts, [(1, 0, 0), (0, 1, 0)], "{}", run.name());
}

async fn drop_deliveries(run: &Run) {
    apply(run, 0, 6).await;
    let tomorrow = noon().plus(super::samples::DAY).day();
    run.disturbed_until_done(async || run.store.drop_deliveries(tomorrow).await).await;
    while run.done(async || run.store.drop_deliveries(tomorrow).await).await {}
}

async fn read_links_and_keys(run: &Run) {
    let (link, owner) = (link(run.n, key_id(run.n)), key(run.n, &[]));
    run.clean.create_link(link.clone(), None).await.unwrap();
    run.clean.create_key(owner.clone(), None).await.unwrap();
    run.clean.note_key_use(vec![(owner.id, noon())]).await.unwrap();
    read(run, async || {
        let store = &run.store;
        Ok((
            (store.link(link.id.into()).await?, store.key(owner.id).await?, store.last_uses(vec![owner.id]).await?),
            (store.key_by_secret(owner.secret_hash).await?, store.keys_seen_by(owner.id, None, 10).await?),
        ))
    })
    .await;
}

async fn read_hits_and_deliveries(run: &Run) {
    let (link, owner) = (link(run.n, key_id(run.n)), key_id(run.n));
    run.clean.create_link(link.clone(), None).await.unwrap();
    let batch = hits(run, 0, 6);
    run.clean.apply_hits(Arc::clone(&batch)).await.unwrap();
    let query = DeliveryQuery { link: link.id, status: None, after: None, since: noon().day(), limit: 100 };
    let ids: Vec<_> = batch.deliveries.iter().map(|delivery| delivery.id).collect();
    read(run, async || {
        let store = &run.store;
        Ok((
            (store.hit_cursor(batch.writer).await?, store.link_hits(link.id, Some(BotFilter::Include)).await?),
            (
                store.monthly_counts(owner, noon().month()).await?,
                store.delivery_summaries(link.id, noon().day()).await?,
            ),
            (store.delivery_states(ids.clone()).await?, store.deliveries(query).await?),
        ))
    })
    .await;
}

/// Reads without a fault, then with one.
async fn read<R: Debug>(run: &Run, all: impl AsyncFn() -> Result<R, StoreError>) {
    let all = async || {
        run.store.ready().await?;
        Ok(format!("{:?}", all().await?))
    };
    let before = run.done(all).await;
    assert_eq!(run.disturbed_until_done(all).await, before, "{}", run.name());
}

async fn share_windows(run: &Run) {
    // What is older than a minute is of no use to anybody.
    let now = Clock::system().now().0;
    let log = |times: &[u64]| WindowLog {
        key: key_id(run.n),
        rate_limit: SHORTEN,
        admitted_ms: times.iter().map(|time| now + time).collect(),
    };
    run.clean.share_windows(vec![log(&[1, 2])]).await.unwrap();
    let theirs = run.disturbed_until_done(async || run.store.share_windows(vec![log(&[3])]).await).await;
    assert_eq!(theirs, [log(&[1, 2])], "{}", run.name());
    assert_eq!(run.clean.share_windows(vec![log(&[1, 2])]).await.unwrap(), [log(&[3])], "{}", run.name());
}

async fn read_windows(run: &Run) {
    let (key, now) = (key_id(run.n), Clock::system().now().0);
    let theirs = WindowLog { key, rate_limit: USAGE, admitted_ms: vec![now] };
    run.clean.share_windows(vec![theirs.clone()]).await.unwrap();
    let asked = || vec![(key, USAGE), (key, LINK)];
    let heard = run.disturbed_until_done(async || run.store.windows_elsewhere(asked()).await).await;
    assert_eq!(heard, [theirs], "{}", run.name());
}

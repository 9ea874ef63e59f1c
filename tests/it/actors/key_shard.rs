//! Requests admitted by the key shards: exact, under load, and across panics.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::System;
use signpost::actors::key_shard::{AdmitRequest, Admitting, KeyShards, NoteLinksCreated, Panic, ShardStartError};
use signpost::actors::supervisor::{AskError, RestartHook};
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::window::Admission;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::rate_limits::{SHORTEN, SOME};

const KEY: KeyId = KeyId(Uuid::from_u128(0x0194_0000_0000_7000_8000_0000_0000_0001));
const ANOTHER_KEY: KeyId = KeyId(Uuid::from_u128(0x0194_0000_0000_7000_8000_0000_0000_0002));
const NOW: Timestamp = Timestamp(1_795_000_000_000);

fn admit(limit: u32) -> AdmitRequest {
    AdmitRequest { key: KEY, rate_limit: SHORTEN, limit, now: NOW }
}

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn start(count: usize) -> (Arc<KeyShards>, Arc<AtomicU32>) {
    let restarts = Arc::new(AtomicU32::new(0));
    let on_restart: RestartHook = Arc::new({
        let restarts = Arc::clone(&restarts);
        move |restart| {
            assert_eq!(restart.actor, "key_shard");
            restarts.fetch_add(1, Ordering::SeqCst);
        }
    });
    let count = NonZeroUsize::new(count).unwrap();
    let shards = KeyShards::start(count, None, &on_restart).unwrap();
    (Arc::new(shards), restarts)
}

fn in_system<T>(test: impl Future<Output = T>) -> T {
    System::new().block_on(test)
}

async fn is_admitted(shards: &KeyShards, request: AdmitRequest) -> bool {
    let answer = shards.admit(request).await.unwrap();
    answer.admission.is_none_or(Admission::is_admitted)
}

type Answer = Result<Admitting, AskError>;

/// Starts `times` concurrent requests.
fn ask_at_once(shards: &Arc<KeyShards>, request: AdmitRequest, times: usize) -> Vec<JoinHandle<Answer>> {
    let ask = |_| {
        let shards = Arc::clone(shards);
        actix::spawn(async move { shards.admit(request).await })
    };
    (0..times).map(ask).collect()
}

async fn answers(asked: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(answer.await.unwrap());
    }
    answers
}

/// The number of admitted requests; every request must have been answered.
fn count_admitted(answers: &[Answer]) -> usize {
    let admission = |answer: &Answer| answer.unwrap().admission.unwrap();
    answers.iter().filter(|answer| admission(answer).is_admitted()).count()
}

#[test]
fn a_thousand_requests_at_once_get_exactly_the_limit() {
    in_system(async {
        let (shards, _) = start(4);
        let answers = answers(ask_at_once(&shards, admit(100), 1000)).await;
        assert_eq!(count_admitted(&answers), 100);
        shards.stop().await;
    });
}

#[test]
fn a_panic_under_load_loses_no_count_and_leaves_no_request_unanswered() {
    in_system(async {
        let (shards, restarts) = start(4);
        let mut admitted = 0;
        for _ in 0..3 {
            let before = ask_at_once(&shards, admit(100), 40);
            let panic = actix::spawn({
                let shards = Arc::clone(&shards);
                async move { shards.shard(KEY).try_send(Panic) }
            });
            let after = ask_at_once(&shards, admit(100), 500);
            assert_eq!(panic.await.unwrap(), Ok(()));
            admitted += count_admitted(&answers(before).await);
            admitted += count_admitted(&answers(after).await);
        }
        assert_eq!(admitted, 100);
        assert_eq!(restarts.load(Ordering::SeqCst), 3);
        shards.stop().await;
    });
}

#[test]
fn a_shard_that_panicked_goes_on_with_its_windows() {
    in_system(async {
        let (shards, _) = start(1);
        let before = shards.admit(admit(2)).await.unwrap().admission;
        shards.shard(KEY).try_send(Panic).unwrap();
        let after = shards.admit(admit(2)).await.unwrap().admission;
        let admitted = |remaining| Admission::Admitted { remaining, reset_seconds: 60 };
        assert_eq!([before, after], [Some(admitted(1)), Some(admitted(0))]);
        assert!(!is_admitted(&shards, admit(2)).await);
        shards.stop().await;
    });
}

#[test]
fn every_key_has_a_window_of_its_own_at_every_endpoint() {
    in_system(async {
        let (shards, _) = start(2);
        for key in [KEY, ANOTHER_KEY] {
            for rate_limit in SOME {
                let request = AdmitRequest { key, rate_limit, ..admit(1) };
                assert!(is_admitted(&shards, request).await);
                assert!(!is_admitted(&shards, request).await);
            }
        }
        shards.stop().await;
    });
}

#[test]
fn a_limit_of_none_admits_everything() {
    in_system(async {
        let (shards, _) = start(1);
        for _ in 0..200 {
            assert_eq!(shards.admit(admit(0)).await.unwrap().admission, None);
        }
        shards.stop().await;
    });
}

#[test]
fn what_the_store_counted_is_known_for_a_minute_of_its_month() {
    in_system(async {
        let (shards, _) = start(1);
        let links_at = async |now| {
            let request = AdmitRequest { now, ..admit(60) };
            shards.admit(request).await.unwrap().links_created
        };
        assert_eq!(links_at(NOW).await, None);
        let note = NoteLinksCreated { key: KEY, month: NOW.month(), current: 7, now: NOW };
        shards.note_links_created(note);
        assert_eq!(links_at(later(59)).await, Some(7));
        assert_eq!(links_at(later(60)).await, None);
        shards.stop().await;
    });
}

#[test]
fn what_the_store_counted_is_not_taken_for_another_month() {
    in_system(async {
        let (shards, _) = start(1);
        let month_end = Timestamp::parse("2026-11-30T23:59:59.000Z").unwrap();
        let next_month = month_end.plus(Duration::from_secs(1));
        let note = |now: Timestamp, current| NoteLinksCreated { key: KEY, month: now.month(), current, now };
        let links_at = async |now| {
            let request = AdmitRequest { now, ..admit(60) };
            shards.admit(request).await.unwrap().links_created
        };
        shards.note_links_created(note(month_end, 100));
        assert_eq!(links_at(month_end).await, Some(100));
        assert_eq!(links_at(next_month).await, None);
        shards.note_links_created(note(next_month, 1));
        // A late note of the month before.
        shards.note_links_created(note(month_end, 100));
        assert_eq!(links_at(next_month).await, Some(1));
        shards.stop().await;
    });
}

#[test]
fn stopped_shards_are_unavailable() {
    in_system(async {
        let (shards, _) = start(4);
        shards.stop().await;
        assert_eq!(shards.admit(admit(1)).await, Err(AskError::Unavailable));
        shards.stop().await;
    });
}

#[test]
fn the_number_of_shards_is_a_power_of_two() {
    in_system(async {
        let on_restart: RestartHook = Arc::new(|_| {});
        let three = NonZeroUsize::new(3).unwrap();
        let refused = KeyShards::start(three, None, &on_restart);
        assert!(matches!(refused, Err(ShardStartError::NotPowerOfTwo(_))));
    });
}

/// Handlers run on threads of a multi-threaded server.
#[test]
fn asking_can_be_awaited_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    in_system(async {
        let (shards, _) = start(1);
        is_send(&shards);
        is_send(&shards.admit(admit(1)));
        is_send(&shards.stop());
        shards.stop().await;
    });
}

#[test]
fn shards_need_an_actix_system() {
    let on_restart: RestartHook = Arc::new(|_| {});
    let refused = KeyShards::start(NonZeroUsize::MIN, None, &on_restart);
    assert!(matches!(refused, Err(ShardStartError::NoSystem)));
}

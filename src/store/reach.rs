//! Whether a remote store is reachable, so that no caller waits for one that is known to be unreachable.
//!
//! The store is probed all the time. Once it has answered no request for a while, and several probes have failed, it is
//! unreachable: calls are refused at once, and running reads are aborted. Running writes are not: each has a time limit
//! of its own, and is settled within that limit if possible. With its first answer to any request the store is
//! reachable again. A slow request does not make it unreachable, nor does one dead node of several: the store answers
//! other requests meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::hit_streams::{HitStreamStore, NotedHits, NotesReadUpto};
use super::once::{AnswerOfKey, AnswerOfLinks, OnceDone, OnceState, OnceTicket};
use super::{
    AdoptionHook, CountStore, CreateKeyError, CreateLinkError, DeliveryQuery, DeliveryStore, DriverCounts, DueDelivery,
    DuePlace, ExpiredLink, ExtendKeyError, FirstTriesToQueue, KeyStore, Lifecycle, LinkChangeHook, LinkListPage,
    LinkListQuery, LinkStore, MadeLinks, NewLinks, OnceStore, QuotaClaim, Replay, SettledPage, SettledQuery,
    Settlement, SharedNode, Store, StoreError, Suspension, SuspensionRule, SuspensionStore, TestClaim, UpdateKeyError,
    UpdateLinkError,
};
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, HitSubject, LinkHits, NodeId};
use crate::domain::idempotency::OnceRequest;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Destination, Link, LinkName, Revision, ShortId};
use crate::domain::live_hit::LiveEntry;
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::series::{SeriesAnswer, SeriesRange};
use crate::domain::tally::BotFilter;
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};

/// The interval of probes while the store answers.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// The interval of probes after one that failed, and so the time until a recovery is noticed.
const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// The time limit of a probe. A healthy store takes milliseconds, one with a dead node a tenth of a second.
const ANSWERED_WITHIN: Duration = Duration::from_millis(750);
/// How long a store has not answered before it is unreachable. Together with the others, that is known within some 2.5
/// s.
const SILENT_FOR: Duration = Duration::from_millis(1_500);
/// How many probes must have failed since then. One time-out may be caused by a pause of this process.
const FAILED_PROBES: u32 = 2;

/// Whether a store is reachable.
pub struct Reach {
    began: Instant,
    /// When it last answered, in milliseconds since `began`.
    answered_ms: AtomicU64,
    is_out: watch::Sender<bool>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { began: Instant::now(), answered_ms: AtomicU64::new(0), is_out: watch::Sender::new(false) }
    }
}

impl Reach {
    pub fn is_out(&self) -> bool {
        *self.is_out.borrow()
    }

    /// The store has answered any request.
    pub fn answered(&self) {
        self.answered_ms.fetch_max(self.now_ms(), Ordering::Relaxed);
        if self.is_out() && self.is_out.send_replace(false) {
            tracing::info!("the store is reachable again");
        }
    }

    /// This many consecutive probes have failed.
    fn probes_failed(&self, times: u32, reason: &str) {
        let answered = Duration::from_millis(self.answered_ms.load(Ordering::Relaxed));
        let silent_for = self.began.elapsed().saturating_sub(answered);
        if times >= FAILED_PROBES && silent_for >= SILENT_FOR && !self.is_out.send_replace(true) {
            tracing::warn!(
                reason,
                "the store is unreachable: requests that need it are answered 503 until it is reachable"
            );
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Passes every call to another store while that is reachable, and refuses it at once while it is not.
pub struct GuardedStore {
    behind: Arc<dyn Store>,
    reach: Arc<Reach>,
    prober: JoinHandle<()>,
}

impl GuardedStore {
    /// Probes the store for as long as it is open. Other parts that see its answers report them to `reach`.
    pub fn new(behind: Arc<dyn Store>, reach: Arc<Reach>) -> Self {
        let prober = tokio::spawn(probe_loop(Arc::clone(&behind), Arc::clone(&reach)));
        Self { behind, reach, prober }
    }

    async fn read<R>(&self, call: impl Future<Output = Result<R, StoreError>>) -> Result<R, StoreError> {
        let mut is_out = self.reach.is_out.subscribe();
        tokio::select! {
            biased;
            _ = is_out.wait_for(|is_out| *is_out) => Err(out_of_reach()),
            answer = call => answer,
        }
    }

    async fn write<R, E: From<StoreError>>(&self, call: impl Future<Output = Result<R, E>>) -> Result<R, E> {
        if self.reach.is_out() { Err(out_of_reach().into()) } else { call.await }
    }
}

fn out_of_reach() -> StoreError {
    StoreError::Unavailable("it does not answer".into())
}

impl Drop for GuardedStore {
    fn drop(&mut self) {
        self.prober.abort();
    }
}

async fn probe_loop(store: Arc<dyn Store>, reach: Arc<Reach>) {
    let mut failed_probes = 0;
    loop {
        let pause = match timeout(ANSWERED_WITHIN, store.ready()).await {
            // An unreadable answer is an answer, too.
            Ok(Ok(()) | Err(StoreError::Corrupt { .. })) => {
                failed_probes = 0;
                reach.answered();
                PROBE_EVERY
            }
            failed => {
                failed_probes += 1;
                let reason = failed.map_or_else(
                    |_| "no answer in time".to_owned(),
                    |failed| match failed {
                        Ok(()) => String::new(),
                        Err(error) => error.to_string(),
                    },
                );
                reach.probes_failed(failed_probes, &reason);
                PROBE_AGAIN_AFTER
            }
        };
        sleep(pause).await;
    }
}

/// Methods: each is passed on while the store is reachable.
macro_rules! guard_all {
    ($($part:ident {
        reads { $($read:ident($($of:ident: $of_type:ty),*) -> $found:ty;)* }
        writes { $($write:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
        direct { $($direct:ident($($about:ident: $about_type:ty),*) -> $value:ty;)* }
        memory { $($from_memory:ident($($whose:ident: $whose_type:ty),*) -> $remembered:ty;)* }
        ends { $($end:ident;)* }
    })*) => {
        $(#[async_trait]
        impl $part for GuardedStore {
            $(async fn $end(&self) {
                // A closed store does not answer; that must not be reported as unreachable.
                self.prober.abort();
                self.behind.$end().await;
            })*

            $(fn $direct(&self, $($about: $about_type),*) -> $value {
                self.behind.$direct($($about),*)
            })*

            $(fn $from_memory(&self, $($whose: $whose_type),*) -> $remembered {
                self.behind.$from_memory($($whose),*)
            })*

            $(async fn $read(&self, $($of: $of_type),*) -> $found {
                self.read(self.behind.$read($($of),*)).await
            })*

            $(async fn $write(&self, $($argument: $type),*) -> $answer {
                self.write(self.behind.$write($($argument),*)).await
            })*
        })*
    };
}

store_methods!(guard_all);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_store_that_was_silent_for_a_while_and_asked_several_times_is_out_of_reach() {
        let reach = Reach::default();
        reach.probes_failed(9, "too soon");
        assert!(!reach.is_out());
        sleep(SILENT_FOR).await;
        reach.probes_failed(1, "once");
        assert!(!reach.is_out(), "this process may have stood still");
        reach.probes_failed(FAILED_PROBES, "twice");
        assert!(reach.is_out());
        reach.answered();
        assert!(!reach.is_out());
        reach.probes_failed(9, "it has just answered");
        assert!(!reach.is_out());
    }
}

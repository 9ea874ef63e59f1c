//! Whether a store elsewhere is in reach, so that nobody waits for one that is known not to be.
//!
//! The store is asked all the time. Once it has answered nobody for a while, and was asked in vain several times, it is out of
//! reach: calls are refused at once, and reads under way are given up. Writes under way are not: each has a time limit of its
//! own, and is settled within that if it can be. With its first answer to anybody the store is in reach again. A slow request
//! is no reason, nor is a dead node of several: the store answers other requests meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{
    AdoptionHook, CountStore, CreateKeyError, CreateLinkError, DeliveryQuery, DeliveryStore, DriverCounts, DueDelivery,
    KeyStore, Lifecycle, LinkStore, QuotaClaim, Settlement, SharedNode, Store, StoreError, UpdateKeyError,
};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, LinkHits, NodeId};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Destination, Link, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};

/// How often the store is asked while it answers.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How soon it is asked again that did not answer: so soon is it known to be back.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How long it may take to answer. A store that is well takes milliseconds, one with a dead node a tenth of a second.
const ANSWERED_WITHIN: Duration = Duration::from_millis(750);
/// How long it has answered nobody that is out of reach. With the others, it is known within some 2.5 s.
const SILENT_FOR: Duration = Duration::from_millis(1_500);
/// How often it was asked in vain since. One time-out may be this process', which stood still.
const ASKED_IN_VAIN: u32 = 2;

/// What is known of the way to a store.
pub struct Reach {
    began: Instant,
    /// When it answered last, in milliseconds since `began`.
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

    /// The store has answered a request, whatever it was.
    pub fn answered(&self) {
        self.answered_ms.fetch_max(self.now_ms(), Ordering::Relaxed);
        if self.is_out() && self.is_out.send_replace(false) {
            tracing::info!("the store is reachable again");
        }
    }

    /// The store was asked so often in vain.
    fn asked_in_vain(&self, times: u32, reason: &str) {
        let answered = Duration::from_millis(self.answered_ms.load(Ordering::Relaxed));
        let silent_for = self.began.elapsed().saturating_sub(answered);
        if times >= ASKED_IN_VAIN && silent_for >= SILENT_FOR && !self.is_out.send_replace(true) {
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

/// Passes everything to another store while that is in reach, and refuses it at once while it is not.
pub struct GuardedStore {
    behind: Arc<dyn Store>,
    reach: Arc<Reach>,
    asking: JoinHandle<()>,
}

impl GuardedStore {
    /// Has the store asked for as long as it is open. Whatever else knows of answers tells `reach`.
    pub fn new(behind: Arc<dyn Store>, reach: Arc<Reach>) -> Self {
        let asking = tokio::spawn(keep_asking(Arc::clone(&behind), Arc::clone(&reach)));
        Self { behind, reach, asking }
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
        self.asking.abort();
    }
}

async fn keep_asking(store: Arc<dyn Store>, reach: Arc<Reach>) {
    let mut in_vain = 0;
    loop {
        let pause = match timeout(ANSWERED_WITHIN, store.ready()).await {
            // An answer that can't be read is one, too.
            Ok(Ok(()) | Err(StoreError::Corrupt { .. })) => {
                in_vain = 0;
                reach.answered();
                ASK_EVERY
            }
            failed => {
                in_vain += 1;
                let reason = failed.map_or_else(
                    |_| "no answer in time".to_owned(),
                    |failed| match failed {
                        Ok(()) => String::new(),
                        Err(error) => error.to_string(),
                    },
                );
                reach.asked_in_vain(in_vain, &reason);
                ASK_AGAIN_AFTER
            }
        };
        sleep(pause).await;
    }
}

/// Methods: each is passed on while the store is in reach.
macro_rules! guard_all {
    ($($part:ident {
        reads { $($read:ident($($of:ident: $of_type:ty),*) -> $found:ty;)* }
        writes { $($write:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
        told { $($told:ident($($about:ident: $about_type:ty),*) -> $said:ty;)* }
        known { $($known:ident($($whose:ident: $whose_type:ty),*) -> $memory:ty;)* }
        ends { $($end:ident;)* }
    })*) => {
        $(#[async_trait]
        impl $part for GuardedStore {
            $(async fn $end(&self) {
                // What is closed answers nobody, and nobody is to be told that.
                self.asking.abort();
                self.behind.$end().await;
            })*

            $(fn $told(&self, $($about: $about_type),*) -> $said {
                self.behind.$told($($about),*)
            })*

            $(fn $known(&self, $($whose: $whose_type),*) -> $memory {
                self.behind.$known($($whose),*)
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
        reach.asked_in_vain(9, "too soon");
        assert!(!reach.is_out());
        sleep(SILENT_FOR).await;
        reach.asked_in_vain(1, "once");
        assert!(!reach.is_out(), "this process may have stood still");
        reach.asked_in_vain(ASKED_IN_VAIN, "twice");
        assert!(reach.is_out());
        reach.answered();
        assert!(!reach.is_out());
        reach.asked_in_vain(9, "it has just answered");
        assert!(!reach.is_out());
    }
}

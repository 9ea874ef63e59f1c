//! A store that counts and times its calls, and adds them to the traces of requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

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
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::store::{OperationMeters, StoreOutcome};
use crate::telemetry::traces::note_store_call;

/// Passes every call to another store, and records its outcome and duration in the metrics.
pub struct MeteredStore {
    behind: Arc<dyn Store>,
    meters: Meters,
}

impl MeteredStore {
    pub fn new(behind: Arc<dyn Store>, metrics: &Metrics) -> Self {
        Self { behind, meters: Meters::of(metrics) }
    }
}

/// The outcome that an error of a call is counted as.
trait CountedOutcome {
    fn outcome(&self) -> StoreOutcome;
}

impl CountedOutcome for StoreError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::Unavailable(_) => StoreOutcome::Unavailable,
            Self::Corrupt { .. } => StoreOutcome::Corrupt,
        }
    }
}

impl CountedOutcome for CreateLinkError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::NameTaken | Self::QuotaExceeded { .. } => StoreOutcome::Refused,
            Self::Store(error) => error.outcome(),
        }
    }
}

impl CountedOutcome for CreateKeyError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::QuotaExceeded { .. } | Self::MakerEnded => StoreOutcome::Refused,
            Self::Store(error) => error.outcome(),
        }
    }
}

impl CountedOutcome for UpdateKeyError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::Conflict => StoreOutcome::Refused,
            Self::Store(error) => error.outcome(),
        }
    }
}

impl CountedOutcome for UpdateLinkError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::Conflict | Self::TooManyRevisions => StoreOutcome::Refused,
            Self::Store(error) => error.outcome(),
        }
    }
}

impl CountedOutcome for ExtendKeyError {
    fn outcome(&self) -> StoreOutcome {
        match self {
            Self::QuotaExceeded { .. } | Self::Conflict => StoreOutcome::Refused,
            Self::Store(error) => error.outcome(),
        }
    }
}

/// Methods: each is passed on, and counted when it returns.
macro_rules! count_all {
    ($($part:ident {
        reads { $($read:ident($($of:ident: $of_type:ty),*) -> $found:ty;)* }
        writes { $($write:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
        direct { $($direct:ident($($about:ident: $about_type:ty),*) -> $value:ty;)* }
        memory { $($from_memory:ident($($whose:ident: $whose_type:ty),*) -> $remembered:ty;)* }
        ends { $($end:ident;)* }
    })*) => {
        struct Meters {
            $($($read: OperationMeters,)*
            $($write: OperationMeters,)*)*
        }

        impl Meters {
            fn of(metrics: &Metrics) -> Self {
                Self {
                    $($($read: metrics.store_operation(stringify!($read)),)*
                    $($write: metrics.store_operation(stringify!($write)),)*)*
                }
            }
        }

        $(#[async_trait]
        impl $part for MeteredStore {
            $(async fn $end(&self) {
                self.behind.$end().await;
            })*

            $(fn $direct(&self, $($about: $about_type),*) -> $value {
                self.behind.$direct($($about),*)
            })*

            $(fn $from_memory(&self, $($whose: $whose_type),*) -> $remembered {
                self.behind.$from_memory($($whose),*)
            })*

            $(async fn $read(&self, $($of: $of_type),*) -> $found {
                let call = Call::begun(stringify!($read), &self.meters.$read);
                call.ended(self.behind.$read($($of),*).await)
            })*

            $(async fn $write(&self, $($argument: $type),*) -> $answer {
                let call = Call::begun(stringify!($write), &self.meters.$write);
                call.ended(self.behind.$write($($argument),*).await)
            })*
        })*
    };
}

store_methods!(count_all);

/// A call under way. If its caller is cancelled, it counts as unavailable.
struct Call<'a> {
    operation: &'static str,
    meters: &'a OperationMeters,
    began: Instant,
    outcome: StoreOutcome,
}

impl<'a> Call<'a> {
    fn begun(operation: &'static str, meters: &'a OperationMeters) -> Self {
        Self { operation, meters, began: Instant::now(), outcome: StoreOutcome::Unavailable }
    }

    fn ended<R, E: CountedOutcome>(mut self, answer: Result<R, E>) -> Result<R, E> {
        self.outcome = answer.as_ref().err().map_or(StoreOutcome::Ok, CountedOutcome::outcome);
        answer
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.meters.ended(self.outcome, took);
        let is_failure = !matches!(self.outcome, StoreOutcome::Ok | StoreOutcome::Refused);
        note_store_call(self.operation, self.outcome.name(), is_failure, took);
    }
}

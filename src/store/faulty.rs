//! A store that fails on demand, for tests of what the service does without its store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

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
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::domain::live_hit::LiveEntry;
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::series::{SeriesAnswer, SeriesRange};
use crate::domain::tally::BotFilter;
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};
use crate::locks::lock;

/// Switches the faults of a [`FaultyStore`] on and off.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch(Arc<SwitchState>);

#[derive(Debug, Default)]
struct SwitchState {
    out_of_reach: AtomicBool,
    loses_answers: AtomicBool,
    holds_calls: watch::Sender<bool>,
    held: watch::Sender<usize>,
    /// By method: calls that met a fault.
    refused: Mutex<HashMap<&'static str, u64>>,
    panics_in: Mutex<Option<&'static str>>,
    refuses: Mutex<Option<&'static str>>,
    loses_answers_of: Mutex<Option<&'static str>>,
    /// How many more calls of a method are passed on until nothing reaches the store.
    last_calls: Mutex<Option<(&'static str, usize)>>,
}

impl FaultSwitch {
    /// While set, nothing reaches the store behind.
    pub fn out_of_reach(&self, is: bool) {
        self.0.out_of_reach.store(is, Ordering::SeqCst);
    }

    /// As [`out_of_reach`](Self::out_of_reach), after this many more calls of the method of this name: interrupts
    /// operations of several steps.
    pub fn out_of_reach_after(&self, calls: usize, method: &'static str) {
        *lock(&self.0.last_calls) = Some((method, calls));
    }

    /// While set, writes are done, but their answers are lost. Reads are answered.
    pub fn loses_answers(&self, does: bool) {
        self.0.loses_answers.store(does, Ordering::SeqCst);
    }

    /// Calls of the method of this name do not reach the store behind.
    pub fn refuses(&self, method: Option<&'static str>) {
        *lock(&self.0.refuses) = method;
    }

    /// As [`loses_answers`](Self::loses_answers), of the method of this name alone.
    pub fn loses_answers_of(&self, method: Option<&'static str>) {
        *lock(&self.0.loses_answers_of) = method;
    }

    /// While set, calls wait; all of them continue once it is unset.
    pub fn holds_calls(&self, does: bool) {
        self.0.holds_calls.send_replace(does);
    }

    /// Waits until `count` calls are held at once.
    pub async fn held(&self, count: usize) {
        // The sender exists as long as `self`.
        let mut held = self.0.held.subscribe();
        drop(held.wait_for(|now| *now >= count).await);
    }

    /// Calls of the method of this name panic.
    pub fn panics_in(&self, method: Option<&'static str>) {
        *lock(&self.0.panics_in) = method;
    }

    /// How many calls of the method of this name were answered with a fault so far.
    pub fn refused(&self, method: &str) -> u64 {
        lock(&self.0.refused).get(method).copied().unwrap_or(0)
    }

    async fn pass(&self, method: &'static str) -> Result<(), StoreError> {
        let panics_in = *lock(&self.0.panics_in);
        assert_ne!(panics_in, Some(method), "a test wants this panic");
        let mut gate = self.0.holds_calls.subscribe();
        if *gate.borrow_and_update() {
            let _counted = HeldCall::new(&self.0.held);
            drop(gate.wait_for(|holds| !holds).await);
        }
        if let Some((counted, left)) = &mut *lock(&self.0.last_calls)
            && *counted == method
        {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => self.out_of_reach(true),
            }
        }
        self.fail_if(&self.0.out_of_reach, &self.0.refuses, method)
    }

    fn answer<R, E: From<StoreError>>(&self, method: &'static str, done: Result<R, E>) -> Result<R, E> {
        self.fail_if(&self.0.loses_answers, &self.0.loses_answers_of, method)?;
        done
    }

    /// Fails if all calls do, or those of this method.
    fn fail_if(
        &self,
        all: &AtomicBool,
        alone: &Mutex<Option<&'static str>>,
        method: &'static str,
    ) -> Result<(), StoreError> {
        let alone = *lock(alone);
        if !all.load(Ordering::SeqCst) && alone != Some(method) {
            return Ok(());
        }
        *lock(&self.0.refused).entry(method).or_default() += 1;
        Err(StoreError::Unavailable("switched off by a test".into()))
    }
}

/// Counts a held call, also if its caller is cancelled.
struct HeldCall<'a>(&'a watch::Sender<usize>);

impl<'a> HeldCall<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|now| *now += 1);
        Self(count)
    }
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|now| *now -= 1);
    }
}

/// Passes every call to another store while it is switched on. It answers nothing from memory, so that each look-up of
/// a link passes the switch.
pub struct FaultyStore {
    behind: Arc<dyn Store>,
    switch: FaultSwitch,
}

impl FaultyStore {
    pub fn new(behind: Arc<dyn Store>, switch: FaultSwitch) -> Self {
        Self { behind, switch }
    }
}

/// Methods: each passes the switch, then the call is passed on; the answers of the writes may be lost.
macro_rules! pass_on {
    ($($part:ident {
        reads { $($read:ident($($of:ident: $of_type:ty),*) -> $found:ty;)* }
        writes { $($write:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
        direct { $($direct:ident($($about:ident: $about_type:ty),*) -> $value:ty;)* }
        memory { $($from_memory:ident($($whose:ident: $whose_type:ty),*) -> $remembered:ty;)* }
        ends { $($end:ident;)* }
    })*) => {
        $(#[async_trait]
        impl $part for FaultyStore {
            $(async fn $end(&self) {
                self.behind.$end().await;
            })*

            $(fn $direct(&self, $($about: $about_type),*) -> $value {
                self.behind.$direct($($about),*)
            })*

            $(async fn $read(&self, $($of: $of_type),*) -> $found {
                self.switch.pass(stringify!($read)).await?;
                self.behind.$read($($of),*).await
            })*

            $(async fn $write(&self, $($argument: $type),*) -> $answer {
                self.switch.pass(stringify!($write)).await?;
                self.switch.answer(stringify!($write), self.behind.$write($($argument),*).await)
            })*
        })*
    };
}

store_methods!(pass_on);

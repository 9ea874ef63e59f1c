//! Who listens, on this node and on others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::domain::hit::HitSubject;
use crate::locks::lock;

/// How long the listeners of other nodes are taken for known before they are read again.
const FRESH_FOR: Duration = Duration::from_millis(450);
/// The same if they can't be read. Streams are complete from 2 s on, and a batch of hits takes up to half a second.
const KNOWN_FOR: Duration = Duration::from_millis(1_500);

/// Links and keys that somebody listens to; `true`: all their hits were noted also before this process began.
pub type Listened = HashMap<HitSubject, bool>;

#[derive(Default)]
pub struct Listeners {
    /// `None` while nobody listens, so that hits cost nothing.
    all: ArcSwapOption<Listened>,
    elsewhere: Mutex<Elsewhere>,
}

/// What is known of other nodes.
#[derive(Default)]
struct Elsewhere {
    subjects: HashSet<HitSubject>,
    /// Those of the first look.
    from_the_start: HashSet<HitSubject>,
    /// When they were last read.
    read_at: Option<Instant>,
}

impl Listeners {
    pub fn listened(&self) -> Option<Arc<Listened>> {
        self.all.load_full()
    }

    pub fn are_fresh(&self) -> bool {
        self.is_younger_than(FRESH_FOR)
    }

    pub fn are_known_well_enough(&self) -> bool {
        self.is_younger_than(KNOWN_FOR)
    }

    /// Whether nothing is known of others yet.
    pub fn are_unknown(&self) -> bool {
        self.elsewhere().read_at.is_none()
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        self.elsewhere().read_at.is_some_and(|at| at.elapsed() < age)
    }

    /// Stores the listeners that were read; the read began at `asked_at`.
    pub fn learned(&self, subjects: Vec<HitSubject>, asked_at: Instant) {
        let mut elsewhere = self.elsewhere();
        let Elsewhere { subjects: known, from_the_start, read_at } = &mut *elsewhere;
        *known = subjects.into_iter().collect();
        if read_at.is_none() {
            from_the_start.clone_from(known);
        } else {
            from_the_start.retain(|subject| known.contains(subject));
        }
        *read_at = Some(asked_at);
    }

    /// Puts together who listens here and elsewhere.
    pub fn update(&self, here: impl FnOnce() -> Vec<HitSubject>) {
        // Both are read under the lock, so that a later update is not undone by an earlier one.
        let elsewhere = self.elsewhere();
        let here = here();
        let subjects = elsewhere.subjects.iter().copied().chain(here);
        let listened: Listened =
            subjects.map(|subject| (subject, elsewhere.from_the_start.contains(&subject))).collect();
        let is_same = self.all.load().as_deref().map_or(listened.is_empty(), |known| *known == listened);
        if !is_same {
            self.all.store((!listened.is_empty()).then(|| Arc::new(listened)));
        }
    }

    fn elsewhere(&self) -> std::sync::MutexGuard<'_, Elsewhere> {
        lock(&self.elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::key::KeyId;

    #[tokio::test(start_paused = true)]
    async fn listeners_of_all_nodes_are_known_and_those_of_the_first_look_are_told_apart() {
        let key = |number| HitSubject::Key(KeyId(Uuid::from_u128(number)));
        let listeners = Listeners::default();
        assert!(!listeners.are_fresh() && !listeners.are_known_well_enough());
        listeners.update(Vec::new);
        assert!(listeners.listened().is_none());
        listeners.learned(vec![key(1), key(2)], Instant::now());
        assert!(listeners.are_fresh());
        listeners.update(|| vec![key(2), key(3)]);
        let expected = Listened::from([(key(1), true), (key(2), true), (key(3), false)]);
        assert_eq!(*listeners.listened().unwrap(), expected);
        tokio::time::advance(FRESH_FOR).await;
        assert!(!listeners.are_fresh() && listeners.are_known_well_enough());
        // One that begins again was not listened to in between.
        listeners.learned(vec![key(2)], Instant::now());
        listeners.learned(vec![key(1), key(2)], Instant::now());
        listeners.update(Vec::new);
        assert_eq!(*listeners.listened().unwrap(), Listened::from([(key(1), false), (key(2), true)]));
        listeners.learned(vec![], Instant::now());
        listeners.update(Vec::new);
        assert!(listeners.listened().is_none());
    }
}

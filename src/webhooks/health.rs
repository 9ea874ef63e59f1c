//! The health of a receiver, the share of workers and slots that receivers of each health may use, and how keys share
//! them.

/// The health of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverHealth {
    /// No attempt has ended yet.
    New,
    /// The last attempt succeeded.
    Healthy,
    /// The last attempt failed.
    Failing,
}

impl ReceiverHealth {
    pub const ALL: [Self; 3] = [Self::New, Self::Healthy, Self::Failing];

    /// How many of `all` slots the receivers of this health and of worse ones may use together: failing ones half,
    /// failing and new ones three quarters.
    fn share(self, all: usize) -> usize {
        match self {
            Self::Healthy => all,
            Self::New => (all * 3).div_ceil(4),
            Self::Failing => all.div_ceil(2),
        }
    }

    /// How many times its window a receiver may have in memory, so that a free worker finds a delivery. A healthy
    /// receiver may have more, so that its deliveries are taken from the queue and counted in batches.
    pub fn windows_in_memory(self) -> usize {
        if self == Self::Healthy { 8 } else { 2 }
    }

    /// The receivers whose slots count towards this share.
    fn counted_with(self) -> &'static [Self] {
        match self {
            Self::Healthy => &Self::ALL,
            Self::New => &[Self::New, Self::Failing],
            Self::Failing => &[Self::Failing],
        }
    }

    /// The shares that limit a receiver of this health: its own, and those of better healths.
    fn bounds(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |bound| bound.counted_with().contains(&self))
    }
}

/// How keys share a number of slots: a dynamic threshold, as switches share the memory of their queues (Choudhury and
/// Hahne, 1998).
///
/// A key may take a slot while more slots than the reserve are free. It may take a slot of the reserve only while it
/// holds fewer slots than are free. So a single key gets all slots but the reserve. A later key that holds no slot
/// finds a free one. `k` keys that want as many as possible converge to a `k + 1`th each, and as many stay free.
#[derive(Clone, Copy, Debug)]
pub struct FairShare {
    size: usize,
    reserve: usize,
}

impl FairShare {
    /// The reserve is an eighth, and at least one slot.
    pub fn of(size: usize) -> Self {
        Self { size, reserve: size.div_ceil(8) }
    }

    /// As [`of`](Self::of), but without a reserve if there are fewer than eight slots.
    pub fn of_few(size: usize) -> Self {
        Self { size, reserve: size / 8 }
    }

    /// Whether a key that holds `own` of the `taken` slots may take one more.
    pub fn admits(self, taken: usize, own: usize) -> bool {
        self.left(taken, own) > 0
    }

    /// How many more slots the key may take, if no other key takes any meanwhile.
    pub fn left(self, taken: usize, own: usize) -> usize {
        let free = self.size.saturating_sub(taken);
        free.saturating_sub(self.reserve).max(free.saturating_sub(own).div_ceil(2))
    }
}

/// Numbers of taken slots, by the health of their receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts([usize; 3]);

impl SlotCounts {
    pub fn total(self) -> usize {
        self.0.iter().sum()
    }

    /// How many slots count towards a share.
    fn counted(self, bound: ReceiverHealth) -> usize {
        bound.counted_with().iter().map(|counted| self.0[*counted as usize]).sum()
    }

    /// Whether one more slot may be taken, of `all`.
    pub fn fits(self, health: ReceiverHealth, all: usize) -> bool {
        health.bounds().all(|bound| self.counted(bound) < bound.share(all))
    }

    /// Whether a key that holds `own` of these may take one more slot, of `all`.
    pub fn admits(self, own: Self, health: ReceiverHealth, all: usize) -> bool {
        self.left(own, health, all) > 0
    }

    /// How many more slots the key may take, if no other key takes any meanwhile.
    pub fn left(self, own: Self, health: ReceiverHealth, all: usize) -> usize {
        let left =
            |bound: ReceiverHealth| FairShare::of(bound.share(all)).left(self.counted(bound), own.counted(bound));
        health.bounds().map(left).min().unwrap_or_default()
    }

    /// The sum of both.
    pub fn plus(self, more: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + more.0[at]))
    }

    pub fn add(&mut self, health: ReceiverHealth) {
        self.0[health as usize] += 1;
    }

    pub fn remove(&mut self, health: ReceiverHealth) {
        self.0[health as usize] -= 1;
    }

    /// Moves `count` slots from one health to another.
    pub fn shift(&mut self, from: ReceiverHealth, to: ReceiverHealth, count: usize) {
        self.0[from as usize] -= count;
        self.0[to as usize] += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each key takes as many slots as it may.
    fn fill(share: FairShare, held: &mut [usize]) {
        for at in 0..held.len() {
            while share.admits(held.iter().sum(), held[at]) {
                held[at] += 1;
            }
        }
    }

    #[test]
    fn a_key_that_is_alone_leaves_an_eighth() {
        for (size, most) in [(1, 1), (2, 1), (8, 7), (256, 224), (512, 448)] {
            let mut held = [0];
            fill(FairShare::of(size), &mut held);
            assert_eq!(held, [most], "of {size}");
        }
        for (size, most) in [(1, 1), (6, 6), (7, 7), (8, 7), (32, 28)] {
            let mut held = [0];
            fill(FairShare::of_few(size), &mut held);
            assert_eq!(held, [most], "of {size}");
        }
    }

    #[test]
    fn later_keys_come_to_have_as_many_slots_as_the_first() {
        let (share, mut held) = (FairShare::of(256), [0; 7]);
        fill(share, &mut held);
        assert_eq!(held, [224, 16, 8, 4, 2, 1, 1], "in the order in which they came");
        for _ in 0..2_000 {
            // One attempt of the key with the most ends; the next slot goes to the key with the fewest.
            let most = (0..held.len()).max_by_key(|at| held[*at]).unwrap();
            held[most] -= 1;
            let mut order: Vec<usize> = (0..held.len()).collect();
            order.sort_by_key(|at| held[*at]);
            if let Some(next) = order.into_iter().find(|at| share.admits(held.iter().sum(), held[*at])) {
                held[next] += 1;
            }
        }
        assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{held:?}");
        assert!(share.admits(held.iter().sum(), 0), "{held:?}");
    }

    proptest! {
        #[test]
        fn no_more_are_taken_than_there_are_and_a_key_without_any_gets_a_free_one(
            size in 1_usize..300,
            takes in prop::collection::vec((0_usize..12, prop::bool::weighted(0.8)), 0..600),
        ) {
            let (share, mut held) = (FairShare::of(size), [0_usize; 12]);
            for (key, is_taken) in takes {
                let taken: usize = held.iter().sum();
                if is_taken && share.admits(taken, held[key]) {
                    held[key] += 1;
                } else if !is_taken {
                    held[key] = held[key].saturating_sub(1);
                }
                let taken: usize = held.iter().sum();
                prop_assert!(taken <= size);
                prop_assert_eq!(share.admits(taken, 0), taken < size);
                let taken_alone = (0..=size).take_while(|more| share.admits(taken + more, held[key] + more)).count();
                prop_assert_eq!(share.left(taken, held[key]), taken_alone);
            }
        }
    }
}

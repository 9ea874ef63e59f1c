//! What is known of a receiver, and how many of the workers and places that gives it; how keys share them.

/// What is known of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not tried yet.
    New,
    /// Its last try succeeded.
    Sound,
    /// Its last try failed.
    Failing,
}

impl Standing {
    pub const ALL: [Self; 3] = [Self::New, Self::Sound, Self::Failing];

    /// Of `all` places, how many those of this standing may take, together with those of a worse one: those that fail at
    /// most half, and together with those not yet known three quarters.
    fn share(self, all: usize) -> usize {
        match self {
            Self::Sound => all,
            Self::New => (all * 3).div_ceil(4),
            Self::Failing => all.div_ceil(2),
        }
    }

    /// How many times its window a receiver may have at hand, so that there is always a next one. One that answers may
    /// have more, to be taken from the queue and counted many at a time.
    pub fn windows_at_hand(self) -> usize {
        if self == Self::Sound { 4 } else { 2 }
    }

    /// Those whose places count against this one's share.
    fn counted_with(self) -> &'static [Self] {
        match self {
            Self::Sound => &Self::ALL,
            Self::New => &[Self::New, Self::Failing],
            Self::Failing => &[Self::Failing],
        }
    }

    /// The standings whose shares hold for this one: a better standing's share holds for a worse one too.
    fn bounds(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |bound| bound.counted_with().contains(&self))
    }
}

/// How keys share a number of places: a dynamic threshold, as switches share the memory for their queues (Choudhury and
/// Hahne, 1998).
///
/// A key may take one more while more than the reserve is free. Of the reserve it may take one more only while it holds
/// fewer than are free. So a key that is alone gets all but the reserve; one that comes later, and holds nothing, finds a
/// free place; and `k` keys that want all they can get come to hold a `k + 1`th each, which leaves as much.
#[derive(Clone, Copy, Debug)]
pub struct FairShare {
    size: usize,
    reserve: usize,
}

impl FairShare {
    /// An eighth is the reserve, and at least one place.
    pub fn of(size: usize) -> Self {
        Self { size, reserve: size.div_ceil(8) }
    }

    /// As [`of`](Self::of), but all of less than eight places can be taken by one key.
    pub fn of_few(size: usize) -> Self {
        Self { size, reserve: size / 8 }
    }

    /// Whether a key that holds `own` of the `taken` places may take one more.
    pub fn admits(self, taken: usize, own: usize) -> bool {
        self.left(taken, own) > 0
    }

    /// How many more it may take, if no other key takes any meanwhile.
    pub fn left(self, taken: usize, own: usize) -> usize {
        let free = self.size.saturating_sub(taken);
        free.saturating_sub(self.reserve).max(free.saturating_sub(own).div_ceil(2))
    }
}

/// Places that are taken, by the standing of their receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places([usize; 3]);

impl Places {
    pub fn total(self) -> usize {
        self.0.iter().sum()
    }

    /// How many count against a standing's share.
    fn counted(self, bound: Standing) -> usize {
        bound.counted_with().iter().map(|counted| self.0[*counted as usize]).sum()
    }

    /// Whether one more fits, of `all`.
    pub fn has_room(self, standing: Standing, all: usize) -> bool {
        standing.bounds().all(|bound| self.counted(bound) < bound.share(all))
    }

    /// Whether a key that holds `own` of these may take one more, of `all`.
    pub fn admits(self, own: Self, standing: Standing, all: usize) -> bool {
        self.left(own, standing, all) > 0
    }

    /// How many more it may take, if no other key takes any meanwhile.
    pub fn left(self, own: Self, standing: Standing, all: usize) -> usize {
        let left = |bound: Standing| FairShare::of(bound.share(all)).left(self.counted(bound), own.counted(bound));
        standing.bounds().map(left).min().unwrap_or_default()
    }

    /// These and others.
    pub fn plus(self, more: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + more.0[at]))
    }

    pub fn add(&mut self, standing: Standing) {
        self.0[standing as usize] += 1;
    }

    pub fn remove(&mut self, standing: Standing) {
        self.0[standing as usize] -= 1;
    }

    /// `count` places go over from one standing to another.
    pub fn shift(&mut self, from: Standing, to: Standing, count: usize) {
        self.0[from as usize] -= count;
        self.0[to as usize] += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each of the keys takes all that it may.
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
    fn keys_that_came_late_come_to_hold_as_much_as_the_first() {
        let (share, mut held) = (FairShare::of(256), [0; 7]);
        fill(share, &mut held);
        assert_eq!(held, [224, 16, 8, 4, 2, 1, 1], "in the order in which they came");
        for _ in 0..2_000 {
            // One of the key that holds the most ends; the next goes to the key that holds the fewest.
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

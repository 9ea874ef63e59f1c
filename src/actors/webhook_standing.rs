//! What is known of a receiver, and what share of workers and places that gives it.

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
}

/// Places that are taken, by the standing of their receivers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places([usize; 3]);

impl Places {
    pub fn total(self) -> usize {
        self.0.iter().sum()
    }

    /// Whether one more fits, of `all`. A better standing's bound holds for a worse one too.
    pub fn has_room(self, standing: Standing, all: usize) -> bool {
        let bounds = Standing::ALL.iter().filter(|bound| bound.counted_with().contains(&standing));
        let mut rooms = bounds.map(|bound| {
            let taken: usize = bound.counted_with().iter().map(|counted| self.0[*counted as usize]).sum();
            taken < bound.share(all)
        });
        rooms.all(|room| room)
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

//! What a link is at an instant: active, scheduled, expired or blocked.

use crate::domain::calendar::Timestamp;

/// The state of a link. Where several apply, it is the last one in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Active,
    Scheduled,
    Expired,
    Blocked,
}

impl LinkState {
    pub const ALL: [Self; 4] = [Self::Active, Self::Scheduled, Self::Expired, Self::Blocked];

    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Scheduled => "scheduled",
            Self::Expired => "expired",
            Self::Blocked => "blocked",
        }
    }
}

/// The times of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTimes {
    pub not_before: Option<Timestamp>,
    /// Exclusive: from this instant on, the link is expired.
    pub expires_at: Option<Timestamp>,
}

/// What the times of a link say at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeState {
    Active,
    Scheduled,
    Expired,
}

impl LinkTimes {
    pub fn at(self, now: Timestamp) -> TimeState {
        if self.expires_at.is_some_and(|end| end <= now) {
            TimeState::Expired
        } else if self.not_before.is_some_and(|begin| now < begin) {
            TimeState::Scheduled
        } else {
            TimeState::Active
        }
    }
}

impl From<TimeState> for LinkState {
    fn from(state: TimeState) -> Self {
        match state {
            TimeState::Active => Self::Active,
            TimeState::Scheduled => Self::Scheduled,
            TimeState::Expired => Self::Expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_active_from_its_start_until_just_before_its_end() {
        let times = LinkTimes { not_before: Some(Timestamp(10)), expires_at: Some(Timestamp(20)) };
        let states = [9, 10, 19, 20].map(|at| times.at(Timestamp(at)));
        assert_eq!(states, [TimeState::Scheduled, TimeState::Active, TimeState::Active, TimeState::Expired]);
        assert_eq!(LinkTimes::default().at(Timestamp(0)), TimeState::Active);
    }

    /// A merged edit may leave a link that is over before it begins.
    #[test]
    fn an_end_before_the_start_is_expired() {
        let times = LinkTimes { not_before: Some(Timestamp(20)), expires_at: Some(Timestamp(10)) };
        assert_eq!(times.at(Timestamp(15)), TimeState::Expired);
    }
}

//! Deliveries of webhooks: one hit × one URL, and the states of a delivery.

use std::fmt;
use std::time::Duration;

use super::bots::BotKind;
use super::calendar::{Day, Timestamp};
use super::hit::{HitId, HitStamp};
use super::key::KeyId;
use super::link::{Revision, ShortId};

/// How long deliveries are kept for the status endpoint.
pub const RETENTION_DAYS: u32 = 30;

/// The id of a delivery: the hit, and the place of the URL among all that the link ever had.
///
/// It is the same for every attempt and after every crash. Sorted by link, newest hit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryId {
    pub link: ShortId,
    pub hit: HitStamp,
    pub url_index: u8,
}

impl DeliveryId {
    pub const BYTES: usize = ShortId::LENGTH + 8 + 16 + 1;

    /// The sort key: link, time descending, hit, URL.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..7].copy_from_slice(&self.link.0);
        bytes[7..15].copy_from_slice(&(!self.hit.at.0).to_be_bytes());
        bytes[15..31].copy_from_slice(self.hit.id.0.as_bytes());
        bytes[31] = self.url_index;
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let link = ShortId::parse(std::str::from_utf8(&bytes[..7]).ok()?)?;
        let at = Timestamp(!u64::from_be_bytes(bytes[7..15].try_into().ok()?));
        let id = HitId(uuid::Uuid::from_slice(&bytes[15..31]).ok()?);
        Some(Self { link, hit: HitStamp { id, at }, url_index: bytes[31] })
    }
}

/// The `webhook-id` header: unique for each delivery, the same for all attempts.
impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "msg_{}_{}", self.hit.id.0.simple(), self.url_index)
    }
}

/// A delivery to make, as the hit counter passes it to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    pub id: DeliveryId,
    /// The key whose quota counts the delivery and whose secret signs it.
    pub owner: KeyId,
    /// The revision of the link that the hit met: the delivery tells of the link as it was then.
    pub revision: Revision,
    /// What made the hit, if no person did.
    pub bot: Option<BotKind>,
}

impl NewDelivery {
    /// Its first state: due at once.
    pub fn state(&self) -> DeliveryState {
        DeliveryState { bot: self.bot, ..DeliveryState::new(self.owner, self.revision, self.id.hit.at) }
    }
}

/// The status of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryStatus {
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == text)
    }
}

/// The state of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryState {
    pub owner: KeyId,
    /// The revision of the link that the hit met.
    pub revision: Revision,
    /// What made the hit, if no person did.
    pub bot: Option<BotKind>,
    pub status: DeliveryStatus,
    /// Attempts made so far, in all rounds.
    pub attempts: u32,
    /// 0, and higher with each replay: a replayed delivery has all attempts anew, and counts in the quota once more.
    pub round: u32,
    /// Attempts of the rounds before.
    pub earlier_attempts: u32,
    /// Whether the owner's monthly quota has counted it in this round.
    pub counted: bool,
    pub response_status: Option<u16>,
    pub error: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub next_attempt_at: Option<Timestamp>,
}

impl DeliveryState {
    /// A new delivery of a person's hit, due at once.
    pub fn new(owner: KeyId, revision: Revision, created_at: Timestamp) -> Self {
        Self {
            owner,
            revision,
            bot: None,
            status: DeliveryStatus::Pending,
            attempts: 0,
            round: 0,
            earlier_attempts: 0,
            counted: false,
            response_status: None,
            error: None,
            created_at,
            updated_at: created_at,
            next_attempt_at: Some(created_at),
        }
    }

    /// Puts a settled delivery into the queue again, in a later round.
    pub fn replay(&mut self, round: u32, due_at: Timestamp, at: Timestamp) {
        self.round = round;
        self.earlier_attempts = self.attempts;
        self.counted = false;
        self.status = DeliveryStatus::Pending;
        self.updated_at = at;
        self.next_attempt_at = Some(due_at);
    }

    /// Applies the outcome of an attempt.
    pub fn settle(&mut self, outcome: &AttemptOutcome, at: Timestamp) {
        self.updated_at = at;
        self.next_attempt_at = None;
        match outcome {
            AttemptOutcome::Delivered { response_status } => {
                self.attempts += 1;
                self.status = DeliveryStatus::Delivered;
                self.response_status = Some(*response_status);
                self.error = None;
            }
            AttemptOutcome::Failed { response_status, error, retry_in } => {
                self.attempts += 1;
                self.response_status = *response_status;
                self.error = Some(error.clone());
                self.next_attempt_at = retry_in.map(|delay| at.plus(delay));
                self.status = if retry_in.is_some() { DeliveryStatus::Pending } else { DeliveryStatus::Failed };
            }
            AttemptOutcome::NeverSent { error } => {
                self.status = DeliveryStatus::Failed;
                self.error = Some(error.clone());
            }
        }
    }
}

/// The number of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptNumber {
    /// The round of the delivery.
    pub round: u32,
    /// From 1 on, in all rounds.
    pub in_all: u32,
    /// From 1 on, in its round.
    pub in_round: u32,
}

impl AttemptNumber {
    /// Whether it is the first of a delivery that was not replayed.
    pub fn is_first(self) -> bool {
        self.round == 0 && self.in_all == 1
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Delivered {
        response_status: u16,
    },
    Failed {
        response_status: Option<u16>,
        error: String,
        retry_in: Option<Duration>,
    },
    /// Refused before anything was sent: no attempt was made.
    NeverSent {
        error: String,
    },
}

/// Deliveries of one URL of a link, over the retention period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlSummary {
    pub pending: u64,
    pub delivered: u64,
    pub failed: u64,
    pub last_attempt_at: Option<Timestamp>,
    pub last_status: Option<u16>,
    pub last_error: Option<String>,
}

impl UrlSummary {
    /// The counter of `status`.
    pub fn count_mut(&mut self, status: DeliveryStatus) -> &mut u64 {
        match status {
            DeliveryStatus::Pending => &mut self.pending,
            DeliveryStatus::Delivered => &mut self.delivered,
            DeliveryStatus::Failed => &mut self.failed,
        }
    }

    /// Adds the summary of a later day.
    pub fn merge(&mut self, later: Self) {
        self.pending += later.pending;
        self.delivered += later.delivered;
        self.failed += later.failed;
        if later.last_attempt_at > self.last_attempt_at {
            self.last_attempt_at = later.last_attempt_at;
            self.last_status = later.last_status;
            self.last_error = later.last_error;
        } else if later.last_attempt_at.is_none() && later.last_error.is_some() {
            // Refused without an attempt, for example because of the quota.
            self.last_error = later.last_error;
        }
    }
}

/// The first day whose deliveries are shown and can be replayed at `now`.
pub fn first_kept_day(now: Timestamp) -> Day {
    now.day().minus(RETENTION_DAYS)
}

/// The first day whose deliveries are not removed at `now`: what was replayed on the last day on which that is possible
/// is sent on the next one at the latest.
pub fn first_stored_day(now: Timestamp) -> Day {
    first_kept_day(now).minus(1)
}

//! Whose turn it is to replay deliveries of a link.
//!
//! A settled delivery is in no queue, so no process is the only one to change it. For that, replays of a link take
//! turns by LWT. The number of the turn is a lower bound of the rounds that it makes: states of two turns never have
//! the same timestamp, even if a process was suspended during its turn and writes late.

use scylla::DeserializeRow;
use uuid::Uuid;

use super::deliveries::Deliveries;
use super::outcome::CqlError;
use crate::domain::link::ShortId;
use crate::store::StoreError;

/// The row of a link.
#[derive(Default, DeserializeRow)]
struct TurnRow {
    /// The number of the last turn.
    turn: Option<i32>,
    /// The queue and the process that have it.
    queue: Option<Uuid>,
    process: Option<Uuid>,
}

/// A turn of this process.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    link: ShortId,
    number: i32,
    /// The number of the turn before.
    before: Option<i32>,
    /// The queue that this process has for its replays.
    pub queue: Uuid,
}

impl Turn {
    /// The lowest round that it makes.
    pub fn lowest_round(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(0)
    }
}

fn replay_in_progress() -> StoreError {
    StoreError::Unavailable("another node was about to replay deliveries of this link, too".into())
}

impl Deliveries {
    async fn turn_row(&self, link: ShortId) -> Result<TurnRow, CqlError> {
        let row = self.cluster.cql.read_one(&self.cluster.statements.replay_turn, (link.as_str(),)).await?;
        Ok(row.unwrap_or_default())
    }

    /// The next turn, for [`take_turn`](Self::take_turn).
    ///
    /// # Errors
    /// If another process has its turn: waiting for it may take some seconds.
    pub(super) async fn next_turn(&self, link: ShortId) -> Result<Turn, StoreError> {
        let own = self.leases.queues.own()?;
        let TurnRow { turn: before, queue, process } = self.turn_row(link).await?;
        if let (Some(queue), Some(process)) = (queue, process.filter(|process| !process.is_nil()))
            && process != self.cluster.process
            && self.holds_queue(process, queue).await?
        {
            return Err(StoreError::Unavailable("another node is replaying deliveries of this link".into()));
        }
        Ok(Turn { link, number: before.unwrap_or(0).saturating_add(1), before, queue: own })
    }

    /// Takes a turn. After an error this process may have it, or may still get it.
    pub(super) async fn take_turn(&self, turn: &Turn) -> Result<(), TakeTurnError> {
        let attempt = || self.write_turn(turn, self.cluster.process);
        let settle = || async {
            let row = self.turn_row(turn.link).await?;
            let is_ours = row.turn == Some(turn.number) && row.process == Some(self.cluster.process);
            Ok::<_, CqlError>((row.turn != turn.before).then_some(is_ours))
        };
        match self.cluster.cql.settled(attempt, settle).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(TakeTurnError::Overtaken(replay_in_progress())),
            Err(error) => Err(TakeTurnError::Unknown(error.into())),
        }
    }

    /// Moves on to a turn, which `process` has then.
    async fn write_turn(&self, turn: &Turn, process: Uuid) -> Result<bool, CqlError> {
        let values = (turn.number, turn.queue, process, turn.link.as_str(), turn.before);
        self.cluster.cql.lwt(&self.cluster.statements.take_replay_turn, values).await
    }

    /// Whether a process still works on a queue, as far as is known.
    async fn holds_queue(&self, process: Uuid, queue: Uuid) -> Result<bool, StoreError> {
        let statement = &self.cluster.statements.queue_holder;
        let holder: Option<(Uuid,)> = self.cluster.cql.read_one(statement, (queue,)).await?;
        Ok(holder.is_some_and(|(holder,)| holder == process))
    }

    /// Ends a turn, whether or not it was taken: it can't be taken any more. Meanwhile this process must take no other
    /// turn of the link.
    pub(super) async fn end_turn(&self, turn: &Turn) -> Result<(), CqlError> {
        let (cluster, process) = (&self.cluster, self.cluster.process);
        loop {
            let row = self.turn_row(turn.link).await?;
            if row.turn == turn.before {
                // The request that takes it may be late: it finds that this number is used.
                self.write_turn(turn, Uuid::nil()).await?;
            } else if row.turn == Some(turn.number) && row.process == Some(process) {
                let values = (Uuid::nil(), turn.link.as_str(), turn.number, process);
                cluster.cql.lwt(&cluster.statements.end_replay_turn, values).await?;
            } else {
                return Ok(());
            }
        }
    }
}

/// Why a turn was not taken.
pub enum TakeTurnError {
    Overtaken(StoreError),
    /// It may be this process's turn, now or later.
    Unknown(StoreError),
}

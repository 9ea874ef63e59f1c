//! A key that a request creates once.

use std::sync::Arc;

use uuid::Builder;

use super::{IssuedKey, KeyError, KeyService, NewKey};
use crate::domain::idempotency::{KeptAnswer, OnceRequest, OnceSeed};
use crate::domain::key::{ApiKey, KeyId};
use crate::service::once::Once;
use crate::store::once::{OnceDone, OnceState, OnceTicket};

/// Makes the answer of a key that was created. It must not have its secrets.
pub type RespondToKey = Arc<dyn Fn(&ApiKey) -> KeptAnswer + Send + Sync>;

impl KeyService {
    /// Creates a key below `creator`, once: again, the request has the answer that `respond` has made.
    pub async fn create_once(
        &self,
        creator: &ApiKey,
        request: OnceRequest,
        new: NewKey,
        respond: RespondToKey,
    ) -> Result<Once<IssuedKey>, KeyError> {
        match self.once.begin_once(request).await? {
            OnceState::Begun(ticket) => self.create_begun(creator, ticket, new, respond).await,
            OnceState::Answered(answer) => Ok(Once::Answered(answer)),
            OnceState::UnderWay => Ok(Once::UnderWay),
            OnceState::OtherRequest => Ok(Once::OtherRequest),
        }
    }

    async fn create_begun(
        &self,
        creator: &ApiKey,
        ticket: OnceTicket,
        new: NewKey,
        respond: RespondToKey,
    ) -> Result<Once<IssuedKey>, KeyError> {
        let issued = match self.drawn(creator, new, id_of(ticket.seed), ticket.seed.begun_at) {
            Ok(issued) => issued,
            Err(refused) => {
                self.once.end_once(ticket).await?;
                return Err(refused);
            }
        };
        let limit = self.plans.of(creator).child_keys;
        let there = match self.once.create_key_once(ticket, issued.key.clone(), limit, respond.clone()).await? {
            OnceDone::Done(there) => there,
            OnceDone::Answered(answer) => return Ok(Once::Answered(answer)),
            OnceDone::UnderWay => return Ok(Once::UnderWay),
        };
        if there.secret_hash != issued.key.secret_hash {
            // An attempt that was cut off has made it: nobody has its secrets.
            return Ok(Once::Answered(respond(&there)));
        }
        self.authentication.key_changed(&there).await;
        Ok(Once::Done(issued))
    }
}

/// The id that follows from a seed.
fn id_of(seed: OnceSeed) -> KeyId {
    let bytes = seed.bytes(0);
    let mut random = [0; 10];
    random.copy_from_slice(&bytes[..10]);
    KeyId(Builder::from_unix_timestamp_millis(seed.begun_at.0, &random).into_uuid())
}

//! A key that a request creates once.

use std::sync::Arc;

use uuid::Builder;

use super::{IssuedKey, KeyError, KeyService, NewKey};
use crate::domain::idempotency::{KeptAnswer, OnceRequest, OnceSeed};
use crate::domain::key::{ApiKey, KeyId};
use crate::service::once::Once;
use crate::store::once::{OnceDone, OnceTicket};

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
        match Once::begun(self.once.begin_once(request).await?) {
            Ok(ticket) => self.create_begun(creator, ticket, new, respond).await,
            Err(known) => Ok(known),
        }
    }

    async fn create_begun(
        &self,
        creator: &ApiKey,
        ticket: OnceTicket,
        new: NewKey,
        respond: RespondToKey,
    ) -> Result<Once<IssuedKey>, KeyError> {
        let id = id_of(ticket.seed);
        let (key, issued) = match self.generate_key(creator, new, id, ticket.seed.begun_at) {
            Ok(issued) => (issued.key.clone(), Ok(issued)),
            // An attempt that was cut off may have made it when the creator was still allowed to.
            Err(refused) => {
                let Some(there) = self.store.key(id).await? else {
                    self.once.end_once(ticket).await?;
                    return Err(refused);
                };
                (there, Err(refused))
            }
        };
        let limit = self.plans.of(creator).child_keys;
        let there = match self.once.create_key_once(ticket, key, limit, respond.clone()).await? {
            OnceDone::Done(there) => there,
            OnceDone::Answered(answer) => return Ok(Once::Answered(answer)),
            OnceDone::UnderWay => return Ok(Once::UnderWay),
        };
        let issued = match issued {
            Ok(issued) if there.secret_hash == issued.key.secret_hash => issued,
            // An attempt that was cut off has made it: nobody has its secrets.
            Ok(_) | Err(_) => return Ok(Once::Answered(respond(&there))),
        };
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

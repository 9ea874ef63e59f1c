//! Changes of a key's name, tier, scopes and expiry.

use super::{KeyError, KeyService, ListedKey, require_grantable, too_many_conflicts};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, ScopeSet, Tier};
use crate::store::{ExtendKeyError, UpdateKeyError};

/// How often a change is applied to a newer revision, after a conflict with another change.
const REAPPLIED: usize = 10;

/// What to change of a key; `None` leaves it as it is.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    pub name: Option<String>,
    pub tier: Option<Tier>,
    pub scopes: Option<ScopeSet>,
    /// `Some(None)`: the key does not expire.
    pub expires_at: Option<Option<Timestamp>>,
}

impl KeyChange {
    fn applied_to(&self, key: &ApiKey) -> ApiKey {
        let Self { name, tier, scopes, expires_at } = self.clone();
        ApiKey {
            name: name.unwrap_or_else(|| key.name.clone()),
            tier: tier.unwrap_or(key.tier),
            scopes: scopes.unwrap_or(key.scopes),
            expires_at: expires_at.unwrap_or(key.expires_at),
            ..key.clone()
        }
    }
}

impl KeyService {
    /// A key that `caller` may change: itself, and those below it.
    pub async fn changeable(&self, caller: &ApiKey, id: KeyId) -> Result<ApiKey, KeyError> {
        let key = self.visible_key(caller, id).await?;
        if key.is_root {
            return Err(KeyError::Forbidden("the root key can't be changed"));
        }
        Ok(key)
    }

    /// Changes a key that `caller` may change, to what `caller` could create. Two changes at once are both applied, one
    /// after the other. Keys below it stay as they are.
    pub async fn update(&self, caller: &ApiKey, id: KeyId, change: &KeyChange) -> Result<ListedKey, KeyError> {
        let _lock = self.changes.lock(id).await?;
        for _ in 0..=REAPPLIED {
            let before = self.changeable(caller, id).await?;
            // A key that changes itself may have been narrowed since.
            let giver = if before.id == caller.id { &before } else { caller };
            require_grantable(giver, change)?;
            let mut key = change.applied_to(&before);
            if key != before {
                key.revision += 1;
                if !self.replaced(&before, &key).await? {
                    continue;
                }
                self.authentication.key_changed(&key).await;
            }
            return Ok(ListedKey { last_used_at: self.last_used_at(id).await?, key });
        }
        Err(too_many_conflicts())
    }

    /// Writes a changed key; `false`: it has changed meanwhile.
    async fn replaced(&self, before: &ApiKey, key: &ApiKey) -> Result<bool, KeyError> {
        if !before.is_outlived_by(key.expires_at) {
            return match self.store.update_key(key.clone()).await {
                Ok(()) => Ok(true),
                Err(UpdateKeyError::Conflict) => Ok(false),
                Err(UpdateKeyError::Store(error)) => Err(error.into()),
            };
        }
        let creator = match key.created_by() {
            Some(creator) => self.store.key(creator).await?,
            None => None,
        };
        let limit = creator.and_then(|creator| self.plans.of(&creator).child_keys);
        match self.store.extend_key(key.clone(), limit, self.clock.now()).await {
            Ok(()) => Ok(true),
            Err(ExtendKeyError::Conflict) => Ok(false),
            Err(ExtendKeyError::QuotaExceeded { limit, current }) => {
                Err(KeyError::CreatorQuotaExceeded { limit, current })
            }
            Err(ExtendKeyError::Store(error)) => Err(error.into()),
        }
    }
}

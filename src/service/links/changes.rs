//! Changes and deletions of links, and links that are made under a given name.

use std::sync::Arc;

use thiserror::Error;

use super::{CreateError, CreatedLink, LinkService};
use crate::cache::links::LinkCache;
use crate::caller::CallerState;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName, NewLink};
use crate::service::AccessError;
use crate::service::run_to_completion::RunToCompletion;
use crate::store::{StoreError, UpdateLinkError};

/// How often a change is applied to a newer revision, after a conflict with another change.
const REAPPLIED: usize = 10;

/// Why a link was not changed. `R` is why the caller's function refused it.
#[derive(Debug, Error)]
pub enum ChangeError<R> {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("the change was refused")]
    Refused(R),
    /// The link has webhooks and was changed too often in the last 33 days.
    #[error("the link was changed too often")]
    TooManyRevisions,
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A link as it is after a change.
#[derive(Debug)]
pub struct Changed {
    pub link: Link,
    /// Whether the change has made a new revision.
    pub is_new: bool,
}

/// What a name is to have.
#[derive(Debug)]
pub enum Put {
    /// A new link, which has the name as its slug.
    Make(NewLink),
    /// The link that is there, changed.
    Replace(Link),
}

/// What was done with a name.
#[derive(Debug)]
pub enum PutLink {
    Made(CreatedLink),
    Replaced(Changed),
}

impl LinkService {
    /// Changes a link of `caller`, which is the link's owner or the root key. `apply` makes the new link of the old one,
    /// or refuses; it is called again if the link changes meanwhile. The service sets revision and time.
    ///
    /// Once it returns, this node answers by the changed link. What has begun is brought to its end even if the caller goes away.
    pub async fn change<R: Send + 'static>(
        &self,
        caller: &Arc<ApiKey>,
        name: Option<LinkName>,
        mut apply: impl FnMut(&Link) -> Result<Link, R> + Send + 'static,
    ) -> Result<Changed, ChangeError<R>> {
        let (service, caller) = (self.clone(), Arc::clone(caller));
        let work = |waiter: CallerState| async move {
            let _lock = service.changes.lock(name).await?;
            for _ in 0..=REAPPLIED {
                check_caller_waits(&waiter)?;
                let before = service.get(&caller, name).await?;
                let after = apply(&before).map_err(ChangeError::Refused)?;
                if let Some(changed) = waiter.writes_while_waiting(service.replaced(before, after)).await? {
                    return Ok(changed);
                }
            }
            Err(too_many_conflicts().into())
        };
        RunToCompletion::new(work).await
    }

    /// Gives a name a link: `decide` gets the link that has the name, if there is one, and says what to do. It is called
    /// again if that changes meanwhile.
    pub async fn put<R: Send + 'static>(
        &self,
        caller: &Arc<ApiKey>,
        name: LinkName,
        known_created: Option<u64>,
        mut decide: impl FnMut(Option<&Link>) -> Result<Put, R> + Send + 'static,
    ) -> Result<PutLink, ChangeError<R>> {
        let (service, caller) = (self.clone(), Arc::clone(caller));
        let work = |waiter: CallerState| async move {
            let _lock = service.changes.lock(Some(name)).await?;
            for _ in 0..=REAPPLIED {
                check_caller_waits(&waiter)?;
                let before = service.get_if_any(&caller, name).await?;
                match (decide(before.as_ref()).map_err(ChangeError::Refused)?, before) {
                    (Put::Replace(after), Some(before)) => {
                        if let Some(changed) = waiter.writes_while_waiting(service.replaced(before, after)).await? {
                            return Ok(PutLink::Replaced(changed));
                        }
                    }
                    (Put::Make(new), _) => {
                        match waiter.writes_while_waiting(service.create(&caller, new, known_created)).await {
                            Ok(created) => return service.settled(created).await.map(PutLink::Made),
                            // Another request may have made a link of this name meanwhile.
                            Err(CreateError::SlugTaken) if service.get_if_any(&caller, name).await?.is_some() => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                    // There is nothing to replace: it is looked for again.
                    (Put::Replace(_), None) => {}
                }
            }
            Err(too_many_conflicts().into())
        };
        RunToCompletion::new(work).await
    }

    /// Deletes a link of `caller`. `check` may refuse.
    pub async fn delete<R: Send + 'static>(
        &self,
        caller: &Arc<ApiKey>,
        name: Option<LinkName>,
        mut check: impl FnMut(&Link) -> Result<(), R> + Send + 'static,
    ) -> Result<(), ChangeError<R>> {
        let (service, caller) = (self.clone(), Arc::clone(caller));
        let work = |waiter: CallerState| async move {
            let _lock = service.changes.lock(name).await?;
            for _ in 0..=REAPPLIED {
                check_caller_waits(&waiter)?;
                let link = service.get(&caller, name).await?;
                check(&link).map_err(ChangeError::Refused)?;
                let link = Link { updated_at: service.clock.now(), ..link };
                let deleted = write(&service.cache, link.name(), service.store.delete_link(link));
                if applied(waiter.writes_while_waiting(deleted).await)? {
                    return Ok(());
                }
            }
            Err(too_many_conflicts().into())
        };
        RunToCompletion::new(work).await
    }

    async fn get_if_any(&self, caller: &ApiKey, name: LinkName) -> Result<Option<Link>, AccessError> {
        match self.get(caller, Some(name)).await {
            Ok(link) => Ok(Some(link)),
            Err(AccessError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a changed link; `None`: it has changed meanwhile. A change that changes nothing is not written.
    async fn replaced<R>(&self, before: Link, after: Link) -> Result<Option<Changed>, ChangeError<R>> {
        if after == before {
            return Ok(Some(Changed { link: before, is_new: false }));
        }
        let link = Link { revision: before.revision.next(), updated_at: self.clock.now(), ..after };
        let updated = write(&self.cache, link.name(), self.store.update_link(link.clone())).await;
        Ok(applied(updated)?.then_some(Changed { link, is_new: true }))
    }

    /// A new link with the id and the revision that the store has given it.
    async fn settled<R>(&self, created: CreatedLink) -> Result<CreatedLink, ChangeError<R>> {
        let link = self.store.link(created.link.name()).await?;
        let link = link.ok_or_else(|| StoreError::Unavailable("the new link was deleted at once".into()))?;
        Ok(CreatedLink { link, ..created })
    }
}

/// Writes a change of a link. Once it returns, this node answers by what the store has.
pub(in crate::service) async fn write(
    cache: &Arc<LinkCache>,
    name: LinkName,
    change: impl Future<Output = Result<(), UpdateLinkError>>,
) -> Result<(), UpdateLinkError> {
    let changing = cache.begin_change(name);
    let written = change.await;
    match written {
        // It may be made later.
        Err(UpdateLinkError::Store(StoreError::Unavailable(_))) => changing.outcome_unknown(),
        _ => changing.done(),
    }
    written
}

/// Whether a write was applied; `false`: the link has changed since it was read.
fn applied<R>(written: Result<(), UpdateLinkError>) -> Result<bool, ChangeError<R>> {
    match written {
        Ok(()) => Ok(true),
        Err(UpdateLinkError::Conflict) => Ok(false),
        Err(UpdateLinkError::TooManyRevisions) => Err(ChangeError::TooManyRevisions),
        Err(UpdateLinkError::Store(error)) => Err(error.into()),
    }
}

/// Refuses to begin a change whose request was already answered with an error: it could undo later changes.
fn check_caller_waits(waiter: &CallerState) -> Result<(), StoreError> {
    if waiter.is_waiting() {
        return Ok(());
    }
    Err(StoreError::Unavailable("nobody waits for this change any more".into()))
}

fn too_many_conflicts() -> StoreError {
    StoreError::Unavailable("the link changed too often at the same time".into())
}

//! Links of a request that is done once.

use std::collections::HashSet;
use std::sync::Arc;

use super::bulk::{BulkPermit, CreatedLinks, SPARE_IDS, end_changes, names_of, results_of};
use super::{CreateError, LinkService};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{KeptAnswer, OnceRequest, OnceSeed};
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, NewLink, ShortId};
use crate::service::once::Once;
use crate::service::run_to_completion::RunToCompletion;
use crate::store::once::{AnswerOfLinks, OnceDone, OnceTicket};
use crate::store::{NewLinks, StoreError};

/// Makes the answer from the outcome of each link.
pub type RespondToLinks = Arc<dyn Fn(&[Result<Link, CreateError>]) -> KeptAnswer + Send + Sync>;

impl LinkService {
    /// As [`create_all`](Self::create_all), once: again, the request has the answer that `respond` has made. Each link comes
    /// with its place in the request, from which its id follows.
    pub async fn create_all_once(
        &self,
        caller: &Arc<ApiKey>,
        request: OnceRequest,
        new: Vec<(usize, NewLink)>,
        respond: RespondToLinks,
        place: Option<BulkPermit>,
    ) -> Result<Once<CreatedLinks>, CreateError> {
        let (service, caller) = (self.clone(), Arc::clone(caller));
        RunToCompletion::writes_while_waiting(async move {
            // Until the work is done.
            let _place = place;
            match Once::begun(service.once.begin_once(request).await?) {
                Ok(ticket) => service.create_begun(&caller, ticket, &new, respond).await,
                Err(known) => Ok(known),
            }
        })
        .await
    }

    /// How a request stands that would be refused; `None`: nothing is known of it.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn look_up_once<T>(&self, request: OnceRequest) -> Result<Option<Once<T>>, StoreError> {
        Ok(self.once.look_up_once(request).await?.and_then(|state| Once::begun(state).err()))
    }

    /// When the first attempt of a request began that was cut off: it is done again as it was meant then.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn cut_off_once(&self, request: OnceRequest) -> Result<Option<Timestamp>, StoreError> {
        self.once.cut_off_once(request).await
    }

    async fn create_begun(
        &self,
        caller: &ApiKey,
        ticket: OnceTicket,
        new: &[(usize, NewLink)],
        respond: RespondToLinks,
    ) -> Result<Once<CreatedLinks>, CreateError> {
        let names = names_of(new.iter().map(|(_, new)| new));
        let changing: Vec<_> = names.into_iter().map(|name| self.cache.begin_change(name)).collect();
        let now = ticket.seed.begun_at;
        let limit = self.plans.of(caller).links_per_month;
        let drawn = derived_ids(ticket.seed, new.last().map_or(0, |(place, _)| place + 1));
        let links: Vec<Link> = new.iter().map(|(place, new)| new.made(drawn[*place][0], caller.id, now)).collect();
        let spare_ids = new.iter().map(|(place, _)| drawn[*place][1..].to_vec()).collect();
        let answered = links.clone();
        let answer: AnswerOfLinks = Arc::new(move |made| respond(&results_of(&answered, made)));
        // The root key gets names that are kept for other keys, too.
        let new_links = NewLinks { links: links.clone(), spare_ids, takes_kept_names: caller.is_root };
        let generation = self.cache.generation();
        let done = self.once.create_links_once(ticket, new_links, limit, answer).await.map_err(CreateError::from);
        let results = done.as_ref().map(|done| match done {
            OnceDone::Done(made) => results_of(&links, made),
            // Another attempt makes them.
            OnceDone::Answered(_) | OnceDone::UnderWay => Vec::new(),
        });
        end_changes(changing, results.as_deref().map_err(|error| *error));
        let results = results.unwrap_or_default();
        let made = match done? {
            OnceDone::Done(made) => made,
            OnceDone::Answered(answer) => return Ok(Once::Answered(answer)),
            OnceDone::UnderWay => return Ok(Once::UnderWay),
        };
        self.note_created(caller, now, made.used);
        for link in results.iter().flatten().filter(|link| link.slug.is_none()) {
            self.cache.insert(link, generation)?;
        }
        Ok(Once::Done(CreatedLinks { links: results, links_created: Some(made.used), limit }))
    }
}

/// Ids for so many places, each with its spare ones; all of them differ. Those of a place do not depend on later places.
fn derived_ids(seed: OnceSeed, places: usize) -> Vec<Vec<ShortId>> {
    let (mut drawn, mut number) = (HashSet::new(), 0);
    let mut draw = || {
        loop {
            let id = ShortId::derived(seed, number);
            number += 1;
            if drawn.insert(id) {
                return id;
            }
        }
    };
    (0..places).map(|_| (0..=SPARE_IDS).map(|_| draw()).collect()).collect()
}

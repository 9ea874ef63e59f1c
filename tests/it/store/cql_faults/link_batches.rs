//! Links that are made together: each is made and counted, or neither.

use std::time::Duration;

use futures_util::future::join_all;
use signpost::domain::link::{Link, Revision, ShortId};
use signpost::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

use super::run::Run;
use crate::store::samples::{deleted, key_id, link, link_named, name, noon, short_id};
use crate::support::{SOON, eventually};

fn together(links: Vec<Link>) -> NewLinks {
    NewLinks { links, ..NewLinks::default() }
}

/// Three links, of which the quota allows two. As the service does, a client that is told that it failed asks again, which
/// is for other ids.
pub async fn create_links(run: &Run) {
    let owner = key_id(run.n);
    let ids = |part: u32| [1, 2, 3].map(|n| run.n + 10_000 * (3 * part + n));
    let links = |part: u32| ids(part).map(|n| link(n, owner)).to_vec();
    if let Some(made) = run.answered(run.disturbed(run.store.create_links(together(links(0)), Some(2))).await) {
        is_made_in_order(run, &made, &links(0));
    }
    let mut asked: Vec<ShortId> = ids(0).map(short_id).to_vec();
    let mut parts = 1..;
    let last = eventually("other links, or the end of the quota", SOON, async || {
        let part = parts.next().unwrap();
        asked.extend(ids(part).map(short_id));
        // Through the other store: this one has little patience, and a link that is not settled in time is refused.
        run.answered(run.clean.create_links(together(links(part)), Some(2)).await).filter(|made| made.used == 2)
    })
    .await;
    assert_eq!(last.used, 2, "{}", run.name());
    // What nobody waited for is brought to an end a moment later.
    eventually(&format!("all links are counted and no other: {}", run.name()), SOON, async || {
        let found = join_all(asked.iter().map(|id| run.clean.link((*id).into()))).await;
        let there = found.into_iter().filter(|found| found.as_ref().unwrap().is_some()).count() as u64;
        let used = run.links_created(owner).await;
        assert!(used <= 2 && there >= used, "{there} of {used}: {}", run.name());
        (used == there).then_some(())
    })
    .await;
}

/// Two are made, and the others are refused by the quota. A link that is not settled in time is refused by itself.
fn is_made_in_order(run: &Run, made: &MadeLinks, links: &[Link]) {
    let is_settled = |made: &&(&Result<ShortId, CreateLinkError>, &Link)| {
        !matches!(made.0, Err(CreateLinkError::Store(StoreError::Unavailable(_))))
    };
    let mut room = 2;
    for (made, link) in made.links.iter().zip(links).collect::<Vec<_>>().iter().filter(is_settled) {
        if room > 0 {
            room -= 1;
            assert_eq!(made.as_ref().ok(), Some(&link.id), "{}", run.name());
        } else {
            let is_right = matches!(made, Err(CreateLinkError::QuotaExceeded { limit: 2, current: 2 }));
            assert!(is_right, "{made:?}: {}", run.name());
        }
    }
    assert_eq!(made.used, 2 - room, "{}", run.name());
}

/// A slug, and one of the form of an id, which is the id: whatever has become of the call, the names can be had.
pub async fn create_links_with_slugs(run: &Run) {
    let owner = key_id(run.n);
    let slugs = [format!("slug-{}", run.n), format!("S{:06}", run.n)];
    let links = |part: u32| -> Vec<Link> {
        // Time goes on faster than here: a creation that took a name and was never heard of again is given up then.
        let created_at = noon().plus(Duration::from_secs(10) * part);
        let numbers = (0..).map(|n| run.n + 10_000 * (2 * part + n));
        let named = numbers.zip(&slugs).map(|(n, slug)| link_named(n, owner, slug));
        named.map(|link| Link { created_at, updated_at: created_at, ..link }).collect()
    };
    let created = run.disturbed(run.store.create_links(together(links(0)), Some(1_000))).await;
    let refusals = |made: &MadeLinks| {
        for refused in made.links.iter().filter_map(|link| link.as_ref().err()) {
            let is_right =
                matches!(refused, CreateLinkError::NameTaken | CreateLinkError::Store(StoreError::Unavailable(_)));
            assert!(is_right, "{refused}: {}", run.name());
        }
    };
    if let Some(made) = run.answered(created) {
        refusals(&made);
        for (link, slug) in made.links.iter().zip(&slugs) {
            let found = run.clean.link(name(slug)).await.unwrap();
            assert!(link.is_err() || found.is_some(), "{slug} is made: {}", run.name());
        }
    }
    let mut parts = 1..;
    let found = eventually(&format!("links have the names: {}", run.name()), SOON, async || {
        if let Some(made) = run.answered(run.clean.create_links(together(links(parts.next().unwrap())), None).await) {
            refusals(&made);
        }
        let found = join_all(slugs.iter().map(|slug| run.clean.link(name(slug)))).await;
        // The first call may still go on: a link whose slug is its id is there before it is counted, and may go again.
        let are_counted = run.links_created(owner).await >= 2;
        found.into_iter().map(Result::unwrap).collect::<Option<Vec<Link>>>().filter(|_| are_counted)
    })
    .await;
    assert!(found.iter().all(|link| link.owner == owner), "{}", run.name());
}

/// A name that is kept for another key: the creation gets it, or it stays kept for that key.
pub async fn create_link_with_kept_name(run: &Run) {
    let (keeper, taker) = (key_id(run.n), key_id(1_000_000 + run.n));
    let slug = format!("slug-{}", run.n);
    let before = link_named(run.n, keeper, &slug);
    run.clean.create_link(before.clone(), None).await.unwrap();
    run.clean.delete_link(deleted(&before)).await.unwrap();
    let taking = NewLinks { takes_kept_names: true, ..together(vec![link_named(run.n + 10_000, taker, &slug)]) };
    let made = run.answered(run.disturbed(run.store.create_links(taking, None)).await);
    let is_made = made.is_some_and(|made| made.links[0].is_ok());
    let mut tries = 2..;
    let found = eventually(&format!("a link has the name: {}", run.name()), SOON, async || {
        let n = tries.next().unwrap();
        // Time goes on faster than here: a creation that was never heard of again is given up then.
        let created_at = noon().plus(Duration::from_secs(40) * n);
        for owner in [key_id(2_000_000 + run.n), keeper] {
            let next = Link { created_at, updated_at: created_at, ..link_named(run.n + 10_000 * n, owner, &slug) };
            match run.clean.create_link(next, None).await {
                Ok(_) => assert!(owner == keeper && !is_made, "{owner}: {}", run.name()),
                Err(CreateLinkError::NameTaken | CreateLinkError::Store(StoreError::Unavailable(_))) => {}
                Err(error) => panic!("{error}: {}", run.name()),
            }
        }
        run.clean.link(name(&slug)).await.unwrap()
    })
    .await;
    assert_eq!(found.revision, Revision(2), "{}", run.name());
    assert!(found.owner == taker || found.owner == keeper && !is_made, "{}", run.name());
}

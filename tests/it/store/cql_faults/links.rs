//! Links that get a name, are changed and deleted: that is done, or not, and never half.

use std::time::{Duration, Instant};

use futures_util::future::join;
use signpost::domain::link::{Link, LinkOptions};
use signpost::store::{CreateLinkError, StoreError, UpdateLinkError};

use super::run::{LATE, Run};
use crate::store::samples::{changed, deleted, key_id, link, link_named, name, noon, target};
use crate::support::{SOON, eventually};

fn slug(run: &Run) -> String {
    format!("slug-{}", run.n)
}

/// As the service does, a client that is told that it failed asks again, which is for another id.
pub async fn create_link_with_slug(run: &Run) {
    let slug = slug(run);
    create_named(run, &slug).await;
}

/// A slug of the form of an id, which is the id.
pub async fn create_link_with_own_id(run: &Run) {
    let slug = format!("S{:06}", run.n);
    create_named(run, &slug).await;
}

async fn create_named(run: &Run, slug: &str) {
    let owner = key_id(run.n);
    let created = run.disturbed(run.store.create_link(link_named(run.n, owner, slug), Some(50))).await;
    match created {
        Ok(count) => assert_eq!(count, 1, "{}", run.name()),
        Err(CreateLinkError::Store(StoreError::Unavailable(_))) => {}
        Err(error) => panic!("{error}: {}", run.name()),
    }
    let mut numbers = 1..;
    let found = eventually(&format!("a counted link has the name: {}", run.name()), SOON, async || {
        let tries = numbers.next().unwrap();
        let n = run.n + 10_000 * tries;
        // A creation waits as long as the store does for one that took the name and was never heard of again, and gives that up
        // 30 s after it began. Time goes on faster than here: the second try is later than that.
        let created_at = noon().plus(Duration::from_secs(10) + Duration::from_secs(30) * (tries - 1));
        let next = Link { created_at, updated_at: created_at, ..link_named(n, owner, slug) };
        match run.clean.create_link(next, Some(1_000)).await {
            // The first one had failed; or it is made after all, or about to be given up.
            Ok(_) | Err(CreateLinkError::NameTaken | CreateLinkError::Store(StoreError::Unavailable(_))) => {}
            Err(error) => panic!("{error}: {}", run.name()),
        }
        let found = run.clean.link(name(slug)).await.unwrap()?;
        // With its id as its name, the link of a creation that has failed is found until it is removed.
        (run.links_created(owner).await >= 1).then_some(found)
    })
    .await;
    assert_eq!((found.owner, found.slug), (owner, Some(name(slug))), "{}", run.name());
}

pub async fn create_link_with_slug_past_the_quota(run: &Run) {
    let (owner, slug) = (key_id(run.n), slug(run));
    run.clean.create_link(link(1_000_000 + run.n, owner), Some(1)).await.unwrap();
    match run.disturbed(run.store.create_link(link_named(run.n, owner, &slug), Some(1))).await {
        Err(
            CreateLinkError::QuotaExceeded { limit: 1, current: 1 }
            | CreateLinkError::Store(StoreError::Unavailable(_)),
        ) => {}
        other => panic!("{other:?}: {}", run.name()),
    }
    assert_eq!(run.clean.link(name(&slug)).await.unwrap(), None, "{}", run.name());
    // The name is free for another key.
    let other = link_named(2_000_000 + run.n, key_id(1_000_000 + run.n), &slug);
    eventually(&format!("the name is free: {}", run.name()), SOON, async || {
        run.clean.create_link(other.clone(), None).await.ok()
    })
    .await;
}

fn edited(before: &Link, n: u32) -> Link {
    let options = LinkOptions { expires_at: Some(noon()), ..before.options.clone() };
    changed(&Link { target: target(&format!("https://example.com/{n}")), options, ..before.clone() })
}

pub async fn update_link(run: &Run) {
    let before = link_named(run.n, key_id(run.n), &slug(run));
    run.clean.create_link(before.clone(), None).await.unwrap();
    let after = edited(&before, 1);
    let updated = run.disturbed(run.store.update_link(after.clone())).await;
    if is_settled(run, updated) {
        assert_eq!(run.clean.link(after.name()).await.unwrap().as_ref(), Some(&after), "{}", run.name());
    }
    // One that is brought to its end later leaves the next one in peace: it is made once, on whatever it finds.
    change_at_last(run, &before, &after).await;
    assert_eq!(run.clean.link_at(before.id, before.revision).await.unwrap().as_ref(), Some(&before), "{}", run.name());
}

/// Whether a change was made. Nobody else makes one, so there is no conflict.
fn is_settled(run: &Run, changed: Result<(), UpdateLinkError>) -> bool {
    match changed {
        Ok(()) => true,
        Err(UpdateLinkError::Store(StoreError::Unavailable(_))) => false,
        Err(error) => panic!("{error}: {}", run.name()),
    }
}

/// Changes a link again and again until a change is made, as the service does, and looks that it stays.
async fn change_at_last(run: &Run, before: &Link, after: &Link) {
    let last = eventually(&format!("another change: {}", run.name()), SOON, async || {
        let now = run.clean.link(before.name()).await.unwrap().unwrap();
        assert!(now == *before || now == *after, "half of a change: {}", run.name());
        let next = edited(&now, 2);
        run.clean.update_link(next.clone()).await.ok().map(|()| next)
    })
    .await;
    assert_eq!(run.clean.link(before.name()).await.unwrap().as_ref(), Some(&last), "{}", run.name());
}

/// A change that was made, whose answer is lost, and that another followed.
pub async fn update_link_that_another_follows(run: &Run) {
    let before = link_named(run.n, key_id(run.n), &slug(run));
    run.clean.create_link(before.clone(), None).await.unwrap();
    let (first, began) = (edited(&before, 1), Instant::now());
    let follow = async {
        while began.elapsed() < LATE * 2 {
            let now = run.clean.link(before.name()).await.unwrap().unwrap();
            if now == first {
                run.clean.update_link(edited(&now, 2)).await.unwrap();
                return true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        false
    };
    let (updated, has_followed) = run.disturbed(join(run.store.update_link(first.clone()), follow)).await;
    let is_made = is_settled(run, updated);
    assert!(has_followed || !is_made, "{}", run.name());
    if has_followed {
        let now = run.clean.link(before.name()).await.unwrap();
        assert_eq!(now, Some(edited(&first, 2)), "{}", run.name());
    }
}

pub async fn delete_link(run: &Run) {
    let before = link_named(run.n, key_id(run.n), &slug(run));
    run.clean.create_link(before.clone(), None).await.unwrap();
    let is_made = is_settled(run, run.disturbed(run.store.delete_link(deleted(&before))).await);
    assert!(!is_made || run.clean.link(before.name()).await.unwrap().is_none(), "{}", run.name());
    eventually(&format!("it is deleted: {}", run.name()), SOON, async || {
        // If it was not, this does it.
        let _ = run.clean.delete_link(deleted(&before)).await;
        run.clean.link(before.name()).await.unwrap().is_none().then_some(())
    })
    .await;
    let of_another = link_named(1_000_000 + run.n, key_id(1_000_000 + run.n), &slug(run));
    let refused = run.clean.create_link(of_another, None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}: {}", run.name());
    run.clean.create_link(link_named(2_000_000 + run.n, before.owner, &slug(run)), None).await.unwrap();
    let again = run.clean.link(before.name()).await.unwrap().unwrap();
    assert!(again.revision > before.revision, "{}", run.name());
}

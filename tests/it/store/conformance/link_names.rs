//! Names of links: who gets one, and for whom it is kept.

use std::sync::Arc;

use futures_util::future::join_all;
use signpost::domain::link::{Link, LinkName, Revision, ShortId};
use signpost::store::{CreateLinkError, NewLinks, Store};

use super::{Ground, reopened};
use crate::store::samples::{deleted, key_id, link, link_named, name, noon, short_id};

async fn create(store: &Arc<dyn Store>, link: &Link) {
    store.create_link(link.clone(), None).await.unwrap();
}

async fn assert_taken(store: &Arc<dyn Store>, link: Link) {
    let (owner, month) = (link.owner, link.created_at.month());
    let before = store.monthly_counts(owner, month).await.unwrap();
    let refused = store.create_link(link, None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    assert_eq!(store.monthly_counts(owner, month).await.unwrap(), before);
}

async fn delete(store: &Arc<dyn Store>, name: LinkName) -> Link {
    let link = store.link(name).await.unwrap().unwrap();
    store.delete_link(deleted(&link)).await.unwrap();
    link
}

pub async fn a_link_is_reached_by_its_slug_and_not_by_its_id(ground: &impl Ground) {
    let mut store = ground.open().await;
    let longest = "x".repeat(LinkName::MAX_BYTES);
    let links = [(1, "a"), (2, "summer_sale-2026"), (3, longest.as_str())];
    let links = links.map(|(n, slug)| link_named(n, key_id(1), slug));
    for link in &links {
        create(&store, link).await;
    }
    for _ in 0..2 {
        for link in &links {
            assert_eq!(store.link(link.name()).await.unwrap().as_ref(), Some(link));
            assert_eq!(store.link(link.id.into()).await.unwrap(), None, "the path of its id");
            assert_eq!(store.link_at(link.id, Revision::FIRST).await.unwrap().as_ref(), Some(link));
            assert!(!store.definitely_absent(&link.name()));
        }
        for other in ["A", "summer_sale", "summer_sale-20266"] {
            assert_eq!(store.link(name(other)).await.unwrap(), None, "{other}");
        }
        store = reopened(ground, store).await;
    }
}

pub async fn of_fifty_creations_of_one_name_at_once_one_wins(ground: &impl Ground) {
    let store = ground.open().await;
    for (first, slug) in [(1, "summer"), (101, "Summer7")] {
        let owners = first..first + 50;
        let creations = owners.clone().map(|n| store.create_link(link_named(n, key_id(n), slug), Some(5)));
        let created = join_all(creations).await;
        let winners: Vec<u32> =
            owners.clone().zip(&created).filter(|(_, created)| created.is_ok()).map(|(n, _)| n).collect();
        let refused = created.iter().filter(|created| matches!(created, Err(CreateLinkError::NameTaken))).count();
        assert_eq!((winners.len(), refused), (1, 49));
        let link = store.link(name(slug)).await.unwrap().unwrap();
        assert_eq!((link.owner, link.slug), (key_id(winners[0]), Some(name(slug))));
        for owner in owners {
            let used = store.monthly_counts(key_id(owner), noon().month()).await.unwrap().links_created;
            assert_eq!(used, u64::from(owner == winners[0]));
        }
    }
}

pub async fn a_slug_of_the_form_of_an_unused_id_is_the_id(ground: &impl Ground) {
    let mut store = ground.open().await;
    create(&store, &link_named(1, key_id(1), "Summer7")).await;
    let expected = Link { id: name("Summer7").as_id().unwrap(), ..link_named(1, key_id(1), "Summer7") };
    for _ in 0..2 {
        assert_eq!(store.link(name("Summer7")).await.unwrap().as_ref(), Some(&expected));
        assert_eq!(store.link(short_id(1).into()).await.unwrap(), None);
        store = reopened(ground, store).await;
    }
    // The generated id was not used.
    create(&store, &link(1, key_id(2))).await;
}

pub async fn ids_and_slugs_are_one_name_space(ground: &impl Ground) {
    let store = ground.open().await;
    create(&store, &link(1, key_id(1))).await;
    create(&store, &link_named(2, key_id(1), "summer")).await;
    create(&store, &link_named(3, key_id(1), "Summer7")).await;
    let generated = Link { id: name("Summer7").as_id().unwrap(), ..link(4, key_id(1)) };
    for owner in [key_id(1), key_id(2)] {
        assert_taken(&store, link_named(5, owner, short_id(1).as_str())).await;
        // The id of a link that has another name.
        assert_taken(&store, link_named(5, owner, short_id(2).as_str())).await;
        assert_taken(&store, Link { owner, ..link(2, owner) }).await;
        assert_taken(&store, link_named(2, owner, "another_one")).await;
        assert_taken(&store, Link { owner, ..generated.clone() }).await;
        assert_taken(&store, link_named(5, owner, "summer")).await;
        assert_taken(&store, link_named(5, owner, "Summer7")).await;
    }
    // What was refused has taken no name.
    create(&store, &link_named(5, key_id(2), "another_one")).await;
}

/// Another link: with another id, and a later revision.
pub async fn the_name_of_a_deleted_link_is_kept_for_its_key(ground: &impl Ground) {
    let mut store = ground.open().await;
    create(&store, &link(1, key_id(1))).await;
    create(&store, &link_named(2, key_id(1), "summer")).await;
    create(&store, &link_named(3, key_id(1), "Summer7")).await;
    let names = [LinkName::from(short_id(1)), name("summer"), name("Summer7")];
    let mut ids = vec![short_id(3)];
    for round in 0..2_u32 {
        for (index, kept) in (0..).zip(names) {
            let before = delete(&store, kept).await;
            assert_eq!(before.revision, Revision(round + 1));
            assert!(!ids.contains(&before.id), "an id is used again");
            ids.push(before.id);
            if round == 0 {
                store = reopened(ground, store).await;
            }
            assert_eq!(store.link(kept).await.unwrap(), None);
            assert_taken(&store, link_named(9, key_id(2), kept.as_str())).await;
            let n = 10 + 10 * round + index;
            create(&store, &link_named(n, key_id(1), kept.as_str())).await;
            let again = Link { revision: Revision(round + 2), ..link_named(n, key_id(1), kept.as_str()) };
            assert_eq!(store.link(kept).await.unwrap(), Some(again));
            assert_eq!(store.link(short_id(n).into()).await.unwrap(), None);
        }
    }
    // All that was refused has used nothing.
    create(&store, &link(9, key_id(2))).await;
}

pub async fn no_id_is_used_again(ground: &impl Ground) {
    let mut store = ground.open().await;
    create(&store, &link(1, key_id(1))).await;
    create(&store, &link_named(2, key_id(1), "summer")).await;
    delete(&store, short_id(1).into()).await;
    delete(&store, name("summer")).await;
    for _ in 0..2 {
        for owner in [key_id(1), key_id(2)] {
            for n in [1, 2] {
                assert_taken(&store, link(n, owner)).await;
                assert_taken(&store, link_named(n, owner, "another_one")).await;
            }
            // The id of a link that had another name is kept for nobody.
            assert_taken(&store, link_named(3, owner, short_id(2).as_str())).await;
        }
        let unused = link_named(3, key_id(1), short_id(2).as_str());
        assert!(matches!(create_with_kept_name(&store, unused, None).await, Err(CreateLinkError::NameTaken)));
        store = reopened(ground, store).await;
    }
}

/// Creates a link that may have a name that is kept for another key.
async fn create_with_kept_name(
    store: &Arc<dyn Store>,
    link: Link,
    limit: Option<u64>,
) -> Result<ShortId, CreateLinkError> {
    let new = NewLinks { links: vec![link], takes_kept_names: true, ..NewLinks::default() };
    store.create_links(new, limit).await.unwrap().links.pop().unwrap()
}

pub async fn a_creation_may_get_a_name_that_is_kept_for_another_key(ground: &impl Ground) {
    let store = ground.open().await;
    let names = [LinkName::from(short_id(1)), name("summer")];
    create(&store, &link(1, key_id(1))).await;
    create(&store, &link_named(2, key_id(1), "summer")).await;
    for (n, kept) in (10..).zip(names) {
        let taking = || link_named(n, key_id(2), kept.as_str());
        let refused = create_with_kept_name(&store, taking(), None).await;
        assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "a link has it: {refused:?}");
        delete(&store, kept).await;
        assert_taken(&store, taking()).await;
        // A creation that is refused leaves it to its keeper.
        let refused = create_with_kept_name(&store, taking(), Some(0)).await;
        assert!(matches!(refused, Err(CreateLinkError::QuotaExceeded { .. })), "{refused:?}");
        assert_taken(&store, link_named(9, key_id(3), kept.as_str())).await;
        create(&store, &link_named(n + 10, key_id(1), kept.as_str())).await;
        delete(&store, kept).await;

        create_with_kept_name(&store, taking(), Some(10)).await.unwrap();
        let made = store.link(kept).await.unwrap().unwrap();
        assert_eq!((made.owner, made.revision), (key_id(2), Revision(3)));
        // It is kept for the key whose link had it last.
        delete(&store, kept).await;
        assert_taken(&store, link_named(9, key_id(1), kept.as_str())).await;
        create(&store, &link_named(n + 20, key_id(2), kept.as_str())).await;
        delete(&store, kept).await;
    }
}

pub async fn of_creations_of_a_kept_name_at_once_one_wins(ground: &impl Ground) {
    let store = ground.open().await;
    for (n, kept) in [(1, "summer"), (2, "Summer7")] {
        create(&store, &link_named(n, key_id(1), kept)).await;
        delete(&store, name(kept)).await;
        let creations = (10..30).map(|m| store.create_link(link_named(20 * n + m, key_id(1), kept), None));
        let created = join_all(creations).await;
        assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 1, "{created:?}");
        assert_eq!(store.link(name(kept)).await.unwrap().unwrap().revision, Revision(2));
    }
}

pub async fn a_creation_refused_by_the_quota_takes_no_name(ground: &impl Ground) {
    let store = ground.open().await;
    for slug in ["summer", "Summer7"] {
        let refused = store.create_link(link_named(1, key_id(1), slug), Some(0)).await;
        assert!(matches!(refused, Err(CreateLinkError::QuotaExceeded { limit: 0, current: 0 })), "{refused:?}");
        assert_eq!(store.link(name(slug)).await.unwrap(), None);
    }
    create(&store, &link_named(2, key_id(2), "summer")).await;
    create(&store, &link_named(3, key_id(2), "Summer7")).await;
}

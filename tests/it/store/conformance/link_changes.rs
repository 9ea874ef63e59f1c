//! Changes and deletions of links.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use signpost::domain::breakdown::Dimension;
use signpost::domain::hit::LinkHits;
use signpost::domain::link::{Destination, Link, LinkOptions, LinkWebhooks, Revision};
use signpost::domain::tally::BotFilter;
use signpost::store::{ExpiredLink, MAX_REVISIONS, Store, UpdateLinkError};

use super::{Ground, reopened};
use crate::store::samples::{
    DAY, MINUTE, batch, changed, counted, day, deleted, key_id, label, link, link_named, longest_link, name, noon,
    short_id, target,
};

async fn create(store: &Arc<dyn Store>, link: &Link) {
    store.create_link(link.clone(), None).await.unwrap();
}

/// The link that is at the same place, but for what a store sets.
fn becoming(before: &Link, after: Link) -> Link {
    let Link { id, slug, owner, created_at, .. } = *before;
    Link { id, slug, owner, created_at, ..changed(&Link { revision: before.revision, ..after }) }
}

async fn assert_conflict(store: &Arc<dyn Store>, link: &Link) {
    for refused in [store.update_link(link.clone()).await, store.delete_link(link.clone()).await] {
        assert!(matches!(refused, Err(UpdateLinkError::Conflict)), "{refused:?}");
    }
}

pub async fn a_change_of_all_that_can_change_is_read_back(ground: &impl Ground) {
    let mut store = ground.open().await;
    let options = LinkOptions {
        title: Some("Summer".into()),
        tags: vec!["a".into(), "b".into()],
        notes: Some("notes".into()),
        archived: true,
        expires_at: Some(noon().plus(DAY)),
        not_before: Some(noon()),
        fallback: Some(target("https://example.com/over")),
        cache_seconds: 7,
        preview: false,
        skip_bots: true,
        ..LinkOptions::default()
    };
    for mut now in [link(1, key_id(1)), link_named(2, key_id(1), "summer"), link_named(3, key_id(1), "Summer7")] {
        create(&store, &now).await;
        now = store.link(now.name()).await.unwrap().unwrap();
        let urls = vec!["https://hooks.example.com/c".to_owned()];
        let edited = Link {
            target: target("https://example.com/elsewhere"),
            webhooks: now.webhooks.changed_to(urls).unwrap(),
            options: options.clone(),
            block_reason: Some("phishing".into()),
            ..now.clone()
        };
        // Short and long ones in turns: a store may keep these in different ways.
        for after in [edited, longest_link(9), link(9, key_id(1)), longest_link(9), link(9, key_id(1))] {
            now = becoming(&now, after);
            store.update_link(now.clone()).await.unwrap();
            assert_eq!(store.link(now.name()).await.unwrap().as_ref(), Some(&now));
            store = reopened(ground, store).await;
            assert_eq!(store.link(now.name()).await.unwrap().as_ref(), Some(&now));
        }
    }
}

/// Whoever asks: by a look-up, or what is known without one. Nobody gets an older revision than before.
pub async fn a_change_is_seen_at_once(ground: &impl Ground) {
    let store = ground.open().await;
    for (next, first) in [(3, link(1, key_id(1))), (4, link_named(2, key_id(1), "summer"))] {
        create(&store, &first).await;
        let name = first.name();
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = {
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut newest = Revision::FIRST;
                while !is_over.load(Ordering::Acquire) {
                    let found = match store.peek(&name) {
                        Some(destination) => destination.revision,
                        None => store.link(name).await.unwrap().unwrap().revision,
                    };
                    assert!(found >= newest, "{found:?} after {newest:?}");
                    newest = found;
                    tokio::task::yield_now().await;
                }
            })
        };
        let mut now = first;
        for n in 0..40 {
            now = changed(&Link { target: target(&format!("https://example.com/{n}")), ..now });
            store.update_link(now.clone()).await.unwrap();
            assert!(!store.definitely_absent(&name));
            assert!(store.peek(&name).is_none_or(|found| found == Destination::from(&now)));
            assert_eq!(store.link(name).await.unwrap().as_ref(), Some(&now));
        }
        is_over.store(true, Ordering::Release);
        reader.await.unwrap();
        store.delete_link(deleted(&now)).await.unwrap();
        assert_eq!((store.peek(&name), store.link(name).await.unwrap()), (None, None));
        create(&store, &Link { slug: Some(name), ..link(next, key_id(1)) }).await;
        let again = store.link(name).await.unwrap().unwrap();
        assert_eq!((again.id, again.revision), (short_id(next), now.revision.next()));
        assert!(store.peek(&name).is_none_or(|found| found == Destination::from(&again)));
    }
}

pub async fn a_change_of_another_revision_is_refused(ground: &impl Ground) {
    let store = ground.open().await;
    let first = link(1, key_id(1));
    assert_conflict(&store, &changed(&first)).await;
    create(&store, &first).await;
    assert!(matches!(store.update_link(first.clone()).await, Err(UpdateLinkError::Conflict)));
    let second = changed(&first);
    store.update_link(second.clone()).await.unwrap();
    assert!(matches!(store.update_link(second.clone()).await, Err(UpdateLinkError::Conflict)), "twice");
    assert!(matches!(store.delete_link(deleted(&first)).await, Err(UpdateLinkError::Conflict)));
    assert_conflict(&store, &changed(&changed(&second))).await;
    assert_eq!(store.link(first.name()).await.unwrap(), Some(second));
}

pub async fn of_changes_of_one_revision_at_once_one_wins(ground: &impl Ground) {
    let store = ground.open().await;
    let mut now = link(1, key_id(1));
    create(&store, &now).await;
    for round in 0..5 {
        let link_of = |n: u32| Link { target: target(&format!("https://example.com/{round}/{n}")), ..changed(&now) };
        let made = join_all((0..20).map(|n| store.update_link(link_of(n)))).await;
        let winners: Vec<u32> = (0..).zip(&made).filter(|(_, made)| made.is_ok()).map(|(n, _)| n).collect();
        let conflicts = made.iter().filter(|made| matches!(made, Err(UpdateLinkError::Conflict))).count();
        assert_eq!((winners.len(), conflicts), (1, 19));
        now = link_of(winners[0]);
        assert_eq!(store.link(now.name()).await.unwrap().as_ref(), Some(&now));
    }
    let deletions = join_all((0..10).map(|_| store.delete_link(deleted(&now)))).await;
    assert_eq!(deletions.iter().filter(|made| made.is_ok()).count(), 1);
}

pub async fn a_deleted_link_is_gone(ground: &impl Ground) {
    let mut store = ground.open().await;
    let links = [link(1, key_id(1)), link_named(2, key_id(1), "summer"), longest_link(3)];
    for link in &links {
        create(&store, link).await;
        let month = store.monthly_counts(key_id(1), noon().month()).await.unwrap();
        store.delete_link(deleted(link)).await.unwrap();
        assert_eq!(store.monthly_counts(key_id(1), noon().month()).await.unwrap(), month);
    }
    for _ in 0..2 {
        for link in &links {
            assert_eq!(store.link(link.name()).await.unwrap(), None);
            assert_eq!(store.peek(&link.name()), None);
            assert_conflict(&store, &changed(link)).await;
            assert!(matches!(store.delete_link(deleted(link)).await, Err(UpdateLinkError::Conflict)));
        }
        store = reopened(ground, store).await;
    }
}

/// For deliveries of hits that met them: so only those with webhooks.
pub async fn earlier_revisions_with_webhooks_are_kept(ground: &impl Ground) {
    let mut store = ground.open().await;
    let first = link_named(1, key_id(1), "summer");
    create(&store, &first).await;
    let second = becoming(&first, longest_link(9));
    let third = becoming(&second, Link { webhooks: LinkWebhooks::default(), ..link(9, key_id(1)) });
    let fourth = becoming(&third, link(9, key_id(1)));
    for next in [&second, &third, &fourth] {
        store.update_link(next.clone()).await.unwrap();
    }
    for is_deleted in [false, true] {
        if is_deleted {
            store.delete_link(deleted(&fourth)).await.unwrap();
        }
        for _ in 0..2 {
            for kept in [&first, &second, &fourth] {
                assert_eq!(store.link_at(first.id, kept.revision).await.unwrap().as_ref(), Some(kept));
            }
            assert_eq!(store.link_at(first.id, third.revision).await.unwrap(), None);
            assert_eq!(store.link_at(first.id, fourth.revision.next()).await.unwrap(), None);
            assert_eq!(store.link_at(short_id(2), Revision::FIRST).await.unwrap(), None);
            store = reopened(ground, store).await;
        }
    }
    // Another link of that name has other revisions.
    create(&store, &link_named(2, key_id(1), "summer")).await;
    assert_eq!(store.link_at(first.id, fourth.revision).await.unwrap(), Some(fourth.clone()));
    assert_eq!(store.link_at(first.id, fourth.revision.next()).await.unwrap(), None);
    assert!(store.link_at(short_id(2), fourth.revision.next()).await.unwrap().is_some());
}

pub async fn a_link_with_webhooks_has_so_many_changes_at_the_most(ground: &impl Ground) {
    let store = ground.open().await;
    let mut now = link(1, key_id(1));
    create(&store, &now).await;
    for _ in 0..MAX_REVISIONS {
        now = changed(&now);
        store.update_link(now.clone()).await.unwrap();
    }
    let refused = store.update_link(changed(&now)).await;
    assert!(matches!(refused, Err(UpdateLinkError::TooManyRevisions)), "{refused:?}");
    assert_eq!(store.link(now.name()).await.unwrap().as_ref(), Some(&now));
    // The operator can block and unblock it nevertheless.
    for block_reason in [Some("phishing".to_owned()), None] {
        now = Link { block_reason, ..changed(&now) };
        store.update_link(now.clone()).await.unwrap();
    }
    store.delete_link(deleted(&now)).await.unwrap();
    assert_eq!(store.link_at(now.id, now.revision).await.unwrap(), Some(now));
}

pub async fn expired_links_come_in_the_order_of_their_expiry(ground: &impl Ground) {
    let mut store = ground.open().await;
    let expiring = |link: Link, minutes: Option<u32>| {
        let expires_at = minutes.map(|minutes| noon().plus(minutes * MINUTE));
        Link { options: LinkOptions { expires_at, ..link.options }, ..link }
    };
    let found =
        |link: &Link| ExpiredLink { expires_at: link.options.expires_at.unwrap(), id: link.id, name: link.name() };
    let mut links = vec![
        expiring(link(1, key_id(1)), Some(50)),
        expiring(link_named(2, key_id(2), "summer"), Some(20)),
        expiring(link(3, key_id(1)), Some(20)),
        expiring(longest_link(4), Some(10)),
        expiring(link(5, key_id(1)), None),
        expiring(link(6, key_id(1)), Some(30)),
        expiring(link(7, key_id(1)), Some(60 * 24 * 3)),
    ];
    for link in &links {
        create(&store, link).await;
    }
    for (index, minutes) in [(5, None), (4, Some(15)), (0, Some(40)), (0, Some(5))] {
        links[index] = expiring(changed(&links[index]), minutes);
        store.update_link(links[index].clone()).await.unwrap();
    }
    store.delete_link(deleted(&links[2])).await.unwrap();
    let expected = [&links[0], &links[3], &links[4], &links[1], &links[6]].map(found);
    for _ in 0..2 {
        let until = |minutes: u32| noon().plus(minutes * MINUTE);
        let all = store.expired_links(until(60 * 24 * 4), None, 10).await.unwrap();
        assert_eq!(all, expected);
        assert_eq!(store.expired_links(until(20), None, 10).await.unwrap(), expected[..3], "before, not at it");
        assert_eq!(store.expired_links(until(0), None, 10).await.unwrap(), []);
        let mut after = None;
        for expected in expected {
            let page = store.expired_links(until(60 * 24 * 4), after, 1).await.unwrap();
            assert_eq!(page, [expected]);
            after = Some(expected);
        }
        assert_eq!(store.expired_links(until(60 * 24 * 4), after, 10).await.unwrap(), []);
        assert_eq!(store.expired_links(until(1), after, 10).await.unwrap(), []);
        store = reopened(ground, store).await;
    }
}

pub async fn counts_of_deleted_links_are_removed(ground: &impl Ground) {
    let store = ground.open().await;
    let links = [link(1, key_id(1)), link_named(2, key_id(1), "summer"), link(3, key_id(1))];
    let mut hits = batch(0, 10);
    for n in 1..=3 {
        create(&store, &links[n as usize - 1]).await;
        // Many, so that a store spreads them.
        let days = (0..60).map(|ago| day(n, noon().minus(ago * DAY), [if ago == 0 { 300 } else { 1 }, 0, 0]));
        let cities = (0..300).map(|city| label(n, noon(), Dimension::City, &format!("city {city}"), 1));
        hits.days.extend(counted(days, cities));
    }
    store.apply_hits(Arc::new(hits)).await.unwrap();
    for link in &links[..2] {
        store.delete_link(deleted(link)).await.unwrap();
    }
    let at = deleted(&links[0]).updated_at;
    let remove = async |before| {
        let mut steps = 0;
        while store.remove_counts_of_deleted(before).await.unwrap() {
            steps += 1;
            assert!(steps < 1_000);
        }
        let hits = join_all((1..=3).map(|n| store.link_hits(short_id(n), Some(BotFilter::Include)))).await;
        hits.into_iter().map(|hits| hits.unwrap()).collect::<Vec<_>>()
    };
    let sizes = |hits: &LinkHits| (hits.days.len(), hits.labels.iter().any(|(_, list)| !list.is_empty()));
    let before = remove(at).await;
    assert_eq!(before.iter().map(sizes).collect::<Vec<_>>(), [(60, true); 3], "deleted at it, not before");
    let after = remove(at.plus(MINUTE)).await;
    assert_eq!(after.iter().map(sizes).collect::<Vec<_>>(), [(0, false), (0, false), (60, true)]);
    // Another link of the name is another one.
    create(&store, &link_named(4, key_id(1), "summer")).await;
    assert_eq!(sizes(&store.link_hits(short_id(4), Some(BotFilter::Include)).await.unwrap()), (0, false));
    assert_eq!(store.link(name("summer")).await.unwrap().unwrap().id, short_id(4));
}

//! Links that are created together.

use futures_util::future::{join, join_all};
use signpost::domain::link::{Link, LinkOptions, Revision, ShortId};
use signpost::store::{CreateLinkError, MadeLinks, NewLinks, Store};

use super::{Ground, reopened};
use crate::store::samples::{deleted, key_id, link, link_named, longest_link, name, noon, short_id};

fn together(links: Vec<Link>) -> NewLinks {
    NewLinks { links, ..NewLinks::default() }
}

/// The outcome of each link: its id, or a word.
fn told(made: &MadeLinks) -> Vec<Result<ShortId, &'static str>> {
    let word = |error: &CreateLinkError| match error {
        CreateLinkError::NameTaken => "taken",
        CreateLinkError::QuotaExceeded { .. } => "quota",
        CreateLinkError::Store(_) => "store",
    };
    made.links.iter().map(|link| link.as_ref().copied().map_err(word)).collect()
}

async fn used(store: &dyn Store, owner: u32) -> u64 {
    store.monthly_counts(key_id(owner), noon().month()).await.unwrap().links_created
}

pub async fn links_made_together_are_read_back_as_they_were_created(ground: &impl Ground) {
    let mut store = ground.open().await;
    let owner = key_id(1);
    let ends = LinkOptions { expires_at: Some(noon()), ..LinkOptions::default() };
    let mut links: Vec<Link> = (0..100).map(|n| link(n, owner)).collect();
    links[7] = Link { owner, ..longest_link(7) };
    links[40] = link_named(40, owner, "summer");
    links[41] = Link { options: ends, ..link_named(41, owner, "Winter7") };
    let made = store.create_links(together(links.clone()), Some(100)).await.unwrap();
    assert_eq!(made.used, 100);
    // A slug of the form of an id is the id.
    links[41].id = ShortId::parse("Winter7").unwrap();
    assert_eq!(told(&made), links.iter().map(|link| Ok(link.id)).collect::<Vec<_>>());
    for _ in 0..2 {
        for link in &links {
            assert_eq!(store.link(link.name()).await.unwrap().as_ref(), Some(link));
        }
        assert_eq!(used(&*store, 1).await, 100);
        store = reopened(ground, store).await;
    }
    let expired = store.expired_links(noon().plus(crate::store::samples::MINUTE), None, 10).await.unwrap();
    assert_eq!(expired.iter().map(|link| link.id).collect::<Vec<_>>(), [links[41].id]);
    let none = store.create_links(NewLinks::default(), Some(1)).await.unwrap();
    assert!(none.links.is_empty());
}

pub async fn links_made_together_take_the_quota_in_order(ground: &impl Ground) {
    let store = ground.open().await;
    store.create_link(link(1_000, key_id(1)), Some(60)).await.unwrap();
    store.create_link(link_named(2_000, key_id(2), "taken"), None).await.unwrap();
    // The third and the 97th are refused for another reason; that takes no place.
    let mut links: Vec<Link> = (0..100).map(|n| link(n, key_id(1))).collect();
    for n in [2, 96] {
        links[n] = link_named(u32::try_from(n).unwrap(), key_id(1), "taken");
    }
    links[95] = link_named(95, key_id(1), "behind");
    let made = store.create_links(together(links.clone()), Some(60)).await.unwrap();
    let expected = (0..100).map(|n| match n {
        2 => Err("taken"),
        0..60 => Ok(short_id(n)),
        _ => Err("quota"),
    });
    assert_eq!(told(&made), expected.collect::<Vec<_>>());
    assert_eq!((made.used, used(&*store, 1).await), (60, 60));
    for refused in &made.links[60..] {
        assert!(matches!(refused, Err(CreateLinkError::QuotaExceeded { limit: 60, current: 60 })), "{refused:?}");
    }
    let found = join_all(links.iter().map(|link| store.link(link.id.into()))).await;
    assert_eq!(found.into_iter().filter(|found| found.as_ref().unwrap().is_some()).count(), 59);
    // The name behind the quota's end is free for another key; nothing more is made for this one.
    store.create_link(link_named(3_000, key_id(3), "behind"), None).await.unwrap();
    let again = store.create_links(together(vec![link(4_000, key_id(1))]), Some(60)).await.unwrap();
    assert_eq!((told(&again), again.used), (vec![Err("quota")], 60));
    let none =
        store.create_links(together(vec![link(5_000, key_id(5)), link(5_001, key_id(5))]), Some(0)).await.unwrap();
    assert_eq!((told(&none), none.used), (vec![Err("quota"); 2], 0));
}

pub async fn of_two_links_with_one_slug_made_together_the_first_has_it(ground: &impl Ground) {
    let store = ground.open().await;
    let slugs = ["summer", "Summer7", "summer", "Summer7", "other"];
    let links: Vec<Link> = (0..).zip(slugs).map(|(n, slug)| link_named(n, key_id(1), slug)).collect();
    let made = store.create_links(together(links), None).await.unwrap();
    let ids = [short_id(0), ShortId::parse("Summer7").unwrap(), short_id(4)];
    assert_eq!(told(&made), [Ok(ids[0]), Ok(ids[1]), Err("taken"), Err("taken"), Ok(ids[2])]);
    assert_eq!((made.used, used(&*store, 1).await), (3, 3));
    for (slug, id) in ["summer", "Summer7", "other"].into_iter().zip(ids) {
        assert_eq!(store.link(name(slug)).await.unwrap().unwrap().id, id);
    }
    for n in [2, 3] {
        assert_eq!(store.link(short_id(n).into()).await.unwrap(), None);
    }
}

pub async fn a_link_made_together_with_others_gets_a_spare_id_in_the_place_of_a_taken_one(ground: &impl Ground) {
    let store = ground.open().await;
    for n in [1, 2, 10] {
        store.create_link(link(n, key_id(9)), None).await.unwrap();
    }
    let links = vec![link(0, key_id(1)), link(1, key_id(1)), link_named(2, key_id(1), "named"), link(0, key_id(1))];
    let spare = |ids: &[u32]| ids.iter().map(|n| short_id(*n)).collect::<Vec<_>>();
    let spare_ids = vec![spare(&[30]), spare(&[10, 11]), spare(&[12, 13]), spare(&[14])];
    let made =
        store.create_links(NewLinks { links: links.clone(), spare_ids, ..NewLinks::default() }, None).await.unwrap();
    let ids: Vec<ShortId> = told(&made).into_iter().map(Result::unwrap).collect();
    assert_eq!(ids[1..3], [11, 12].map(short_id));
    // Of two links with one id, either has it.
    assert!(ids[0] == short_id(0) && ids[3] == short_id(14) || ids[0] == short_id(30) && ids[3] == short_id(0));
    for (link, id) in links.iter().zip(ids) {
        let name = link.slug.unwrap_or(id.into());
        assert_eq!(store.link(name).await.unwrap(), Some(Link { id, ..link.clone() }));
    }
    // Without any, they are refused, and nothing is counted.
    let made =
        store.create_links(together(vec![link(1, key_id(1)), link_named(2, key_id(1), "more")]), None).await.unwrap();
    assert_eq!((told(&made), made.used), (vec![Err("taken"); 2], 4));
    store.create_link(link_named(20, key_id(2), "more"), None).await.unwrap();
}

pub async fn the_kept_name_of_a_deleted_link_can_be_made_together_with_others(ground: &impl Ground) {
    let store = ground.open().await;
    for (n, slug) in [(0, "summer"), (1, "Summer7")] {
        store.create_link(link_named(n, key_id(1), slug), None).await.unwrap();
        let there = store.link(name(slug)).await.unwrap().unwrap();
        store.delete_link(deleted(&there)).await.unwrap();
    }
    let links =
        |owner, from| vec![link_named(from, key_id(owner), "summer"), link_named(from + 1, key_id(owner), "Summer7")];
    let others = store.create_links(together(links(2, 10)), None).await.unwrap();
    assert_eq!((told(&others), others.used), (vec![Err("taken"); 2], 0));
    let own = store.create_links(together(links(1, 20)), None).await.unwrap();
    assert_eq!(told(&own), [Ok(short_id(20)), Ok(short_id(21))]);
    for slug in ["summer", "Summer7"] {
        assert_eq!(store.link(name(slug)).await.unwrap().unwrap().revision, Revision(2));
    }
}

pub async fn calls_and_creations_at_once_make_as_many_links_as_the_limit_says(ground: &impl Ground) {
    let store = ground.open().await;
    let calls = (0..8_u32).map(|call| {
        let (store, first) = (store.clone(), call * 100);
        let links = (first..first + 50).map(|n| link(n, key_id(1))).collect();
        tokio::spawn(async move { store.create_links(together(links), Some(300)).await.unwrap() })
    });
    let singles = (10_000..10_050_u32).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.create_link(link(n, key_id(1)), Some(300)).await })
    });
    let (calls, singles) = join(join_all(calls), join_all(singles)).await;
    let mut created = singles.into_iter().filter(|single| single.as_ref().unwrap().is_ok()).count();
    for made in calls {
        let told = told(&made.unwrap());
        let count = told.iter().filter(|link| link.is_ok()).count();
        // In order: nothing is made behind a refusal.
        assert!(told[..count].iter().all(Result::is_ok) && told[count..].iter().all(|link| *link == Err("quota")));
        created += count;
    }
    assert_eq!((created, used(&*store, 1).await), (300, 300));
    let ids = (0..8_u32).flat_map(|call| call * 100..call * 100 + 50).chain(10_000..10_050);
    let found = join_all(ids.map(|n| store.link(short_id(n).into()))).await;
    assert_eq!(found.into_iter().filter(|found| found.as_ref().unwrap().is_some()).count(), 300);
}

pub async fn of_calls_with_the_same_slugs_at_once_each_name_is_made_once(ground: &impl Ground) {
    let store = ground.open().await;
    let slugs: Vec<String> =
        (0..40).map(|n| if n % 2 == 0 { format!("slug-{n}") } else { format!("Slug{n:03}") }).collect();
    let calls = (0..6_u32).map(|call| {
        let mut links: Vec<Link> =
            (call * 100..).zip(&slugs).map(|(n, slug)| link_named(n, key_id(call), slug)).collect();
        if call % 2 == 1 {
            links.reverse();
        }
        let store = store.clone();
        tokio::spawn(async move { store.create_links(together(links), None).await.unwrap() })
    });
    let made: Vec<MadeLinks> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let created: usize = made.iter().map(|made| told(made).iter().filter(|link| link.is_ok()).count()).sum();
    assert_eq!(created, 40);
    assert!(made.iter().flat_map(told).all(|link| link.is_ok() || link == Err("taken")));
    for (call, made) in (0..).zip(&made) {
        assert_eq!(used(&*store, call).await, made.used);
    }
    for slug in &slugs {
        assert!(store.link(name(slug)).await.unwrap().is_some());
    }
}

//! Links, the monthly quota of their creation, and values kept by name.

use futures_util::future::{join, join_all};
use signpost::domain::calendar::Timestamp;
use signpost::domain::link::{Link, LinkWebhooks};
use signpost::domain::quota::MonthlyCounts;
use signpost::store::CreateLinkError;

use super::{Ground, reopened};
use crate::store::samples::{key_id, link, link_with_data, longest_link, month, noon, short_id};

pub async fn a_link_is_read_back_as_it_was_created(ground: &impl Ground) {
    let mut store = ground.open().await;
    let links = [link(1, key_id(1)), longest_link(2), Link { webhooks: LinkWebhooks::default(), ..link(3, key_id(2)) }];
    for link in &links {
        store.create_link(link.clone(), None).await.unwrap();
    }
    for _ in 0..2 {
        for link in &links {
            assert_eq!(store.link(link.id.into()).await.unwrap().as_ref(), Some(link));
        }
        assert_eq!(store.link(short_id(4).into()).await.unwrap(), None);
        store = reopened(ground, store).await;
    }
}

/// A store may keep long links in another way than short ones: no length in between is lost.
pub async fn links_of_every_length_are_read_back(ground: &impl Ground) {
    let store = ground.open().await;
    let lengths = (3_500..4_000).step_by(7).chain(3_680..3_720).chain((7_000..8_000).step_by(99));
    let links: Vec<Link> = lengths.zip(0..).map(|(length, n)| link_with_data(n, length)).collect();
    for created in join_all(links.iter().map(|link| store.create_link(link.clone(), None))).await {
        created.unwrap();
    }
    for (found, link) in join_all(links.iter().map(|link| store.link(link.id.into()))).await.into_iter().zip(&links) {
        assert!(found.unwrap().as_ref() == Some(link), "{} bytes of data", link.data.as_json().len());
    }
}

pub async fn a_taken_id_is_refused_and_nothing_is_counted(ground: &impl Ground) {
    let store = ground.open().await;
    assert_eq!(store.create_link(link(1, key_id(1)), Some(5)).await.unwrap(), 1);
    for owner in [key_id(1), key_id(2)] {
        let other = Link { tracked: false, ..link(1, owner) };
        assert!(matches!(store.create_link(other, Some(5)).await, Err(CreateLinkError::NameTaken)));
    }
    assert_eq!(store.link(short_id(1).into()).await.unwrap(), Some(link(1, key_id(1))));
    let counts = |key| store.monthly_counts(key, noon().month());
    assert_eq!(counts(key_id(1)).await.unwrap().links_created, 1);
    assert_eq!(counts(key_id(2)).await.unwrap().links_created, 0);
    assert_eq!(store.create_link(link(2, key_id(1)), Some(5)).await.unwrap(), 2);
}

pub async fn a_thousand_creations_at_once_make_as_many_links_as_the_limit_says(ground: &impl Ground) {
    let store = ground.open().await;
    let creations = (0..1_000).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.create_link(link(n, key_id(1)), Some(100)).await })
    });
    let mut counts = Vec::new();
    let mut created = Vec::new();
    for (n, creation) in (0..).zip(join_all(creations).await) {
        match creation.unwrap() {
            Ok(count) => {
                counts.push(count);
                created.push(short_id(n));
            }
            Err(CreateLinkError::QuotaExceeded { limit, current }) => assert_eq!((limit, current), (100, 100)),
            Err(error) => panic!("{error}"),
        }
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=100).collect::<Vec<_>>());
    let found = join_all((0..1_000).map(|n| store.link(short_id(n).into()))).await;
    let found: Vec<_> = found.into_iter().filter_map(|link| link.unwrap()).map(|link| link.id).collect();
    assert_eq!(found, created);
    let used = store.monthly_counts(key_id(1), noon().month()).await.unwrap();
    assert_eq!(used, MonthlyCounts { links_created: 100, ..MonthlyCounts::default() });
}

pub async fn creations_of_one_id_at_once_make_one_link_and_count_one(ground: &impl Ground) {
    let store = ground.open().await;
    let created = join_all((1..=20).map(|owner| store.create_link(link(1, key_id(owner)), Some(5)))).await;
    let winners: Vec<u32> = (1..).zip(&created).filter(|(_, created)| created.is_ok()).map(|(n, _)| n).collect();
    let refused = created.iter().filter(|created| matches!(created, Err(CreateLinkError::NameTaken))).count();
    assert_eq!((winners.len(), refused), (1, 19));
    assert_eq!(store.link(short_id(1).into()).await.unwrap().unwrap().owner, key_id(winners[0]));
    for owner in 1..=20 {
        let used = store.monthly_counts(key_id(owner), noon().month()).await.unwrap().links_created;
        assert_eq!(used, u64::from(owner == winners[0]));
    }
}

pub async fn months_and_keys_are_counted_apart(ground: &impl Ground) {
    let store = ground.open().await;
    let last_of_november = Timestamp::parse("2026-11-30T23:59:59.999Z").unwrap();
    let first_of_december = Timestamp(last_of_november.0 + 1);
    for (n, created_at, count) in [(1, last_of_november, 1), (2, last_of_november, 2), (3, first_of_december, 1)] {
        let link = Link { created_at, ..link(n, key_id(1)) };
        assert_eq!(store.create_link(link, Some(2)).await.unwrap(), count);
    }
    let third = Link { created_at: last_of_november, ..link(4, key_id(1)) };
    assert!(matches!(store.create_link(third, Some(2)).await, Err(CreateLinkError::QuotaExceeded { .. })));
    let others = Link { created_at: last_of_november, ..link(4, key_id(2)) };
    assert_eq!(store.create_link(others, Some(2)).await.unwrap(), 1);
    for (key, of, count) in [(1, "2026-11", 2), (1, "2026-12", 1), (2, "2026-11", 1), (2, "2026-12", 0)] {
        assert_eq!(store.monthly_counts(key_id(key), month(of)).await.unwrap().links_created, count, "{key} {of}");
    }
}

pub async fn a_creation_refused_by_the_quota_leaves_nothing(ground: &impl Ground) {
    let store = ground.open().await;
    let refused = store.create_link(link(1, key_id(1)), Some(0)).await;
    assert!(matches!(refused, Err(CreateLinkError::QuotaExceeded { limit: 0, current: 0 })), "{refused:?}");
    assert_eq!(store.link(short_id(1).into()).await.unwrap(), None);
    // The id is free, and a higher limit holds from now on.
    assert_eq!(store.create_link(link(1, key_id(1)), Some(1)).await.unwrap(), 1);
    assert_eq!(store.create_link(link(2, key_id(1)), None).await.unwrap(), 2);
    let refused = store.create_link(link(3, key_id(1)), Some(1)).await;
    assert!(matches!(refused, Err(CreateLinkError::QuotaExceeded { limit: 1, current: 2 })), "{refused:?}");
}

pub async fn the_first_value_under_a_name_stays(ground: &impl Ground) {
    let store = ground.open().await;
    let (a, b) = join(store.put_if_absent("raced", b"a".to_vec()), store.put_if_absent("raced", b"b".to_vec())).await;
    let winner = a.unwrap();
    assert_eq!(winner, b.unwrap());
    assert!([b"a".to_vec(), b"b".to_vec()].contains(&winner));
    assert_eq!(store.put_if_absent("other", Vec::new()).await.unwrap(), b"");
    assert_eq!(store.put_if_absent("other", b"late".to_vec()).await.unwrap(), b"");
    let store = reopened(ground, store).await;
    assert_eq!(store.put_if_absent("raced", b"late".to_vec()).await.unwrap(), winner);
}

//! Lists of links, against a model that has all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::link::{Link, LinkOptions, ListIndex, ListOrder, ShortId};
use signpost::store::{LinkListQuery, NewLinks, Store};
use uuid::Uuid;

use super::{Ground, reopened};
use crate::store::samples::{DAY, changed, deleted, key_id, link, link_named, name, noon, short_id, target};

fn all(owner: Option<KeyId>) -> LinkListQuery {
    LinkListQuery {
        owner,
        index: ListIndex::All,
        order: ListOrder::Newest,
        created_from: None,
        created_until: None,
        after: None,
        limit: 100,
    }
}

/// The id of no key. A store may have lists of all keys under it.
const NO_KEY: KeyId = KeyId(Uuid::nil());

fn by(owner: Option<KeyId>, index: ListIndex) -> LinkListQuery {
    LinkListQuery { index, ..all(owner) }
}

/// Walks to the end of a list, looking at `limit` rows at a time.
async fn walk(store: &dyn Store, query: &LinkListQuery, limit: usize) -> Vec<Link> {
    let (mut links, mut query) = (Vec::new(), LinkListQuery { limit, ..query.clone() });
    loop {
        let page = store.list_links(query.clone()).await.unwrap();
        assert!(page.links.len() <= page.examined);
        links.extend(page.links);
        if page.next.is_none() {
            return links;
        }
        query.after = page.next;
    }
}

/// What a list has of these links.
fn model(links: &[Link], query: &LinkListQuery) -> Vec<Link> {
    let is_listed = |link: &&Link| {
        query.owner.is_none_or(|owner| owner == link.owner)
            && query.index.has(link)
            && query.created_from.is_none_or(|from| from <= link.created_at)
            && query.created_until.is_none_or(|until| link.created_at < until)
    };
    let mut listed: Vec<Link> = links.iter().filter(is_listed).cloned().collect();
    listed.sort_by_key(|link| (link.created_at, link.id));
    if matches!(query.index, ListIndex::SlugPrefix(_)) {
        listed.sort_by_key(Link::name);
    } else if query.order == ListOrder::Newest {
        listed.reverse();
    }
    listed
}

#[track_caller]
fn assert_same(listed: &[Link], expected: &[Link], query: &LinkListQuery) {
    let ids = |links: &[Link]| links.iter().map(|link| link.id).collect::<Vec<_>>();
    assert_eq!(ids(listed), ids(expected), "{query:?}");
    assert_eq!(listed, expected, "{query:?}");
}

async fn assert_lists(store: &dyn Store, links: &[Link], queries: &[LinkListQuery]) {
    for query in queries {
        for limit in [1, 7, 100] {
            assert_same(&walk(store, query, limit).await, &model(links, query), query);
        }
    }
}

fn created(link: Link, at: Timestamp) -> Link {
    Link { created_at: at, updated_at: at, ..link }
}

fn tagged(link: Link, tags: &[&str]) -> Link {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Link { options: LinkOptions { tags, ..link.options }, ..link }
}

async fn create_each(store: &dyn Store, links: &[Link]) {
    for link in join_all(links.iter().map(|link| store.create_link(link.clone(), None))).await {
        link.unwrap();
    }
}

/// Links of three keys, on several days and in several months, some at the same time.
fn over_time() -> Vec<Link> {
    let at = |n: u32| noon().plus(DAY * (n / 4) * 9).plus(Duration::from_millis(u64::from(n % 4) / 2));
    (0..40).map(|n| created(link(n * 7919 % 1_000, key_id(n % 3)), at(n))).collect()
}

pub async fn a_walk_lists_each_link_once_by_the_time_of_its_creation(ground: &impl Ground) {
    let mut store = ground.open().await;
    let links = over_time();
    create_each(&*store, &links).await;
    let (from, until) = (Some(noon().plus(DAY * 9)), Some(noon().plus(DAY * 40)));
    for _ in 0..2 {
        for owner in [Some(NO_KEY), None, Some(key_id(1)), Some(key_id(9))] {
            let query = all(owner);
            let queries = [
                query.clone(),
                LinkListQuery { order: ListOrder::Oldest, ..query.clone() },
                LinkListQuery { created_from: from, created_until: until, ..query.clone() },
                LinkListQuery { order: ListOrder::Oldest, created_from: from, created_until: until, ..query.clone() },
                LinkListQuery { created_from: until, created_until: from, ..query },
            ];
            assert_lists(&*store, &links, &queries).await;
        }
        store = reopened(ground, store).await;
    }
}

pub async fn links_are_listed_by_tag_target_and_slug(ground: &impl Ground) {
    let store = ground.open().await;
    let mut links = over_time();
    for (n, link) in (0_u32..).zip(&mut links) {
        let tags: &[&str] = [&["Äpfel", "mail"][..], &["äpfel"], &["MAIL", "x y"], &[]][n as usize % 4];
        *link = tagged(link.clone(), tags);
        if n % 5 == 0 {
            link.target = target("https://example.com/other");
        }
    }
    let slugs = ["a", "aa", "a-b", "aB3xY9z", "ab", "abc", "abd", "B", "_a", "abC"];
    let named = (2_000..).zip(slugs).map(|(n, slug)| link_named(n, key_id(n % 2), slug));
    links.extend(named);
    create_each(&*store, &links).await;
    for link in &mut links {
        // A slug of the form of an unused id is the id.
        link.id = link.slug.and_then(|slug| slug.as_id()).unwrap_or(link.id);
    }
    for owner in [Some(NO_KEY), None, Some(key_id(0)), Some(key_id(1))] {
        let mut queries = Vec::new();
        for tag in ["äpfel", "Mail", "x y", "x"] {
            queries.push(by(owner, ListIndex::of_tag(tag)));
            queries.push(LinkListQuery { order: ListOrder::Oldest, ..by(owner, ListIndex::of_tag(tag)) });
        }
        for url in ["https://example.com/other", "https://example.com/Other"] {
            queries.push(by(owner, ListIndex::Target(url.into())));
        }
        queries.extend(
            ["a", "ab", "abc", "aB3xY9z", "A", "_", "abcd"]
                .map(|prefix| by(owner, ListIndex::SlugPrefix(prefix.into()))),
        );
        assert_lists(&*store, &links, &queries).await;
    }
}

pub async fn lists_follow_changes_and_deletions(ground: &impl Ground) {
    let mut store = ground.open().await;
    let mut links: Vec<Link> =
        (0..6).map(|n| tagged(link_named(n, key_id(1), &format!("slug-{n}")), &["old", "kept"])).collect();
    create_each(&*store, &links).await;
    for n in [0, 1, 2] {
        let next = changed(&links[n]);
        links[n] = Link { target: target("https://example.com/new"), ..tagged(next, &["kept", "new"]) };
        store.update_link(links[n].clone()).await.unwrap();
    }
    // Off and on again.
    for tags in [&["old"][..], &["old", "KEPT"]] {
        links[3] = tagged(changed(&links[3]), tags);
        store.update_link(links[3].clone()).await.unwrap();
    }
    for n in [4, 1] {
        store.delete_link(deleted(&links[n])).await.unwrap();
        links.remove(n);
    }
    // A name that is made again is another link.
    let again = created(link_named(100, key_id(1), "slug-4"), noon().plus(DAY));
    store.create_link(again.clone(), None).await.unwrap();
    links.push(store.link(name("slug-4")).await.unwrap().unwrap());
    let old_target = ListIndex::Target(again.target.as_str().into());
    let indexes = [
        ListIndex::All,
        ListIndex::of_tag("old"),
        ListIndex::of_tag("kept"),
        ListIndex::of_tag("new"),
        ListIndex::Target("https://example.com/new".into()),
        old_target,
        ListIndex::SlugPrefix("slug-".into()),
    ];
    let queries: Vec<_> = [None, Some(key_id(1))]
        .into_iter()
        .flat_map(|owner| indexes.iter().map(move |index| by(owner, index.clone())))
        .collect();
    for _ in 0..2 {
        assert_lists(&*store, &links, &queries).await;
        store = reopened(ground, store).await;
    }
}

pub async fn days_whose_links_are_all_deleted_are_passed_over(ground: &impl Ground) {
    let store = ground.open().await;
    let links: Vec<Link> = (0..80).map(|n| created(link(n, key_id(1)), noon().plus(DAY * n))).collect();
    create_each(&*store, &links).await;
    // The first, the last, and one in the middle.
    let stays = |link: &Link| [0, 40, 79].map(short_id).contains(&link.id);
    let (left, gone): (Vec<Link>, Vec<Link>) = links.into_iter().partition(stays);
    for deletion in join_all(gone.iter().map(|link| store.delete_link(deleted(link)))).await {
        deletion.unwrap();
    }
    let newest = all(Some(key_id(1)));
    let oldest = LinkListQuery { order: ListOrder::Oldest, ..newest.clone() };
    assert_lists(&*store, &left, &[newest, oldest, all(None)]).await;
}

pub async fn a_name_that_is_made_again_hides_no_slug_behind_it(ground: &impl Ground) {
    let store = ground.open().await;
    let mut links = Vec::new();
    for n in 1..4 {
        // A generated link whose name is made again: on a cluster the name may have a row more than it has links.
        let generated = link(n, key_id(1));
        store.create_link(generated.clone(), None).await.unwrap();
        store.delete_link(deleted(&generated)).await.unwrap();
        let again = link_named(100 + n, key_id(1), generated.id.as_str());
        store.create_link(again.clone(), None).await.unwrap();
        links.push(store.link(again.name()).await.unwrap().unwrap());
        let behind = link_named(200 + n, key_id(1), &format!("{}-x", generated.id));
        store.create_link(behind.clone(), None).await.unwrap();
        links.push(behind);
    }
    let queries =
        ["0", "00", "0000002", "0000003-x"].map(|text| by(Some(key_id(1)), ListIndex::SlugPrefix(text.into())));
    assert_lists(&*store, &links, &queries).await;
}

pub async fn links_made_together_and_refused_ones_are_listed_or_not(ground: &impl Ground) {
    let store = ground.open().await;
    let links: Vec<Link> = (0..50).map(|n| tagged(link(n, key_id(1)), &["bulk"])).collect();
    let made = store.create_links(NewLinks { links: links.clone(), ..NewLinks::default() }, Some(30)).await.unwrap();
    assert_eq!(made.links.iter().filter(|link| link.is_ok()).count(), 30);
    store.create_link(link(100, key_id(1)), Some(30)).await.unwrap_err();
    // Another key's link has the id, and another one the name.
    store.create_link(link(3, key_id(2)), None).await.unwrap_err();
    store.create_link(link_named(200, key_id(1), "Taken77"), None).await.unwrap();
    store.create_link(link_named(201, key_id(2), "Taken77"), None).await.unwrap_err();
    let mut expected = links[..30].to_vec();
    let taken = ShortId::parse("Taken77").unwrap();
    expected.push(Link { id: taken, ..link_named(200, key_id(1), "Taken77") });
    let queries: Vec<_> = [None, Some(key_id(1)), Some(key_id(2))]
        .into_iter()
        .flat_map(|owner| {
            [ListIndex::All, ListIndex::of_tag("bulk"), ListIndex::SlugPrefix("T".into())].map(|index| by(owner, index))
        })
        .collect();
    assert_lists(&*store, &expected, &queries).await;
}

/// A small generator of numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}

/// Creates, changes and deletes some links.
async fn some_changes(store: &dyn Store, links: &mut BTreeMap<u32, Link>, next: &mut u32, numbers: &mut Numbers) {
    const TAGS: [&[&str]; 4] = [&["a"], &["a", "b"], &["b"], &[]];
    for _ in 0..4 {
        let tags = TAGS[numbers.below(4) as usize];
        let known: Vec<u32> = links.keys().copied().collect();
        let any = known[numbers.below(u32::try_from(known.len()).unwrap()) as usize];
        match numbers.below(3) {
            0 => {
                let at = noon().plus(DAY * numbers.below(60));
                let link = tagged(created(link(*next, key_id(numbers.below(2))), at), tags);
                store.create_link(link.clone(), None).await.unwrap();
                links.insert(*next, link);
                *next += 1;
            }
            1 => {
                let next = tagged(changed(&links[&any]), tags);
                store.update_link(next.clone()).await.unwrap();
                links.insert(any, next);
            }
            _ => {
                store.delete_link(deleted(&links[&any])).await.unwrap();
                links.remove(&any);
            }
        }
    }
}

/// A link that was there before the walk and is there after it is listed once, whatever happens to others.
pub async fn changes_during_a_walk_leave_out_no_link_and_show_none_twice(ground: &impl Ground) {
    let store = ground.open().await;
    let (mut numbers, mut next) = (Numbers(7), 60);
    let mut links: BTreeMap<u32, Link> =
        (0..60).map(|n| (n, tagged(created(link(n, key_id(n % 2)), noon().plus(DAY * (n % 20))), &["a"]))).collect();
    create_each(&*store, &links.values().cloned().collect::<Vec<_>>()).await;
    for round in 0..8 {
        let order = ListOrder::ALL[round % 2];
        let index = if round % 4 < 2 { ListIndex::All } else { ListIndex::of_tag("a") };
        let mut query = LinkListQuery { limit: 5, order, ..by(None, index.clone()) };
        let before = links.clone();
        // A link that loses the tag meanwhile and gets it back may be listed or not.
        let mut always: Vec<u32> = before.iter().filter(|(_, link)| index.has(link)).map(|(n, _)| *n).collect();
        let mut listed: Vec<ShortId> = Vec::new();
        loop {
            let page = store.list_links(query.clone()).await.unwrap();
            listed.extend(page.links.iter().map(|link| link.id));
            query.after = page.next;
            if page.next.is_none() {
                break;
            }
            some_changes(&*store, &mut links, &mut next, &mut numbers).await;
            always.retain(|n| links.get(n).is_some_and(|link| index.has(link)));
        }
        let mut distinct = listed.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), listed.len(), "{query:?}");
        let missing: Vec<_> = always.iter().filter(|n| !listed.contains(&short_id(**n))).collect();
        assert!(missing.is_empty(), "{missing:?} in {query:?}");
    }
    let now: Vec<Link> = links.into_values().collect();
    assert_lists(&*store, &now, &[all(None), all(Some(key_id(1))), by(None, ListIndex::of_tag("b"))]).await;
}

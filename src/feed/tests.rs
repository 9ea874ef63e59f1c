use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::{Revision, ShortId};
use crate::domain::live_hit::{LiveEvent, LiveHit};
use crate::locks::lock;
use crate::store::hit_streams::NotedHits;

const LINK: ShortId = ShortId(*b"a1B2c3D");
const OF_LINK: HitSubject = HitSubject::Link(LINK);
const OWNER: KeyId = KeyId(Uuid::from_u128(5));
const OF_KEY: HitSubject = HitSubject::Key(OWNER);
const NOON_MS: u64 = 1_795_000_000_000;

/// A store of one node.
struct OneNode;

impl HitStreamStore for OneNode {}

/// What nodes share, as one life of a node sees it.
#[derive(Clone)]
struct SharedNotes {
    life: Uuid,
    fails: Arc<Mutex<bool>>,
    all: Arc<Mutex<AllNotes>>,
}

#[derive(Default)]
struct AllNotes {
    listened: Vec<HitSubject>,
    noted: Vec<NotedHits>,
    last: i64,
}

impl SharedNotes {
    fn new(life: u128, all: &Arc<Mutex<AllNotes>>) -> Self {
        Self { life: Uuid::from_u128(life), fails: Arc::default(), all: Arc::clone(all) }
    }

    fn fail(&self, does: bool) {
        *self.fails.lock().unwrap() = does;
    }

    fn all(&self) -> Result<std::sync::MutexGuard<'_, AllNotes>, StoreError> {
        if *self.fails.lock().unwrap() {
            return Err(StoreError::Unavailable("a test wants it".into()));
        }
        Ok(lock(&self.all))
    }
}

#[async_trait]
impl HitStreamStore for SharedNotes {
    async fn note_listeners(&self, to: Vec<HitSubject>) -> Result<(), StoreError> {
        self.all()?.listened.extend(to);
        Ok(())
    }

    async fn listened_subjects(&self) -> Result<Vec<HitSubject>, StoreError> {
        Ok(self.all()?.listened.clone())
    }

    async fn note_live_hits(&self, node: NodeId, entries: Vec<LiveEntry>) -> Result<(), StoreError> {
        let mut all = self.all()?;
        all.last += 1;
        let upto = NotesReadUpto { life: self.life, number: all.last };
        all.noted.push(NotedHits { node, upto, entries });
        Ok(())
    }

    async fn live_hits(&self, after: Vec<NotesReadUpto>) -> Result<Vec<NotedHits>, StoreError> {
        let is_new = |noted: &&NotedHits| {
            let read = after.iter().find(|read| read.life == noted.upto.life);
            noted.upto.life != self.life && read.is_none_or(|read| noted.upto.number > read.number)
        };
        Ok(self.all()?.noted.iter().filter(is_new).cloned().collect())
    }
}

/// A node with the hit counter's end of its feed.
struct Node {
    feed: Arc<HitFeed>,
    capture: HitCapture,
    position: u64,
}

impl Node {
    fn alone() -> Self {
        Self::of(Arc::new(HitFeed::new(Arc::new(OneNode), NodeId(Uuid::from_u128(1)))))
    }

    fn sharing(number: u128, store: &SharedNotes) -> Self {
        Self::of(Arc::new(HitFeed::new(Arc::new(store.clone()), NodeId(Uuid::from_u128(number)))))
    }

    fn of(feed: Arc<HitFeed>) -> Self {
        let capture = feed.capture();
        Self { feed, capture, position: 0 }
    }

    /// Notes a hit at a time.
    fn note(&mut self, link: ShortId, millis: u64) {
        self.position += 100;
        let at = Timestamp(NOON_MS + millis);
        let id = hit_id(at, self.position);
        self.capture.note((Position(self.position), at), (link, OWNER), || hit(id, link));
    }

    async fn tell(&mut self) -> Vec<LiveEntry> {
        let entries = self.capture.take();
        self.feed.publish(&entries).await.unwrap();
        entries
    }

    /// Counts a batch of hits at these times.
    async fn count(&mut self, millis: impl IntoIterator<Item = u64>) -> Vec<LiveEntry> {
        self.feed.learn_listeners().await.unwrap();
        self.capture.begin();
        millis.into_iter().for_each(|millis| self.note(LINK, millis));
        self.tell().await
    }
}

fn hit_id(at: Timestamp, number: u64) -> HitId {
    HitId(Uuid::from_u128(u128::from(at.0) << 80 | u128::from(number)))
}

fn hit(id: HitId, link: ShortId) -> LiveHit {
    LiveHit {
        id,
        link,
        revision: Revision(1),
        device: Some("desktop".into()),
        browser: None,
        system: None,
        country: None,
        language: None,
        referrer: None,
        destination: Some("default".into()),
        bot: None,
    }
}

/// The positions of hits, and how many were left out.
fn told(stream: &mut FeedStream) -> (Vec<u64>, Option<u64>) {
    told_at_most(stream, 10_000)
}

fn told_at_most(stream: &mut FeedStream, most: usize) -> (Vec<u64>, Option<u64>) {
    let (mut hits, mut left_out) = (Vec::new(), Some(0));
    for event in stream.cursor.take(most) {
        match event.kind {
            StreamEventKind::Hit(entry) => hits.push(entry.position.0),
            StreamEventKind::LeftOut(count) => left_out = left_out.zip(count).map(|(sum, count)| sum + count),
        }
    }
    (hits, left_out)
}

#[tokio::test]
async fn nothing_is_noted_while_nobody_listens() {
    let mut node = Node::alone();
    assert!(node.count([1, 2]).await.is_empty());
    assert!(!node.capture.is_on());
    let mut stream = node.feed.listen(OF_LINK, None).await.unwrap();
    assert_eq!((node.count([3]).await.len(), node.feed.open_streams()), (1, 1));
    assert_eq!(told(&mut stream), (vec![300], Some(0)));
    drop(stream);
    assert_eq!(node.feed.open_streams(), 0);
    // The client may come back.
    assert_eq!(node.count([4]).await.len(), 1);
}

#[tokio::test]
async fn who_begins_to_listen_within_a_batch_is_told_of_its_later_hits() {
    let mut node = Node::alone();
    let mut of_link = node.feed.listen(OF_LINK, None).await.unwrap();
    node.capture.begin();
    node.note(LINK, 1);
    let mut of_key = node.feed.listen(OF_KEY, None).await.unwrap();
    node.feed.learn_listeners().await.unwrap();
    node.capture.begin();
    node.note(LINK, 2);
    assert_eq!(node.tell().await.len(), 1 + 2);
    assert_eq!(told(&mut of_link), (vec![100, 200], Some(0)));
    assert_eq!(told(&mut of_key), (vec![200], Some(0)));
    // A batch that is made again has the same positions.
    node.capture.begin();
    node.note(LINK, 3);
    node.capture.clear();
    node.position -= 100;
    node.note(LINK, 3);
    assert_eq!(node.tell().await.len(), 2);
    assert_eq!([told(&mut of_link), told(&mut of_key)], [(vec![300], Some(0)), (vec![300], Some(0))]);
}

#[tokio::test(start_paused = true)]
async fn listening_ends_some_time_after_the_last_stream() {
    let mut node = Node::alone();
    let stream = node.feed.listen(OF_KEY, None).await.unwrap();
    drop(stream);
    let feed = Arc::clone(&node.feed);
    let running = tokio::spawn(async move { feed.run().await });
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(node.count([1]).await.len(), 1);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(node.count([2]).await.is_empty());
    running.abort();
}

#[tokio::test]
async fn what_is_more_than_100_a_second_is_left_out_and_told() {
    let mut node = Node::alone();
    let mut of_link = node.feed.listen(OF_LINK, None).await.unwrap();
    let mut of_key = node.feed.listen(OF_KEY, None).await.unwrap();
    node.count((0..250).map(|n| n * 2)).await;
    node.count((0..30).map(|n| 600 + n)).await;
    node.count((0..130).map(|n| 1_000 + n)).await;
    for stream in [&mut of_link, &mut of_key] {
        let (hits, left_out) = told(stream);
        assert_eq!((hits.len(), left_out), (200, Some(150 + 30 + 30)));
        assert!(hits.is_sorted());
    }
}

#[tokio::test]
async fn a_link_with_few_hits_is_told_of_all_beside_one_with_many() {
    let mut node = Node::alone();
    let few = ShortId(*b"0000001");
    let mut of_few = node.feed.listen(HitSubject::Link(few), None).await.unwrap();
    let mut of_key = node.feed.listen(OF_KEY, None).await.unwrap();
    node.capture.begin();
    for n in 0..500 {
        node.note(LINK, n);
        if n % 100 == 99 {
            node.note(few, n);
        }
    }
    node.tell().await;
    assert_eq!(told(&mut of_few), (vec![10_100, 20_200, 30_300, 40_400, 50_500], Some(0)));
    let (hits, left_out) = told(&mut of_key);
    assert_eq!((hits.len(), left_out), (100, Some(405)));
}

#[tokio::test]
async fn a_stream_that_is_not_read_holds_nothing_and_is_told_how_much_it_missed() {
    let mut node = Node::alone();
    let mut stream = node.feed.listen(OF_LINK, None).await.unwrap();
    for second in 0..60 {
        node.count((0..50).map(|n| second * 1_000 + n)).await;
    }
    // It goes on with the newest.
    let (hits, left_out) = told_at_most(&mut stream, 100);
    assert_eq!((hits.len(), hits[0], left_out), (100, 275_100, Some(2_750)));
    assert_eq!(told(&mut stream).0.len(), 150);
}

#[tokio::test]
async fn hits_are_kept_within_a_bound_of_memory() {
    let rings = Rings::new(KEPT_FOR, 100_000);
    let node = NodeId(Uuid::from_u128(1));
    let mut cursor = StreamCursor::new(rings.open(OF_LINK), None);
    for position in 1..=1_000 {
        let event = LiveEvent::Hit(hit(hit_id(Timestamp(NOON_MS), position), LINK));
        let after = Some(Position(position - 1));
        // Every other one is of another link.
        let of = if position % 2 == 0 { OF_LINK } else { OF_KEY };
        rings.add(node, std::iter::once(LiveEntry { of, position: Position(position), after, event }));
    }
    let told = cursor.take(1_000);
    let StreamEventKind::LeftOut(Some(left_out)) = told[0].kind else { panic!("something was dropped") };
    assert!((30..100).contains(&told.len()), "{}", told.len());
    assert_eq!(left_out + told.len() as u64 - 1, 500);
}

#[tokio::test]
async fn hits_that_waited_when_a_stream_began_are_all_told_though_more_come() {
    let mut node = Node::alone();
    let stream = node.feed.listen(OF_LINK, None).await.unwrap();
    let begin = stream.cursor.place().clone();
    for second in 0..50 {
        node.count((0..60).map(|n| second * 1_000 + n)).await;
    }
    let mut again = node.feed.listen(OF_LINK, Some(begin)).await.unwrap();
    let mut all = Vec::new();
    for second in 50..150 {
        let (hits, left_out) = told_at_most(&mut again, 100);
        assert_eq!(left_out, Some(0), "{second}");
        all.extend(hits);
        node.count((0..60).map(|n| second * 1_000 + n)).await;
    }
    assert!(all.windows(2).all(|pair| pair[0] + 100 == pair[1]) && all.len() > 6_000, "{}", all.len());
}

#[tokio::test]
async fn hits_that_are_told_again_after_a_crash_are_sent_once() {
    let all = Arc::default();
    let (here, there) = (SharedNotes::new(1, &all), SharedNotes::new(2, &all));
    let (mut here, mut there) = (Node::sharing(1, &here), Node::sharing(2, &there));
    let mut stream = here.feed.listen(OF_LINK, None).await.unwrap();
    there.count([1, 2]).await;
    // It ended before its hits were counted: the next life counts them again, and more.
    let next = SharedNotes::new(3, &all);
    let mut next = Node::sharing(2, &next);
    next.count([1, 2, 3]).await;
    here.count([4]).await;
    here.feed.follow().await.unwrap();
    let (mut hits, left_out) = told(&mut stream);
    hits.sort_unstable();
    assert_eq!((hits, left_out), (vec![100, 100, 200, 300], Some(0)));
    // Nor are they sent again to a client that comes back.
    let place = stream.cursor.place().clone();
    drop(stream);
    next.count([5]).await;
    let mut again = next.feed.listen(OF_LINK, Some(place)).await.unwrap();
    assert_eq!(told(&mut again), (vec![400], Some(0)));
}

#[tokio::test]
async fn a_node_that_starts_again_tells_what_its_earlier_life_has_noted_first() {
    let all = Arc::default();
    let mut before = Node::sharing(1, &SharedNotes::new(1, &all));
    let mut stream = before.feed.listen(OF_LINK, None).await.unwrap();
    let begin = stream.cursor.place().clone();
    before.count([1]).await;
    before.count([2, 3]).await;
    assert_eq!(told(&mut stream).0.len(), 3);
    // The hits of the last batch were not counted.
    let mut node = Node::sharing(1, &SharedNotes::new(2, &all));
    node.position = 100;
    node.count([2, 3, 4]).await;
    node.count([5]).await;
    for (place, expected) in [(begin, vec![100, 200, 300, 400, 500]), (stream.cursor.place().clone(), vec![400, 500])] {
        let mut again = node.feed.listen(OF_LINK, Some(place)).await.unwrap();
        assert_eq!(told(&mut again), (expected, Some(0)));
    }
}

#[tokio::test]
async fn hits_that_an_earlier_life_left_out_are_not_left_out_again() {
    let all = Arc::default();
    let mut before = Node::sharing(1, &SharedNotes::new(1, &all));
    let mut stream = before.feed.listen(OF_LINK, None).await.unwrap();
    before.count([1; 150]).await;
    let (hits, left_out) = told(&mut stream);
    assert_eq!((hits.len(), left_out), (100, Some(50)));
    // It ended before it had counted them, and the next life counts more at once.
    let mut node = Node::sharing(1, &SharedNotes::new(2, &all));
    node.count([1; 400]).await;
    let mut again = node.feed.listen(OF_LINK, Some(stream.cursor.place().clone())).await.unwrap();
    let (hits, left_out) = told(&mut again);
    // The second has had its 100 hits.
    assert_eq!((hits.len(), left_out), (0, Some(250)));
}

#[tokio::test]
async fn a_place_of_a_process_before_is_told_that_hits_may_be_missing() {
    let mut before = Node::alone();
    let mut stream = before.feed.listen(OF_LINK, None).await.unwrap();
    before.count([1]).await;
    told(&mut stream);
    let place = stream.cursor.place().clone();
    let mut node = Node::alone();
    node.position = 1_000;
    let mut again = node.feed.listen(OF_LINK, Some(place)).await.unwrap();
    node.count([2]).await;
    assert_eq!(told(&mut again), (vec![1_100], None));
    node.count([3]).await;
    assert_eq!(told(&mut again), (vec![1_200], Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_too_late_is_told_so() {
    let all = Arc::default();
    let (here, there) = (SharedNotes::new(1, &all), SharedNotes::new(2, &all));
    let (mut here, mut there) = (Node::sharing(1, &here), Node::sharing(2, &there));
    let mut stream = here.feed.listen(OF_LINK, None).await.unwrap();
    for node in [&mut here, &mut there] {
        node.count([1]).await;
    }
    here.feed.follow().await.unwrap();
    assert_eq!(told(&mut stream).0.len(), 2);
    let place = stream.cursor.place().clone();
    drop(stream);
    there.count([2]).await;
    here.count([3]).await;
    tokio::time::advance(Duration::from_secs(71)).await;
    here.feed.rings.drop_old();
    // What another node has noted is forgotten, too.
    all.lock().unwrap().noted.clear();
    here.count([4]).await;
    there.count([5]).await;
    let mut again = here.feed.listen(OF_LINK, Some(place)).await.unwrap();
    here.feed.follow().await.unwrap();
    let (hits, left_out) = told(&mut again);
    assert_eq!((hits.len(), left_out), (2, None));
}

#[tokio::test]
async fn hits_that_other_nodes_can_not_be_told_are_told_as_left_out_later() {
    let all = Arc::default();
    let stores = [1, 2].map(|life| SharedNotes::new(life, &all));
    let (here, mut there) = (Node::sharing(1, &stores[0]), Node::sharing(2, &stores[1]));
    let mut stream = here.feed.listen(OF_LINK, None).await.unwrap();
    there.count([1]).await;
    there.capture.begin();
    for millis in [2, 3] {
        there.note(LINK, millis);
    }
    let entries = there.capture.take();
    stores[1].fail(true);
    assert!(there.feed.publish(&entries).await.is_err());
    there.feed.publish_locally_only(&entries);
    stores[1].fail(false);
    there.count([4]).await;
    there.count([5]).await;
    here.feed.follow().await.unwrap();
    assert_eq!(told(&mut stream), (vec![100, 400, 500], Some(2)));
}

#[tokio::test]
async fn a_batch_that_is_made_again_is_noted_as_before() {
    let mut node = Node::alone();
    let _stream = node.feed.listen(OF_LINK, None).await.unwrap();
    node.count([1]).await;
    node.capture.begin();
    for millis in 2..200 {
        node.note(LINK, millis);
    }
    node.capture.clear();
    node.position = 100;
    let entries = node.count([2]).await;
    assert_eq!((entries[0].position, entries[0].after), (Position(200), Some(Position(100))));
}

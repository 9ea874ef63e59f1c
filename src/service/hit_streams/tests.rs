use ring::rand::SystemRandom;
use tokio::time::timeout;
use uuid::Uuid;

use super::*;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::NodeId;
use crate::domain::key::{KeyId, ScopeSet, Tier};
use crate::domain::vault::Vault;
use crate::store::embedded::EmbeddedStore;

const NOW: Timestamp = Timestamp(1_795_000_000_000);

fn key() -> ApiKey {
    let id = KeyId(Uuid::from_u128(5));
    let vault = Vault::new(&[7; Vault::KEY_LENGTH]).unwrap();
    ApiKey {
        id,
        name: "a key".into(),
        tier: Tier::Pro,
        scopes: ScopeSet::ALL,
        is_root: false,
        prefix: "sp_12345".into(),
        secret_hash: SecretHash::of(b"secret"),
        retiring_secret: None,
        webhook_secret: vault.seal(&SystemRandom::new(), id.0.as_bytes(), "webhooks").unwrap(),
        retiring_webhook_secret: None,
        created_at: NOW,
        expires_at: None,
        rotated_at: None,
        revoked_at: None,
        ancestors: Vec::new(),
        revision: 0,
    }
}

struct Streams {
    service: HitStreamService,
    caller: Arc<ApiKey>,
    _directory: tempfile::TempDir,
}

impl Streams {
    async fn that_last(longest: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(directory.path(), 16 << 20).unwrap());
        store.create_key(key(), None).await.unwrap();
        let feed = Arc::new(HitFeed::new(store.clone(), NodeId(Uuid::from_u128(1))));
        let limits = StreamLimits { free: 1, pro: 10, longest };
        let service = HitStreamService::new(feed, &store, limits, Clock::standing_at(NOW));
        Self { service, caller: Arc::new(key()), _directory: directory }
    }

    async fn open(&self) -> HitStream {
        self.service.open(&self.caller, SecretHash::of(b"secret"), StreamOf::Caller, None).await.unwrap()
    }
}

async fn ends(stream: &mut HitStream) {
    let step = timeout(Duration::from_secs(20), stream.next()).await.expect("an end");
    assert!(matches!(step, StreamStep::End));
}

#[tokio::test]
async fn a_stream_ends_after_its_longest_time() {
    let longest = Duration::from_secs(1);
    let streams = Streams::that_last(longest).await;
    let began = Instant::now();
    ends(&mut streams.open().await).await;
    assert!(began.elapsed() >= longest);
}

#[tokio::test]
async fn streams_end_with_the_process_and_none_begins_after_that() {
    let streams = Streams::that_last(Duration::from_hours(1)).await;
    let (mut one, mut other) = (streams.open().await, streams.open().await);
    tokio::join!(ends(&mut one), ends(&mut other), async { streams.service.end_all() });
    ends(&mut streams.open().await).await;
}

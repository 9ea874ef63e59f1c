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

#[tokio::test]
async fn a_stream_ends_after_its_longest_time() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(directory.path(), 16 << 20).unwrap());
    store.create_key(key(), None).await.unwrap();
    let feed = Arc::new(HitFeed::new(store.clone(), NodeId(Uuid::from_u128(1))));
    let longest = Duration::from_secs(1);
    let limits = StreamLimits { free: 1, pro: 10, longest };
    let service = HitStreamService::new(feed, &store, limits, Clock::standing_at(NOW));
    let began = Instant::now();
    let caller = Arc::new(key());
    let mut stream = service.open(&caller, SecretHash::of(b"secret"), StreamOf::Caller, None).await.unwrap();
    let end = timeout(Duration::from_secs(20), stream.next(|| true)).await.expect("an end");
    assert!(matches!(end, StreamStep::End));
    assert!(began.elapsed() >= longest);
}

//! Keys that keys create: who created them, how many live, when they expire, and how they end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::keys::{Key, managing, standing, text, without_rate_limit};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

impl Key {
    async fn works(&self) -> bool {
        match self.client.get("/usage").await.status {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }
}

/// Which of some keys work.
async fn working(keys: &[&Key]) -> Vec<bool> {
    join_all(keys.iter().map(|key| key.works())).await
}

async fn create(client: &Client) -> Answer {
    client.post("/api-keys", json!({"name": "child"})).await
}

async fn records(client: &Client) -> Vec<Value> {
    client.get("/api-keys?limit=100").await.expect(200).json()["api_keys"].as_array().unwrap().clone()
}

#[apply(on_each_store)]
async fn a_record_tells_who_created_the_key() {
    let server = Server::start();
    let root = server.root();
    let root_id = root.get("/usage").await.expect(200).json()["api_key_id"].clone();
    let manager = Key::managing(&server, &root, "manager").await;
    let child = Key::managing(&server, &manager.client, "child").await;
    let grandchild = child.client.new_key(json!({"name": "grandchild"})).await;
    let created_by = [&Value::Null, &root_id, &manager.record["key_id"], &child.record["key_id"]];

    let created = [&manager.record, &child.record, &grandchild].map(|key| &key["created_by"]);
    assert_eq!(created, created_by[1..]);
    let listed: Vec<Value> = records(&root).await.iter().rev().map(|key| key["created_by"].clone()).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), created_by);
    let rotated = child.client.post(&format!("{}/rotate", child.path()), json!({})).await.expect(200).json();
    assert_eq!(&rotated["created_by"], created_by[2]);
    // Also to one that does not see its creator, nor that of a key that is revoked.
    root.delete(&manager.path()).await.expect(204);
    let listed = records(&server.with_key(text(&rotated["key"]))).await;
    assert_eq!(&listed[1]["created_by"], created_by[2]);
}

#[apply(on_each_store)]
async fn a_hundred_creations_at_once_create_as_many_keys_as_the_tier_allows() {
    let server = without_rate_limit().start();
    let manager = Key::managing(&server, &server.root(), "manager").await;
    let answers = join_all((0..100).map(|_| create(&manager.client))).await;
    let created: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(created.len(), 10);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(refused.status, 403);
        refused.problem("key-quota-exceeded");
        assert_eq!(
            refused.json(),
            json!({
                "type": "urn:problem-type:signpost:key-quota-exceeded",
                "title": "Key quota exceeded",
                "status": 403,
                "detail": "This key has created as many live keys as its tier allows; \
                           revoke one, or wait until one expires.",
                "limit": 10,
                "current": 10,
            })
        );
    }
    assert_eq!(records(&manager.client).await.len(), 11);
    // After a restart, too.
    let server = without_rate_limit().directory(server.stop()).start();
    create(&server.with_key(text(&manager.record["key"]))).await.expect(403).problem("key-quota-exceeded");
}

#[apply(on_each_store)]
async fn each_key_has_a_quota_of_its_own_by_its_tier_and_the_root_has_none() {
    let server = without_rate_limit()
        .set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "1")
        .set("SIGNPOST_TIERS__PRO__CHILD_KEYS", "2")
        .start();
    let root = server.root();
    for _ in 0..4 {
        create(&root).await.expect(201);
    }
    let mut pro = managing("pro");
    pro["tier"] = "Pro".into();
    let pro = Key::new(&server, &root, pro).await;
    let free = Key::managing(&server, &pro.client, "free").await;
    let below = Key::managing(&server, &free.client, "below").await;
    for (key, left, limit) in [(&pro, 1, 2), (&free, 0, 1), (&below, 1, 1)] {
        for _ in 0..left {
            create(&key.client).await.expect(201);
        }
        let refused = create(&key.client).await.expect(403);
        let problem = refused.problem("key-quota-exceeded");
        assert_eq!((&problem["limit"], &problem["current"]), (&json!(limit), &json!(limit)));
    }
    let server = without_rate_limit().set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "0").directory(server.stop()).start();
    let fresh = Key::managing(&server, &server.root(), "fresh").await;
    let problem = create(&fresh.client).await.expect(403).problem("key-quota-exceeded");
    assert_eq!((&problem["limit"], &problem["current"]), (&json!(0), &json!(0)));
}

#[apply(on_each_store)]
async fn a_revoked_or_expired_key_makes_room_for_the_next() {
    let clock = standing();
    let server = without_rate_limit().clock(clock.clone()).set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "2").start();
    let manager = Key::managing(&server, &server.root(), "manager").await;
    let revoked = Key::new(&server, &manager.client, json!({"name": "revoked"})).await;
    manager.client.new_key(json!({"name": "expired", "expires_at": "2026-11-21T12:00:02Z"})).await;
    create(&manager.client).await.expect(403);
    manager.client.delete(&revoked.path()).await.expect(204);
    create(&manager.client).await.expect(201);
    create(&manager.client).await.expect(403);
    clock.advance(Duration::from_millis(1_999));
    create(&manager.client).await.expect(403);
    clock.advance(Duration::from_millis(1));
    create(&manager.client).await.expect(201);
    create(&manager.client).await.expect(403);
    // Keys that are refused for another reason take no place, nor does rotation.
    let last = records(&manager.client).await[0].clone();
    manager.client.post(&format!("/api-keys/{}/rotate", text(&last["key_id"])), json!({})).await.expect(200);
    manager.client.delete(&format!("/api-keys/{}", text(&last["key_id"]))).await.expect(204);
    manager.client.post("/api-keys", json!({"name": "x", "tier": "Pro"})).await.expect(403).problem("forbidden");
    manager.client.post("/api-keys", json!({"name": ""})).await.expect(422);
    create(&manager.client).await.expect(201);
}

#[apply(on_each_store)]
async fn no_key_expires_later_than_the_one_that_created_it() {
    let clock = standing();
    let server = without_rate_limit().clock(clock.clone()).start();
    let end = "2026-11-21T13:00:00.000Z";
    let mut body = managing("manager");
    body["expires_at"] = end.into();
    let manager = Key::new(&server, &server.root(), body).await;
    let create = |body: Value| manager.client.post("/api-keys", body);

    for later in ["2026-11-21T13:00:00.001Z", "2026-11-21T14:00:00+00:00", "2099-01-01T00:00:00Z"] {
        let problem = create(json!({"name": "x", "expires_at": later})).await.expect(422).problem("validation");
        assert_eq!(problem["errors"].as_array().unwrap().len(), 1, "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/expires_at");
    }
    let problem =
        create(json!({"expires_at": "2099-01-01T00:00:00Z", "tier": "x"})).await.expect(422).problem("validation");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3, "all faults at once: {problem}");
    for (body, expected) in [
        (json!({"name": "x", "expires_at": "2026-11-21T14:00:00+01:00"}), end),
        (json!({"name": "x", "expires_at": "2026-11-21T12:30:00Z"}), "2026-11-21T12:30:00.000Z"),
        (json!({"name": "x"}), end),
        (json!({"name": "x", "expires_at": null}), end),
    ] {
        assert_eq!(create(body).await.expect(201).json()["expires_at"], expected);
    }

    // With another secret it is the same key.
    let rotated = manager.client.post(&format!("{}/rotate", manager.path()), json!({})).await.expect(200).json();
    let rotated = server.with_key(text(&rotated["key"]));
    let child = Key::managing(&server, &rotated, "child").await;
    let grandchild = Key::new(&server, &child.client, json!({"name": "grandchild", "scopes": ["usage:read"]})).await;
    assert_eq!((&child.record["expires_at"], &grandchild.record["expires_at"]), (&json!(end), &json!(end)));
    assert_eq!(working(&[&child, &grandchild]).await, [true, true]);
    clock.advance(Duration::from_hours(1));
    assert_eq!(working(&[&child, &grandchild]).await, [false, false]);
}

#[apply(on_each_store)]
async fn keys_below_a_revoked_one_go_on_unless_asked_otherwise() {
    let server = without_rate_limit().start();
    let root = server.root();
    let stranger = Key::managing(&server, &root, "stranger").await;
    let [top, other] = [Key::managing(&server, &root, "top").await, Key::managing(&server, &root, "other").await];
    let child = Key::managing(&server, &top.client, "child").await;
    let grandchild = Key::managing(&server, &child.client, "grandchild").await;
    let leaf = Key::new(&server, &grandchild.client, json!({"name": "leaf"})).await;
    let sibling = Key::managing(&server, &top.client, "sibling").await;
    let nephew = Key::managing(&server, &sibling.client, "nephew").await;
    let others_child = Key::managing(&server, &other.client, "other's child").await;
    let all = [&top, &child, &grandchild, &leaf, &sibling, &nephew, &other, &others_child];
    // From now on they are in the server's memory.
    assert_eq!(working(&all).await, [true; 8]);

    for query in ["descendants=all", "descendants=", "descendants=Revoke", "descendants=keep&descendants=keep"] {
        let problem = root.delete(&format!("{}?{query}", top.path())).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["parameter"], "descendants", "{query}");
    }
    stranger.client.delete(&format!("{}?descendants=revoke", top.path())).await.expect(404).problem("not-found");
    assert_eq!(working(&all).await, [true; 8]);

    // One between others: those below it stay where they are.
    top.client.delete(&child.path()).await.expect(204);
    other.client.delete(&format!("{}?descendants=keep", others_child.path())).await.expect(204);
    assert_eq!(working(&all).await, [true, false, true, true, true, true, true, false]);

    let revoked = root.delete(&format!("{}?descendants=revoke", top.path())).await.expect(204);
    assert!(revoked.body.is_empty());
    assert_eq!(working(&all).await, [false, false, false, false, false, false, true, false]);
    let names: Vec<Value> = records(&root).await.iter().map(|key| key["name"].clone()).collect();
    assert_eq!(names, ["other", "stranger", "root"]);
    for gone in [&top, &leaf] {
        root.delete(&format!("{}?descendants=revoke", gone.path())).await.expect(404).problem("not-found");
    }
    let root_id = root.get("/usage").await.expect(200).json()["api_key_id"].clone();
    let of_root = format!("/api-keys/{}?descendants=revoke", text(&root_id));
    root.delete(&of_root).await.expect(403).problem("forbidden");
    assert_eq!(working(&[&other, &stranger]).await, [true, true]);

    let server = without_rate_limit().directory(server.stop()).start();
    for (key, works) in all.iter().zip([false, false, false, false, false, false, true, false]) {
        let client = server.with_key(text(&key.record["key"]));
        client.get("/usage").await.expect(if works { 200 } else { 401 });
    }
}

#[apply(on_each_store)]
async fn a_key_revokes_itself_with_all_below_it_sixteen_levels_deep() {
    let server = without_rate_limit().start();
    let mut chain = vec![Key::managing(&server, &server.root(), "level 1").await];
    for level in 2..=16 {
        let creator = chain.last().unwrap();
        chain.push(Key::managing(&server, &creator.client, &format!("level {level}")).await);
    }
    create(&chain[15].client).await.expect(403).problem("forbidden");
    let all: Vec<&Key> = chain.iter().collect();
    assert_eq!(working(&all).await, [true; 16]);
    chain[1].client.delete(&format!("{}?descendants=revoke", chain[1].path())).await.expect(204);
    let mut expected = vec![true];
    expected.resize(16, false);
    assert_eq!(working(&all).await, expected);
}

#[apply(on_each_store)]
async fn a_revocation_that_was_cut_off_is_brought_to_its_end_by_the_same_request() {
    let switch = FaultSwitch::default();
    let wrapped = switch.clone();
    let server = without_rate_limit()
        .set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "100")
        .wrap_store(move |store| Arc::new(FaultyStore::new(store, wrapped)))
        .start();
    let root = server.root();
    let top = Key::managing(&server, &root, "top").await;
    let mut below = Vec::new();
    for number in 0..20 {
        let child = Key::managing(&server, &top.client, &format!("child {number}")).await;
        below.push(Key::new(&server, &child.client, json!({"name": "grandchild"})).await);
        below.push(child);
    }
    let path = format!("{}?descendants=revoke", top.path());

    // At most 32 are under way at once, so some have come to their end by then.
    switch.out_of_reach_after(36, "update_key");
    root.delete(&path).await.expect(503).problem("unavailable");
    switch.out_of_reach(false);
    let server = without_rate_limit().directory(server.stop()).start();

    let root = server.root();
    let works = async |key: &Key| server.with_key(text(&key.record["key"])).get("/usage").await.status == 200;
    let left = join_all(below.iter().map(&works)).await.into_iter().filter(|works| *works).count();
    assert!((1..40).contains(&left), "{left}");
    // The key itself goes on, for else the rest could not be revoked by it; but it creates no more keys.
    assert!(works(&top).await);
    create(&server.with_key(text(&top.record["key"]))).await.expect(403).problem("forbidden");
    root.delete(&path).await.expect(204);
    assert_eq!(join_all(below.iter().map(&works)).await, [false; 40]);
    assert!(!works(&top).await);
    assert_eq!(records(&root).await.len(), 1);
}

/// While keys are being revoked, they create others.
#[apply(on_each_store)]
async fn no_key_escapes_that_is_created_while_all_are_revoked() {
    let server = without_rate_limit().set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "1000").start();
    let root = server.root();
    let top = Key::managing(&server, &root, "top").await;
    let mut managers = vec![server.with_key(text(&top.record["key"]))];
    for number in 0..4 {
        managers.push(Key::managing(&server, &top.client, &format!("child {number}")).await.client);
    }
    let creations = join_all(managers.iter().map(async |manager| {
        let mut created = Vec::new();
        loop {
            let answer = manager.post("/api-keys", managing("late")).await;
            match answer.status {
                201 => created.push(answer.json()),
                // Where the creation was under way it is not known that it failed.
                503 => {}
                401 | 403 => return created,
                other => panic!("{other}: {}", answer.text()),
            }
        }
    }));
    let revocation = async {
        while records(&root).await.len() < 20 {}
        root.delete(&format!("{}?descendants=revoke", top.path())).await.expect(204);
        records(&root).await
    };
    let (created, left) = futures_util::future::join(creations, revocation).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(records(&root).await.len(), 1);
    for key in created.iter().flatten() {
        server.with_key(text(&key["key"])).get("/usage").await.expect(401);
    }
}

//! API keys of tests.

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use super::client::Client;
use super::server::{Server, ServerBuilder};

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub fn standing() -> Clock {
    Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap())
}

/// A server on which keys of both tiers may send any number of requests to `/api-keys`.
pub fn without_rate_limit() -> ServerBuilder {
    Server::builder()
        .set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__PRO__API_KEYS_PER_MINUTE", "0")
}

/// The body that creates a Free key which can create keys.
pub fn managing(name: &str) -> Value {
    json!({"name": name, "scopes": ["links:read", "usage:read", "keys:manage"]})
}

/// A key that was just created, and a client that sends it.
pub struct Key {
    pub record: Value,
    pub client: Client,
}

impl Key {
    pub async fn new(server: &Server, creator: &Client, body: Value) -> Self {
        let record = creator.new_key(body).await;
        let client = server.with_key(text(&record["key"]));
        Self { record, client }
    }

    /// A Free key that can create keys.
    pub async fn managing(server: &Server, creator: &Client, name: &str) -> Self {
        Self::new(server, creator, managing(name)).await
    }

    pub fn path(&self) -> String {
        format!("/api-keys/{}", text(&self.record["key_id"]))
    }
}

//! Server-sent events, as a client of a stream reads them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::client::Client;
use super::{SOON, eventually};

/// An event of a stream.
#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: Value,
}

/// A stream of events. Its connection is closed when it is dropped.
pub struct Events {
    response: reqwest::Response,
    unread: String,
    pub comments: usize,
    /// The id that a client sends when it comes back.
    pub last_id: String,
}

impl Events {
    /// Opens a stream, and reads what it begins with.
    pub async fn open(client: &Client, path: &str) -> Self {
        Self::open_with(client, path, &[]).await
    }

    /// Goes on after the event with this id.
    pub async fn after(client: &Client, path: &str, id: &str) -> Self {
        Self::open_with(client, path, &[("Last-Event-ID", id)]).await
    }

    /// As [`after`](Self::after), once the key has a stream left: one that was just closed counts for a moment. An empty id
    /// is none.
    pub async fn when_free(client: &Client, path: &str, id: &str) -> Self {
        eventually("the key has a stream left", SOON, async || {
            let response = client.open(path, &[("Last-Event-ID", id)]).await;
            if response.status() == 429 {
                return None;
            }
            Some(Self::begun(response).await)
        })
        .await
    }

    async fn open_with(client: &Client, path: &str, headers: &[(&str, &str)]) -> Self {
        Self::begun(client.open(path, headers).await).await
    }

    async fn begun(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        for (name, value) in
            [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
        {
            assert_eq!(response.headers()[name], value);
        }
        let mut events = Self { response, unread: String::new(), comments: 0, last_id: String::new() };
        let begin = events.block().await.expect("a beginning");
        assert!(begin.starts_with("retry: 3000\n"), "{begin}");
        field(&begin, "id").unwrap().clone_into(&mut events.last_id);
        events
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        self.next_within(SOON).await
    }

    pub async fn next_within(&mut self, within: Duration) -> Option<Event> {
        timeout(within, self.read_event()).await.unwrap_or_else(|_| panic!("no event within {within:?}"))
    }

    /// The data of the next events, which are hits.
    pub async fn hits(&mut self, count: usize) -> Vec<Value> {
        let mut hits = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("a hit");
            assert_eq!(event.name, "hit", "{event:?}");
            hits.push(event.data);
        }
        hits
    }

    /// Checks that nothing comes for a while.
    pub async fn expect_none_for(&mut self, time: Duration) {
        if let Ok(event) = timeout(time, self.read_event()).await {
            panic!("unexpected: {event:?}");
        }
    }

    /// Waits for the next comment.
    pub async fn comment(&mut self, within: Duration) {
        let before = self.comments;
        let reading = async {
            while self.comments == before {
                assert!(self.read_block().await, "the stream has ended");
            }
        };
        timeout(within, reading).await.expect("no comment");
    }

    async fn read_event(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let Some(data) = field(&block, "data") else { continue };
            let (name, id) = (field(&block, "event").unwrap().to_owned(), field(&block, "id").unwrap().to_owned());
            self.last_id.clone_from(&id);
            return Some(Event { name, id, data: serde_json::from_str(data).unwrap() });
        }
    }

    async fn read_block(&mut self) -> bool {
        self.block().await.is_some()
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let (block, rest) = (format!("{block}\n"), rest.to_owned());
                self.unread = rest;
                self.comments += block.lines().filter(|line| line.starts_with(':')).count();
                return Some(block);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.unread.push_str(std::str::from_utf8(&chunk).unwrap()),
                // It ends in order, or is cut off.
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

fn field<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

//! Links of tests, and requests that change them.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::keys::{standing, text};
use super::server::{Server, ServerBuilder};

pub const TARGET: &str = "https://example.com/";

/// A server whose clock stands, and on which keys may send any number of requests about links.
pub fn changing() -> ServerBuilder {
    [
        "SHORTEN",
        "BULK",
        "LINK",
        "LINK_CHANGES",
        "LINK_LIST",
        "EXPORTS",
        "API_KEYS",
        "USAGE",
        "ANALYTICS",
        "SUMMARY",
        "SERIES",
        "BREAKDOWN",
        "STATUS",
    ]
    .iter()
    .fold(Server::builder().clock(standing()), |server, limit| {
        server.set(&format!("SIGNPOST_TIERS__FREE__{limit}_PER_MINUTE"), "0")
    })
}

/// A client with a new key of the tier Free.
pub async fn free_key(server: &Server, body: Value) -> Client {
    server.with_key(text(&server.root().new_key(body).await["key"]))
}

pub fn path(name: &str) -> String {
    format!("/links/{name}")
}

impl Client {
    pub async fn send_link(&self, method: Method, name: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send(method, &path(name), headers, Some(body.to_string().into())).await
    }

    pub async fn patch_link(&self, name: &str, body: Value) -> Answer {
        self.send_link(Method::PATCH, name, &[], &body).await
    }

    pub async fn put_link(&self, name: &str, body: Value) -> Answer {
        self.send_link(Method::PUT, name, &[], &body).await
    }

    pub async fn link_record(&self, name: &str) -> Value {
        self.get(&path(name)).await.expect(200).json()
    }

    /// Creates a link with a slug.
    pub async fn link_named(&self, slug: &str) -> String {
        self.shorten(json!({"redirect_url": TARGET, "slug": slug})).await
    }
}

/// The places of the faults of a refused request, sorted.
#[track_caller]
pub fn faults(answer: Answer) -> Vec<String> {
    let problem = answer.expect(422).problem("validation");
    let place = |fault: &Value| {
        assert!(fault["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        fault["pointer"].as_str().or(fault["parameter"].as_str()).unwrap().to_owned()
    };
    let mut places: Vec<String> = problem["errors"].as_array().unwrap().iter().map(place).collect();
    places.sort();
    places
}

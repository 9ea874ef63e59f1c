//! A client of the API, for tests: every answer with its status, headers and body at hand.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, redirect};
use serde_json::{Value, json};

use super::picture::{Code, read_back_at};

/// Sends requests to one server, with one key or none.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Where the body is an image.
    pub code: Option<Code>,
}

impl Client {
    pub fn new(base: &str, key: Option<&str>) -> Self {
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(no_tls())
            .build()
            .unwrap();
        Self { http, base: base.to_owned(), key: key.map(str::to_owned) }
    }

    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Vec<u8>>) -> Answer {
        let is_head = method == Method::HEAD;
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        for (name, value) in headers {
            request = request.header(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut answer = Answer { status, headers, body: response.bytes().await.unwrap().to_vec(), code: None };
        if !is_head {
            answer.code = read_back_at(path, answer.header("content-type"), &answer.body);
        }
        answer
    }

    /// The head of an answer whose body goes on.
    pub async fn open(&self, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = self.http.get(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, None).await
    }

    pub async fn head(&self, path: &str) -> Answer {
        self.send(Method::HEAD, path, &[], None).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[("Content-Type", "application/json")], Some(body.to_string().into())).await
    }

    /// Creates a link; answers its short id.
    pub async fn shorten(&self, body: Value) -> String {
        let answer = self.post("/shorten", body).await.expect(200);
        answer.json()["short_id"].as_str().unwrap().to_owned()
    }

    /// Creates a link to `https://example.com/`.
    pub async fn any_link(&self) -> String {
        self.shorten(json!({"redirect_url": "https://example.com/"})).await
    }

    /// Creates a link with webhooks at `urls`.
    pub async fn link_with_webhooks(&self, urls: &[String]) -> String {
        self.shorten(json!({"redirect_url": "https://example.com/", "webhooks": urls})).await
    }

    /// Creates a key; answers the whole record with its secrets.
    pub async fn new_key(&self, body: Value) -> Value {
        self.post("/api-keys", body).await.expect(201).json()
    }
}

impl Answer {
    /// Whether it goes on with events.
    pub fn is_event_stream(&self) -> bool {
        self.header("content-type") == "text/event-stream"
    }

    /// This answer, which must have `status`.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value; empty where it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that this is a whole problem document of `slug`, and answers it.
    #[track_caller]
    pub fn problem(&self, slug: &str) -> Value {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}: {}", self.status, self.text());
        let body = self.json();
        assert_eq!(body["type"], format!("urn:problem-type:signpost:{slug}"), "{body}");
        assert_eq!(body["status"], self.status, "{body}");
        let title = StatusCode::from_u16(self.status).is_ok() && body["title"].as_str().is_some_and(|t| !t.is_empty());
        assert!(title && body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{body}");
        body
    }
}

/// Tests speak plain HTTP; reqwest, built without a provider of its own, wants a TLS set-up all the same.
fn no_tls() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

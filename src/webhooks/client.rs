//! An HTTP/1.1 client for webhooks: it keeps idle connections for a while, and makes one request at a time on each.
//!
//! A connection has no task of its own. Whoever waits for an answer polls it, so that a request costs no switch between
//! tasks. An idle connection is polled by nobody: whether the receiver has closed it is seen when it is used again,
//! before the request is sent.

use std::error::Error;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use thiserror::Error;
use tokio::time::Instant;
use tower_service::Service;
use url::Position;

use super::connector::{Connector, Stream};
use super::maps::Map;
use crate::domain::webhook_url::WebhookUrl;
use crate::locks::lock;

/// Shorter than the 5 s after which Node.js, Apache and actix close an idle connection, so that a request is seldom
/// sent on a connection that the receiver is closing.
const IDLE_CONNECTION_LIFETIME: Duration = Duration::from_secs(4);
/// How often to close connections that were idle for so long.
const CLOSE_IDLE_EVERY: Duration = Duration::from_secs(1);

/// How many bytes of a response body are read and dropped so that the connection can be used again. A longer body
/// closes the connection.
const DRAINED_BODY_LIMIT: u64 = 64 * 1024;

/// Where the requests of a webhook go.
#[derive(Debug)]
pub struct Destination {
    /// Scheme, host and port: requests to the same origin share connections.
    origin: Arc<str>,
    /// The same as a URI, for the connector.
    connect_to: Uri,
    path_and_query: Uri,
    host: HeaderValue,
    literal_address: Option<IpAddr>,
    is_https: bool,
}

impl Destination {
    /// `None` if no request can be sent to the URL.
    pub fn of(url: &WebhookUrl) -> Option<Self> {
        let target = url.target();
        let origin = &target[..Position::BeforePath];
        let host = &target[Position::BeforeHost..Position::BeforePath];
        Some(Self {
            origin: origin.into(),
            connect_to: origin.parse().ok()?,
            path_and_query: target[Position::BeforePath..].parse().ok()?,
            host: HeaderValue::try_from(host).ok()?,
            literal_address: url.literal_address(),
            is_https: target.scheme() == "https",
        })
    }

    /// The address that the URL has instead of a host name. It never reaches the resolver.
    pub fn literal_address(&self) -> Option<IpAddr> {
        self.literal_address
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ExchangeError {
    #[error("can't connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    #[error("the connection failed")]
    Connection(#[source] hyper::Error),
}

/// Sends requests. Clones share their idle connections.
#[derive(Clone)]
pub struct HttpClient {
    connector: Connector,
    idle: Arc<IdleConnections>,
}

/// A response whose body is not read yet.
pub struct Answer {
    response: Response<Incoming>,
    connection: OpenConnection,
}

impl HttpClient {
    /// A client that keeps up to `max_idle` idle connections, of them up to `max_idle_of_origin` to one origin.
    pub fn new(connector: Connector, max_idle: usize, max_idle_of_origin: usize) -> Self {
        let idle = IdleConnections { max: max_idle, max_of_origin: max_idle_of_origin, all: Mutex::default() };
        Self { connector, idle: Arc::new(idle) }
    }

    /// Sends a `POST` request once, and waits for the head of the response. Dropping the future closes the connection.
    pub async fn post(
        &self,
        destination: &Destination,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, ExchangeError> {
        headers.insert(HOST, destination.host.clone());
        let mut post = Request::new(Full::new(body));
        *post.method_mut() = Method::POST;
        *post.uri_mut() = destination.path_and_query.clone();
        *post.headers_mut() = headers;
        loop {
            let idle = self.idle.take(&destination.origin);
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect(destination).await?,
            };
            match connection.send(post).await {
                Ok(response) => return Ok(Answer { response, connection }),
                // The receiver had closed an idle connection: nothing was sent.
                Err((_, Some(unsent))) if !is_new => post = unsent,
                Err((error, _)) => return Err(ExchangeError::Connection(error)),
            }
        }
    }

    async fn connect(&self, destination: &Destination) -> Result<OpenConnection, ExchangeError> {
        let mut connector = self.connector.clone();
        std::future::poll_fn(|context| connector.poll_ready(context)).await.map_err(ExchangeError::Connect)?;
        let stream = connector.call(destination.connect_to.clone()).await.map_err(ExchangeError::Connect)?;
        let (requests, driver) = http1::handshake(stream).await.map_err(ExchangeError::Connection)?;
        Ok(OpenConnection { requests, driver: Some(driver) })
    }

    /// Reads the body to its end for at most `patience`, so that the connection can be used again. A body longer than
    /// `DRAINED_BODY_LIMIT` closes the connection.
    pub async fn finish(&self, answer: Answer, destination: &Destination, patience: Duration) {
        let Answer { response, mut connection } = answer;
        let body = response.into_body();
        // Most answers have no body, and need no timer.
        let is_over = body.is_end_stream() && connection.requests.is_ready();
        if is_over || matches!(tokio::time::timeout(patience, connection.drain(body)).await, Ok(Some(()))) {
            self.idle.keep(&destination.origin, connection);
        }
    }
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }
}

/// A connection, and the side of it that takes requests.
struct OpenConnection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<http1::Connection<Stream, Full<Bytes>>>,
}

impl OpenConnection {
    /// Sends a request; returns it with the error if nothing of it was sent.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Full<Bytes>>>)> {
        let Self { requests, driver } = self;
        let sent = driven(driver, requests.try_send_request(request)).await;
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }

    /// Reads a body to its end; `None` if the connection can't be used again.
    async fn drain(&mut self, mut body: Incoming) -> Option<()> {
        let Self { requests, driver } = self;
        if body.size_hint().lower() > DRAINED_BODY_LIMIT {
            return None;
        }
        let mut left = DRAINED_BODY_LIMIT;
        while let Some(frame) = driven(driver, body.frame()).await {
            let length = frame.ok()?.data_ref().map_or(0, Bytes::len);
            left = left.checked_sub(length as u64)?;
        }
        driven(driver, requests.ready()).await.ok()
    }
}

/// Waits for something of a connection, and polls the connection meanwhile.
async fn driven<F: Future>(driver: &mut Option<impl Future + Unpin>, of_it: F) -> F::Output {
    let mut of_it = pin!(of_it);
    let both = |context: &mut Context<'_>| -> Poll<F::Output> {
        if let Some(connection) = driver
            && Pin::new(connection).poll(context).is_ready()
        {
            // Its error, if any, goes to who waits for the response.
            *driver = None;
        }
        of_it.as_mut().poll(context)
    };
    std::future::poll_fn(both).await
}

/// Idle connections with the time of their last use, by origin. The last one was used last.
type ByOrigin = Map<Arc<str>, Vec<(Instant, OpenConnection)>>;

/// Connections that wait for their next request.
struct IdleConnections {
    max: usize,
    max_of_origin: usize,
    all: Mutex<CountedConnections>,
}

#[derive(Default)]
struct CountedConnections {
    by_origin: ByOrigin,
    count: usize,
}

impl IdleConnections {
    /// The connection that was used last.
    fn take(&self, origin: &str) -> Option<OpenConnection> {
        let mut idle = self.all();
        let (since, connection) = idle.by_origin.get_mut(origin)?.pop()?;
        idle.count -= 1;
        (since.elapsed() < IDLE_CONNECTION_LIFETIME).then_some(connection)
    }

    fn keep(self: &Arc<Self>, origin: &Arc<str>, connection: OpenConnection) {
        if connection.driver.is_none() {
            return;
        }
        let mut idle = self.all();
        let CountedConnections { by_origin, count } = &mut *idle;
        if *count >= self.max {
            // The one that was used least recently: it is the least likely to be used again.
            let used = by_origin.values_mut().filter(|of_origin| !of_origin.is_empty());
            if let Some(of_origin) = used.min_by_key(|of_origin| of_origin.first().map(|(since, _)| *since)) {
                of_origin.remove(0);
                *count -= 1;
            }
        }
        if by_origin.is_empty() {
            tokio::spawn(close_idle(Arc::downgrade(self)));
        }
        let of_origin = by_origin.entry(Arc::clone(origin)).or_default();
        if of_origin.len() < self.max_of_origin {
            of_origin.push((Instant::now(), connection));
            *count += 1;
        }
    }

    fn all(&self) -> MutexGuard<'_, CountedConnections> {
        lock(&self.all)
    }
}

/// Closes connections that were idle for too long, until there are none.
async fn close_idle(connections: Weak<IdleConnections>) {
    loop {
        tokio::time::sleep(CLOSE_IDLE_EVERY).await;
        let Some(connections) = connections.upgrade() else { return };
        let mut idle = connections.all();
        idle.by_origin.retain(|_, of_origin| {
            of_origin.retain(|(since, _)| since.elapsed() < IDLE_CONNECTION_LIFETIME);
            !of_origin.is_empty()
        });
        idle.count = idle.by_origin.values().map(Vec::len).sum();
        if idle.by_origin.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(url: &str) -> Destination {
        Destination::of(&WebhookUrl::parse_stored(url).unwrap()).unwrap()
    }

    #[test]
    fn a_destination_has_what_a_request_needs_of_its_url() {
        let of = |url| {
            let Destination { origin, connect_to, path_and_query, host, is_https, .. } = destination(url);
            assert_eq!(connect_to.path(), "/");
            (origin.to_string(), host.to_str().unwrap().to_owned(), path_and_query.to_string(), is_https)
        };
        let owned = |(origin, host, path, is_https): (&str, &str, &str, bool)| {
            (origin.to_owned(), host.to_owned(), path.to_owned(), is_https)
        };
        for (url, expected) in [
            ("HTTP://Example.com:80", ("http://example.com", "example.com", "/", false)),
            ("https://example.com:8443/a?b=c#d", ("https://example.com:8443", "example.com:8443", "/a?b=c", true)),
            ("http://[::1]:81//x", ("http://[::1]:81", "[::1]:81", "//x", false)),
            (
                "https://b\u{fc}cher.example/\u{fc}",
                ("https://xn--bcher-kva.example", "xn--bcher-kva.example", "/%C3%BC", true),
            ),
        ] {
            assert_eq!(of(url), owned(expected), "{url}");
        }
        assert_eq!(destination("http://0x7f.1/").literal_address(), Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn every_character_that_a_url_may_have_can_be_sent() {
        for character in '!'..='~' {
            for url in [format!("http://example.com/a{character}b"), format!("http://example.com/?a{character}b")] {
                let url = WebhookUrl::parse_stored(&url).unwrap();
                let sent = Destination::of(&url).unwrap().path_and_query.to_string();
                assert_eq!(sent, url.target()[Position::BeforePath..]);
            }
        }
    }
}

//! Sends one signed webhook request and classifies its failure.
//!
//! This is plain async code without an actor; the workers call it.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::{Client, Method, Request, Response, redirect, retry};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::dns::Resolver;
use crate::domain::bots::BotKind;
use crate::domain::guard::AddressGuard;
use crate::domain::signature::{WebhookSecret, sign_hex, standard_signature};
use crate::domain::webhook_url::WebhookUrl;
use crate::tls;

/// How many bytes of a response body are read and dropped so that the connection can be used again. A longer body
/// closes the connection.
const DRAINED_BODY_LIMIT: usize = 64 * 1024;

/// Shorter than the 5 s after which Node.js, Apache and actix close an idle connection, so that a request is seldom
/// sent on a connection that the receiver is closing.
const IDLE_CONNECTION_LIFETIME: Duration = Duration::from_secs(4);

const X_WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("x-webhook-signature");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const SIGNPOST_TEST: HeaderName = HeaderName::from_static("signpost-test");
const SIGNPOST_BOT: HeaderName = HeaderName::from_static("signpost-bot");

/// How webhook requests are sent.
pub struct SenderSettings {
    /// Checks every address before a connection.
    pub guard: AddressGuard,
    /// Finds the addresses of a host name.
    pub lookup: Arc<dyn Lookup>,
    /// For the name look-up, the connection, the request and the response head together.
    pub timeout: Duration,
    /// For reading the response body, after the head has decided the outcome.
    pub drain_timeout: Duration,
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// How many idle connections to one host are kept.
    pub max_idle_per_host: usize,
    /// Certificate authorities to trust besides the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl SenderSettings {
    /// The defaults of the API: 10 s up to the response head.
    pub fn new(guard: AddressGuard, lookup: Arc<dyn Lookup>) -> Self {
        Self {
            guard,
            lookup,
            timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(1),
            user_agent: concat!("signpost/", env!("CARGO_PKG_VERSION")).to_owned(),
            max_idle_per_host: 16,
            extra_roots: Vec::new(),
        }
    }
}

/// Why the sender could not be created: an error of the settings or of the system.
#[derive(Debug, Error)]
pub enum SenderError {
    #[error("can't load the certificate authorities, or can't set TLS up")]
    Tls(#[from] rustls::Error),
    #[error("can't create the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// The body of webhook requests, and its own signature: all deliveries of a hit have the same.
#[derive(Debug, Clone)]
pub struct SignedBody {
    body: Bytes,
    signature: HeaderValue,
}

impl SignedBody {
    /// # Errors
    /// If a header can't carry the signature.
    pub fn sign(body: Bytes, secret: &WebhookSecret) -> Result<Self, InvalidHeaderValue> {
        let signature = HeaderValue::try_from(sign_hex(secret, &body))?;
        Ok(Self { body, signature })
    }
}

/// A webhook request, ready to send. Each attempt needs a new one, because the timestamp is signed.
#[derive(Debug, Clone)]
pub struct SignedRequest {
    url: Arc<WebhookUrl>,
    headers: HeaderMap,
    body: Bytes,
}

impl SignedRequest {
    /// Signs a request with the key's secret and, in the grace period after a rotation, also with the `previous` one.
    ///
    /// `webhook_id` identifies the delivery and stays the same on retries; `timestamp` is the time of this attempt, in
    /// seconds since the Unix epoch.
    ///
    /// # Errors
    /// If a header can't carry `webhook_id`.
    pub fn sign(
        url: impl Into<Arc<WebhookUrl>>,
        body: SignedBody,
        webhook_id: &str,
        timestamp: i64,
        secret: &WebhookSecret,
        previous: Option<&WebhookSecret>,
    ) -> Result<Self, InvalidHeaderValue> {
        let SignedBody { body, signature } = body;
        let secrets: Vec<&WebhookSecret> = std::iter::once(secret).chain(previous).collect();
        let standard = standard_signature(&secrets, webhook_id, timestamp, &body);
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (X_WEBHOOK_SIGNATURE, signature),
            (WEBHOOK_ID, HeaderValue::from_str(webhook_id)?),
            (WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp)),
            (WEBHOOK_SIGNATURE, HeaderValue::try_from(standard)?),
        ]);
        Ok(Self { url: url.into(), headers, body })
    }

    /// Tells what made the hit, if no person did.
    #[must_use]
    pub fn of_bot(mut self, bot: Option<BotKind>) -> Self {
        self.headers.extend(bot.map(|kind| (SIGNPOST_BOT, HeaderValue::from_static(kind.label()))));
        self
    }

    /// Marks the request as a test of the webhook.
    #[must_use]
    pub fn into_test(mut self) -> Self {
        self.headers.insert(SIGNPOST_TEST, HeaderValue::from_static("true"));
        self
    }
}

/// Why an attempt failed. `Display` is the text that the webhook's owner sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum SendFailure {
    /// The receiver answered with a status that is not 2xx, such as a redirect.
    #[error("http {0}")]
    Status(u16),
    #[error("timed out")]
    TimedOut,
    #[error("connection refused")]
    ConnectionRefused,
    /// The receiver closed the connection before it answered.
    #[error("connection reset")]
    ConnectionReset,
    /// There is no route to the receiver's network or host.
    #[error("unreachable")]
    Unreachable,
    /// The host name has no address, or could not be looked up.
    #[error("dns")]
    Dns,
    /// The TLS handshake failed, or the certificate is not trusted.
    #[error("tls")]
    Tls,
    /// The guard permits none of the receiver's addresses.
    #[error("blocked address")]
    BlockedAddress,
    /// The response is not HTTP.
    #[error("invalid response")]
    InvalidResponse,
    #[error("connection failed")]
    Other,
}

impl SendFailure {
    /// The status of the receiver's response, if there was one.
    pub fn response_status(self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The receiver's status, if that is 2xx.
    pub outcome: Result<u16, SendFailure>,
    /// The time until the head of the response, or until the failure.
    pub took: Duration,
}

/// Sends webhook requests over pooled connections.
///
/// Cheap to clone; clones share their connections. A connection is bound to the runtime that opened it, so each runtime
/// needs its own sender.
#[derive(Clone)]
pub struct WebhookSender {
    client: Client,
    guard: Arc<AddressGuard>,
    timeout: Duration,
    drain_timeout: Duration,
}

impl WebhookSender {
    pub fn new(settings: SenderSettings) -> Result<Self, SenderError> {
        let guard = Arc::new(settings.guard);
        let client = Client::builder()
            .tls_backend_preconfigured(tls_config(settings.extra_roots)?)
            .dns_resolver(GuardedResolver { lookup: settings.lookup, guard: Arc::clone(&guard) })
            .no_proxy()
            .redirect(redirect::Policy::none())
            // Attempts are counted and shown to the owner, so the client must not retry on its own.
            .retry(retry::never())
            .http1_only()
            .user_agent(settings.user_agent)
            // Bounds the connection attempt that a timed-out request leaves behind.
            .connect_timeout(settings.timeout)
            .pool_idle_timeout(IDLE_CONNECTION_LIFETIME)
            .pool_max_idle_per_host(settings.max_idle_per_host)
            .build()?;
        Ok(Self { client, guard, timeout: settings.timeout, drain_timeout: settings.drain_timeout })
    }

    /// Sends the request once; returns the receiver's status if that is 2xx.
    pub async fn send(&self, request: SignedRequest) -> Result<u16, SendFailure> {
        self.send_within(request, Duration::MAX).await.outcome
    }

    /// Sends the request like [`send`](Self::send), but waits no longer than `limit` in all.
    pub async fn send_within(&self, request: SignedRequest, limit: Duration) -> Sent {
        let began = Instant::now();
        let exchanged = self.exchange(request, limit).await;
        let took = began.elapsed();
        let outcome = match exchanged {
            Ok(response) => {
                let status = response.status();
                // The head has decided the outcome, so an error of the body does not matter.
                if response.content_length() != Some(0) {
                    let drain_timeout = self.drain_timeout.min(limit.saturating_sub(took));
                    let _ = tokio::time::timeout(drain_timeout, drain(response)).await;
                }
                if status.is_success() { Ok(status.as_u16()) } else { Err(SendFailure::Status(status.as_u16())) }
            }
            Err(failure) => Err(failure),
        };
        Sent { outcome, took }
    }

    /// Sends the request and waits for the head of the response.
    async fn exchange(&self, request: SignedRequest, limit: Duration) -> Result<Response, SendFailure> {
        // A literal address never reaches the resolver. A name reaches it at every new connection, so the checked
        // addresses are the ones that are connected to.
        if let Some(address) = request.url.literal_address()
            && !self.guard.permits(address)
        {
            return Err(SendFailure::BlockedAddress);
        }
        let SignedRequest { url, headers, body } = request;
        let is_https = url.target().scheme() == "https";
        let mut post = Request::new(Method::POST, url.target().clone());
        *post.headers_mut() = headers;
        *post.body_mut() = Some(body.into());
        let exchanged = tokio::time::timeout(self.timeout.min(limit), self.client.execute(post)).await;
        exchanged.map_err(|_| SendFailure::TimedOut)?.map_err(|error| classify(&error, is_https))
    }
}

/// Reads the body to its end, so that the connection can be used again. A body longer than [`DRAINED_BODY_LIMIT`]
/// closes the connection.
async fn drain(mut response: Response) {
    if response.content_length().is_some_and(|announced| announced > DRAINED_BODY_LIMIT as u64) {
        return;
    }
    let mut left = DRAINED_BODY_LIMIT;
    while let Ok(Some(chunk)) = response.chunk().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// TLS 1.2 and 1.3 with ring. It trusts the system's certificate authorities, or Mozilla's if the system has none (as
/// in a bare container).
fn tls_config(extra_roots: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let mut roots = tls::web_roots();
    for root in extra_roots {
        roots.add(root)?;
    }
    tls::client_config(roots)
}

/// The addresses of a host.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Finds the addresses of a host name. An abandoned attempt drops the future, which must end the look-up.
pub trait Lookup: Send + Sync {
    fn lookup(&self, host: &str) -> LookupFuture;
}

impl Lookup for Resolver {
    fn lookup(&self, host: &str) -> LookupFuture {
        let (resolver, host) = (self.clone(), host.to_owned());
        Box::pin(async move { resolver.look_up(&host).await.map_err(io::Error::other) })
    }
}

/// Returns only the addresses that the guard permits. The connector calls it at every connection and has no other
/// source, so a response that changes in between (DNS rebinding) is checked again.
struct GuardedResolver {
    lookup: Arc<dyn Lookup>,
    guard: Arc<AddressGuard>,
}

#[derive(Debug, Error)]
enum ResolveError {
    #[error("can't look the host name up")]
    Lookup(#[from] io::Error),
    #[error("the host name has no address")]
    NoAddress,
    #[error("the host name has no permitted address")]
    Blocked,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.lookup.lookup(name.as_str());
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let permitted = permitted(lookup.await, &guard)?;
            // The connector replaces port 0 by the port of the URL.
            Ok(Box::new(permitted.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

fn permitted(found: io::Result<Vec<IpAddr>>, guard: &AddressGuard) -> Result<Vec<IpAddr>, ResolveError> {
    let mut addresses = found?;
    if addresses.is_empty() {
        return Err(ResolveError::NoAddress);
    }
    addresses.retain(|&address| guard.permits(address));
    if addresses.is_empty() {
        return Err(ResolveError::Blocked);
    }
    Ok(addresses)
}

/// The first cause that can be classified, from the outermost error inwards.
fn classify(error: &reqwest::Error, is_https: bool) -> SendFailure {
    if error.is_timeout() {
        return SendFailure::TimedOut;
    }
    // A TCP connection that is being made is refused, never closed: if it is closed, that was in the handshake.
    let cut = if is_https && error.is_connect() { SendFailure::Tls } else { SendFailure::ConnectionReset };
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(failure) = recognise(cause, cut) {
            return failure;
        }
        next = inner_cause(cause);
    }
    SendFailure::Other
}

/// The error inside `error`. `source()` of an [`io::Error`] skips the error that it was made from.
fn inner_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn recognise(error: &(dyn Error + 'static), cut: SendFailure) -> Option<SendFailure> {
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        return Some(match error {
            ResolveError::Lookup(_) | ResolveError::NoAddress => SendFailure::Dns,
            ResolveError::Blocked => SendFailure::BlockedAddress,
        });
    }
    if error.is::<rustls::Error>() {
        return Some(SendFailure::Tls);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        if error.is_parse() {
            return Some(SendFailure::InvalidResponse);
        }
        let ended = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        return ended.then_some(cut);
    }
    match error.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::TimedOut => Some(SendFailure::TimedOut),
        io::ErrorKind::ConnectionRefused => Some(SendFailure::ConnectionRefused),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Some(cut),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => Some(SendFailure::Unreachable),
        _ => None,
    }
}

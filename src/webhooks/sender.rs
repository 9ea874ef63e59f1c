//! Sends one signed webhook request, and names what went wrong.
//!
//! Plain async code without an actor: the workers that own the deliveries call it.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::{Client, Response, redirect, retry};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::dns::Resolver;
use crate::domain::guard::AddressGuard;
use crate::domain::signature::{WebhookSecret, sign_hex, standard_signature};
use crate::domain::webhook_url::WebhookUrl;
use crate::tls;

/// How much of an answer's body is read (and dropped) so that its connection can be used again; a
/// longer one costs its connection. In bytes.
const DRAINED_BODY_LIMIT: usize = 64 * 1024;

/// Shorter than the 5 s after which Node.js, Apache and actix close an idle connection, so that a
/// request is seldom written into one that the receiver is just closing.
const IDLE_CONNECTION_LIFETIME: Duration = Duration::from_secs(4);

const X_WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("x-webhook-signature");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How webhook requests are sent.
pub struct SenderSettings {
    /// Judges every address before it is dialled.
    pub guard: AddressGuard,
    /// Finds the addresses of a host name.
    pub lookup: Arc<dyn Lookup>,
    /// For the name look-up, the connection, the request and the answer's head together.
    pub timeout: Duration,
    /// For reading the rest of an answer, once its head has settled the outcome.
    pub drain_timeout: Duration,
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// How many idle connections to one host are kept.
    pub max_idle_per_host: usize,
    /// Certificate authorities to trust besides the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl SenderSettings {
    /// The API contract's settings: 10 s up to the answer's head.
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

/// Why no sender could be made; all of them are faults of the settings or the system.
#[derive(Debug, Error)]
pub enum SenderError {
    #[error("can't load the certificate authorities, or can't set TLS up")]
    Tls(#[from] rustls::Error),
    #[error("can't create the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// A webhook request, ready to send. A try later than the first needs one of its own: the timestamp
/// is signed.
#[derive(Debug, Clone)]
pub struct SignedRequest {
    url: WebhookUrl,
    headers: HeaderMap,
    body: Bytes,
}

impl SignedRequest {
    /// Signs `body` with the key's secret and, in the grace after a rotation, with the `previous`
    /// one too.
    ///
    /// `webhook_id` names the delivery and stays the same on retries; `timestamp` is the time of
    /// this try, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// When `webhook_id` has characters that no header can carry.
    pub fn sign(
        url: WebhookUrl,
        body: Bytes,
        webhook_id: &str,
        timestamp: i64,
        secret: &WebhookSecret,
        previous: Option<&WebhookSecret>,
    ) -> Result<Self, InvalidHeaderValue> {
        let secrets: Vec<&WebhookSecret> = std::iter::once(secret).chain(previous).collect();
        let standard = standard_signature(&secrets, webhook_id, timestamp, &body);
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (X_WEBHOOK_SIGNATURE, HeaderValue::try_from(sign_hex(secret, &body))?),
            (WEBHOOK_ID, HeaderValue::from_str(webhook_id)?),
            (WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp)),
            (WEBHOOK_SIGNATURE, HeaderValue::try_from(standard)?),
        ]);
        Ok(Self { url, headers, body })
    }
}

/// Why a delivery's try failed. `Display` is the text that the webhook's owner sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum SendFailure {
    /// The receiver answered with a status that is not 2xx; a redirect is one of them.
    #[error("http {0}")]
    Status(u16),
    #[error("timed out")]
    TimedOut,
    #[error("connection refused")]
    ConnectionRefused,
    /// The receiver ended the connection before it had answered.
    #[error("connection reset")]
    ConnectionReset,
    /// There is no way to the receiver's network or host.
    #[error("unreachable")]
    Unreachable,
    /// The host name has no address, or could not be looked up.
    #[error("dns")]
    Dns,
    /// No trusted TLS connection came about.
    #[error("tls")]
    Tls,
    /// The guard permits none of the receiver's addresses.
    #[error("blocked address")]
    BlockedAddress,
    /// The answer is not HTTP.
    #[error("invalid response")]
    InvalidResponse,
    #[error("connection failed")]
    Other,
}

impl SendFailure {
    /// The status that the receiver answered with, if it answered.
    pub fn response_status(self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }
}

/// Sends webhook requests over connections that are kept and used again.
///
/// Cheap to clone; clones share their connections. A connection lives on the runtime that opened
/// it, so each runtime should have a sender of its own.
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
            // Tries are counted and shown to the owner, so none may happen unseen.
            .retry(retry::never())
            .http1_only()
            .user_agent(settings.user_agent)
            // A connection that a timed-out request leaves behind must not be dialled on for ever.
            .connect_timeout(settings.timeout)
            .pool_idle_timeout(IDLE_CONNECTION_LIFETIME)
            .pool_max_idle_per_host(settings.max_idle_per_host)
            .build()?;
        Ok(Self { client, guard, timeout: settings.timeout, drain_timeout: settings.drain_timeout })
    }

    /// Sends the request once, and answers the receiver's status if that is 2xx.
    pub async fn send(&self, request: SignedRequest) -> Result<u16, SendFailure> {
        // A literal address never passes the resolver. A name always does, at every new connection:
        // what is judged there is what is dialled.
        if let Some(address) = request.url.literal_address()
            && !self.guard.permits(address)
        {
            return Err(SendFailure::BlockedAddress);
        }
        let is_https = request.url.target().scheme() == "https";
        let exchange =
            self.client.post(request.url.target().clone()).headers(request.headers).body(request.body).send();
        let response = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| SendFailure::TimedOut)?
            .map_err(|error| classify(&error, is_https))?;

        let status = response.status();
        // The head has settled the outcome, whatever becomes of the body.
        let _ = tokio::time::timeout(self.drain_timeout, drain(response)).await;
        if status.is_success() { Ok(status.as_u16()) } else { Err(SendFailure::Status(status.as_u16())) }
    }
}

/// Reads the body to its end, so that the connection can be used again, but gives up (and by that
/// closes it) past [`DRAINED_BODY_LIMIT`].
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

/// TLS 1.2 and 1.3 with ring, trusting the system's certificate authorities, or Mozilla's where the
/// system has none (as in a bare container).
fn tls_config(extra_roots: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let mut roots = tls::web_roots();
    for root in extra_roots {
        roots.add(root)?;
    }
    tls::client_config(roots)
}

/// The addresses of a host, when they are found.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Finds the addresses of a host name. A try that is given up drops the future, which must end the look-up.
pub trait Lookup: Send + Sync {
    fn lookup(&self, host: &str) -> LookupFuture;
}

impl Lookup for Resolver {
    fn lookup(&self, host: &str) -> LookupFuture {
        let (resolver, host) = (self.clone(), host.to_owned());
        Box::pin(async move { resolver.look_up(&host).await.map_err(io::Error::other) })
    }
}

/// Hands on only the addresses that the guard permits. The connector asks it at every dial and has
/// no other source, so an answer that changes in between (DNS rebinding) is judged anew.
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
            // The connector replaces port 0 by the URL's.
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

/// The first cause that says enough, from the outermost error inwards.
fn classify(error: &reqwest::Error, is_https: bool) -> SendFailure {
    if error.is_timeout() {
        return SendFailure::TimedOut;
    }
    // A TCP connection that is being made is refused, never cut: a cut is one of the handshake.
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

/// What `error` wraps. `source()` of an [`io::Error`] steps over the error that it was made of.
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

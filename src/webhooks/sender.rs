//! Sends one signed webhook request and classifies its failure.
//!
//! This is plain async code without an actor; the workers call it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use super::client::{Answer, Destination, ExchangeError, HttpClient};
use super::connector::{Lookup, ResolveError, connector};
use crate::domain::bots::BotKind;
use crate::domain::guard::AddressGuard;
use crate::domain::signature::{WebhookSecret, sign_hex, standard_signature};

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
    /// How many idle connections to one host are kept.
    pub max_idle_per_host: usize,
    /// Idle connections in all: each is an open file.
    pub max_idle: usize,
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
            max_idle_per_host: 16,
            max_idle: 256,
            extra_roots: Vec::new(),
        }
    }
}

/// Why the sender could not be created: an error of the settings or of the system.
#[derive(Debug, Error)]
#[error("can't load the certificate authorities, or can't set TLS up")]
pub struct SenderError(#[from] rustls::Error);

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
    destination: Arc<Destination>,
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
        destination: impl Into<Arc<Destination>>,
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
        Ok(Self { destination: destination.into(), headers, body })
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

/// The outcome of a request.
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
    client: HttpClient,
    guard: Arc<AddressGuard>,
    timeout: Duration,
    drain_timeout: Duration,
}

impl WebhookSender {
    pub fn new(settings: SenderSettings) -> Result<Self, SenderError> {
        let SenderSettings { guard, lookup, timeout, drain_timeout, max_idle_per_host, max_idle, extra_roots } =
            settings;
        let guard = Arc::new(guard);
        let connector = connector(lookup, Arc::clone(&guard), extra_roots, timeout)?;
        let client = HttpClient::new(connector, max_idle, max_idle_per_host);
        Ok(Self { client, guard, timeout, drain_timeout })
    }

    /// Sends the request once; returns the receiver's status if that is 2xx.
    pub async fn send(&self, request: SignedRequest) -> Result<u16, SendFailure> {
        self.send_within(request, Duration::MAX).await.outcome
    }

    /// Sends the request like [`send`](Self::send), but waits no longer than `limit` in all.
    pub async fn send_within(&self, request: SignedRequest, limit: Duration) -> Sent {
        let began = Instant::now();
        let SignedRequest { destination, headers, body } = request;
        let exchanged = self.exchange(&destination, headers, body, limit).await;
        let took = began.elapsed();
        let outcome = match exchanged {
            Ok(answer) => {
                let status = answer.status();
                // The head has decided the outcome, so an error of the body does not matter.
                let patience = self.drain_timeout.min(limit.saturating_sub(took));
                self.client.finish(answer, &destination, patience).await;
                if (200..300).contains(&status) { Ok(status) } else { Err(SendFailure::Status(status)) }
            }
            Err(failure) => Err(failure),
        };
        Sent { outcome, took }
    }

    /// Sends the request and waits for the head of the response.
    async fn exchange(
        &self,
        destination: &Destination,
        mut headers: HeaderMap,
        body: Bytes,
        limit: Duration,
    ) -> Result<Answer, SendFailure> {
        // A literal address never reaches the resolver. A name reaches it at every new connection, so the checked
        // addresses are the ones that are connected to.
        if let Some(address) = destination.literal_address()
            && !self.guard.permits(address)
        {
            return Err(SendFailure::BlockedAddress);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("signpost/", env!("CARGO_PKG_VERSION"))));
        let posted = tokio::time::timeout(self.timeout.min(limit), self.client.post(destination, headers, body)).await;
        posted.map_err(|_| SendFailure::TimedOut)?.map_err(|error| classify(&error, destination.is_https()))
    }
}

/// The first cause that can be classified, from the outermost error inwards.
fn classify(error: &ExchangeError, is_https: bool) -> SendFailure {
    // A TCP connection that is being made is refused, never closed: if it is closed, that was in the handshake.
    let is_handshake = is_https && matches!(error, ExchangeError::Connect(_));
    let cut = if is_handshake { SendFailure::Tls } else { SendFailure::ConnectionReset };
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

//! The webhook sender against real sockets on the loopback network.

mod connections;
mod guard;
mod requests;
mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use signpost::dns::{Resolver, ResolverSettings};
use signpost::domain::guard::AddressGuard;
use signpost::domain::signature::{WebhookSecret, sign_hex};
use signpost::domain::webhook_url::WebhookUrl;
use signpost::webhooks::client::Destination;
use signpost::webhooks::connector::{Lookup, LookupFuture};
use signpost::webhooks::sender::{SendFailure, SenderSettings, SignedBody, SignedRequest, WebhookSender};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::support::SOON;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WEBHOOK_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIMESTAMP: i64 = 1_614_265_330;
const BODY: &str = r#"{"event":"hit"}"#;

const OPEN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Also on the loopback network, but not permitted by the tests' guard.
const BLOCKED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// What a receiver does with every request.
#[derive(Clone)]
enum Behaviour {
    /// Answers, and reads the next request.
    Answer(String),
    AnswerAndClose(String),
    /// Never answers.
    Silence,
    CloseUnanswered,
    /// Closes with a TCP reset.
    Reset,
    /// Sends a response without an end until the sender closes the connection.
    Endless {
        beginning: &'static str,
        part: &'static str,
    },
}

/// An HTTP server on the loopback network with a given behaviour.
struct Receiver {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    ended: watch::Sender<usize>,
    requests: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Receiver {
    async fn start(behaviour: Behaviour) -> Self {
        Self::start_at(SocketAddr::from((OPEN, 0)), None, behaviour).await
    }

    async fn start_tls(tls: TlsAcceptor, behaviour: Behaviour) -> Self {
        Self::start_at(SocketAddr::from((OPEN, 0)), Some(tls), behaviour).await
    }

    /// A receiver that must not be reached, on the port of another one at another address.
    async fn trap(beside: &Self) -> Self {
        let address = SocketAddr::from((BLOCKED, beside.address.port()));
        Self::start_at(address, None, Behaviour::Answer(OK.into())).await
    }

    async fn start_at(at: SocketAddr, tls: Option<TlsAcceptor>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let ended = watch::Sender::new(0);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (counted, ends, seen) = (Arc::clone(&accepted), ended.clone(), Arc::clone(&requests));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, behaviour) = (tls.clone(), behaviour.clone());
                let (ends, seen) = (ends.clone(), Arc::clone(&seen));
                connections.spawn(async move {
                    if matches!(behaviour, Behaviour::Reset) {
                        stream.set_zero_linger().unwrap();
                    }
                    let served = match tls {
                        None => serve(stream, behaviour, &seen).await,
                        Some(tls) => serve(tls.accept(stream).await?, behaviour, &seen).await,
                    };
                    ends.send_modify(|ended| *ended += 1);
                    served
                });
            }
        });
        Self { address, accepted, ended, requests, serving }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    fn url_of(&self, host: &str) -> String {
        format!("http://{host}:{}/hook", self.address.port())
    }

    fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits until so many connections have ended.
    async fn connections_ended(&self, count: usize) {
        let mut ended = self.ended.subscribe();
        let enough = ended.wait_for(|ended| *ended >= count);
        tokio::time::timeout(SOON, enough).await.unwrap().unwrap();
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve<S>(mut stream: S, behaviour: Behaviour, seen: &Mutex<Vec<String>>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(request) = read_request(&mut stream).await? {
        seen.lock().unwrap().push(request);
        match &behaviour {
            Behaviour::Answer(answer) => stream.write_all(answer.as_bytes()).await?,
            Behaviour::AnswerAndClose(answer) => {
                stream.write_all(answer.as_bytes()).await?;
                return stream.shutdown().await;
            }
            Behaviour::Silence => std::future::pending().await,
            Behaviour::CloseUnanswered | Behaviour::Reset => return Ok(()),
            Behaviour::Endless { beginning, part } => {
                stream.write_all(beginning.as_bytes()).await?;
                loop {
                    stream.write_all(part.as_bytes()).await?;
                }
            }
        }
    }
    Ok(())
}

/// Reads one request with its body; `None` if the sender has closed the connection.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<String>> {
    let mut request = Vec::new();
    let whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length: usize = header(head, "content-length")?.parse().ok()?;
        (body.len() >= length).then(|| text.into_owned())
    };
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(None);
        }
        if let Some(request) = whole(&request) {
            return Ok(Some(request));
        }
    }
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let head = request.split("\r\n\r\n").next()?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
}

/// A resolver with a list of answers, one for each look-up; the last one is repeated.
#[derive(Default)]
struct ScriptedLookup {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl ScriptedLookup {
    fn new<const N: usize>(answers: [&[IpAddr]; N]) -> Arc<Self> {
        let answers = answers.map(<[IpAddr]>::to_vec).into();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

impl Lookup for ScriptedLookup {
    fn lookup(&self, _host: &str) -> LookupFuture {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.lock().unwrap();
        let answer = answers[turn.min(answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    }
}

struct FailingLookup;

impl Lookup for FailingLookup {
    fn lookup(&self, _host: &str) -> LookupFuture {
        Box::pin(async { Err(io::Error::other("no such host")) })
    }
}

struct StuckLookup;

impl Lookup for StuckLookup {
    fn lookup(&self, _host: &str) -> LookupFuture {
        Box::pin(std::future::pending())
    }
}

fn guard(allowed: &str) -> AddressGuard {
    AddressGuard::new(vec![allowed.parse().unwrap()])
}

fn settings_of(guard: AddressGuard) -> SenderSettings {
    SenderSettings::new(guard, Arc::new(Resolver::new(ResolverSettings::new("/etc/resolv.conf"))))
}

/// Settings that permit only [`OPEN`].
fn settings() -> SenderSettings {
    settings_of(guard("127.0.0.1/32"))
}

fn sender(settings: SenderSettings) -> WebhookSender {
    WebhookSender::new(settings).unwrap()
}

fn secret() -> WebhookSecret {
    WebhookSecret::parse(SECRET).unwrap()
}

fn destination(url: &str) -> Destination {
    Destination::of(&WebhookUrl::parse_stored(url).unwrap()).unwrap()
}

fn request(url: &str) -> SignedRequest {
    let body = Bytes::from_static(BODY.as_bytes());
    let body = SignedBody::sign(body, &secret()).unwrap();
    SignedRequest::sign(destination(url), body, WEBHOOK_ID, TIMESTAMP, &secret(), None).unwrap()
}

async fn outcome(behaviour: Behaviour) -> Result<u16, SendFailure> {
    let receiver = Receiver::start(behaviour).await;
    sender(settings()).send(request(&receiver.url())).await
}

fn answer(status_line: &str) -> Behaviour {
    Behaviour::Answer(format!("HTTP/1.1 {status_line}\r\ncontent-length: 0\r\n\r\n"))
}

//! The outgoing side of webhooks, against real sockets on the loopback network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use signpost::actors::webhook_sender::{
    Lookup, LookupFuture, SendFailure, SenderSettings, SignedRequest, WebhookSender,
};
use signpost::domain::guard::AddressGuard;
use signpost::domain::signature::{WebhookSecret, sign_hex};
use signpost::domain::webhook_url::WebhookUrl;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WEBHOOK_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIMESTAMP: i64 = 1_614_265_330;
const BODY: &str = r#"{"event":"hit"}"#;

const OPEN: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// On the loopback network too, but the tests' guard does not open it.
const BLOCKED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// What a receiver does with every request that it has read.
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
    /// Answers 200, and a body that ends only when the sender closes the connection.
    EndlessBody,
}

/// An HTTP server on the loopback network whose behaviour is set.
struct Receiver {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
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

    /// A receiver that must not be reached, on the port that another one has at another address.
    async fn trap(beside: &Self) -> Self {
        let address = SocketAddr::from((BLOCKED, beside.address.port()));
        Self::start_at(address, None, Behaviour::Answer(OK.into())).await
    }

    async fn start_at(at: SocketAddr, tls: Option<TlsAcceptor>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (counted, seen) = (Arc::clone(&accepted), Arc::clone(&requests));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, behaviour, seen) = (tls.clone(), behaviour.clone(), Arc::clone(&seen));
                connections.spawn(async move {
                    if matches!(behaviour, Behaviour::Reset) {
                        stream.set_zero_linger().unwrap();
                    }
                    match tls {
                        None => serve(stream, behaviour, &seen).await,
                        Some(tls) => serve(tls.accept(stream).await?, behaviour, &seen).await,
                    }
                });
            }
        });
        Self { address, accepted, requests, serving }
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
            Behaviour::EndlessBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
                loop {
                    stream.write_all(b"8\r\nendless!\r\n").await?;
                }
            }
        }
    }
    Ok(())
}

/// Reads one request with its body; `None` when the sender has closed the connection.
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

/// A resolver that answers what it is told, look-up by look-up; the last answer stays.
#[derive(Default)]
struct ScriptedLookup {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl ScriptedLookup {
    fn new<const N: usize>(answers: [&[Ipv4Addr]; N]) -> Arc<Self> {
        let answers = answers.map(|answer| answer.iter().copied().map(IpAddr::V4).collect());
        Arc::new(Self { answers: Mutex::new(answers.into()), asked: AtomicUsize::new(0) })
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

/// Settings that reach [`OPEN`] alone.
fn settings() -> SenderSettings {
    SenderSettings::new(guard("127.0.0.1/32"))
}

fn sender(settings: SenderSettings) -> WebhookSender {
    WebhookSender::new(settings).unwrap()
}

fn secret() -> WebhookSecret {
    WebhookSecret::parse(SECRET).unwrap()
}

fn request(url: &str) -> SignedRequest {
    let url = WebhookUrl::parse_stored(url).unwrap();
    let body = Bytes::from_static(BODY.as_bytes());
    SignedRequest::sign(url, body, WEBHOOK_ID, TIMESTAMP, &secret(), None).unwrap()
}

async fn outcome(behaviour: Behaviour) -> Result<u16, SendFailure> {
    let receiver = Receiver::start(behaviour).await;
    sender(settings()).send(request(&receiver.url())).await
}

fn answer(status_line: &str) -> Behaviour {
    Behaviour::Answer(format!("HTTP/1.1 {status_line}\r\ncontent-length: 0\r\n\r\n"))
}

#[tokio::test]
async fn the_request_is_a_signed_post() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let sent = sender(settings()).send(request(&receiver.url())).await;
    assert_eq!(sent, Ok(200));

    let requests = receiver.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert!(request.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with(&format!("\r\n\r\n{BODY}")), "{request}");
    let timestamp = TIMESTAMP.to_string();
    let hex = sign_hex(&secret(), BODY.as_bytes());
    let reference = standardwebhooks::Webhook::new(SECRET).unwrap();
    let standard = reference.sign(WEBHOOK_ID, TIMESTAMP, BODY.as_bytes()).unwrap();
    for (name, value) in [
        ("host", receiver.address.to_string().as_str()),
        ("content-type", "application/json"),
        ("user-agent", concat!("signpost/", env!("CARGO_PKG_VERSION"))),
        ("x-webhook-signature", &hex),
        ("webhook-id", WEBHOOK_ID),
        ("webhook-timestamp", &timestamp),
        ("webhook-signature", &standard),
    ] {
        assert_eq!(header(request, name), Some(value), "{name}");
    }
    for name in ["accept-encoding", "cookie", "referer", "authorization"] {
        assert_eq!(header(request, name), None, "{name}");
    }
}

#[tokio::test]
async fn in_a_grace_the_hex_signature_is_the_new_secrets_and_both_sign_the_standard_one() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let url = WebhookUrl::parse_stored(&receiver.url()).unwrap();
    let previous = WebhookSecret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
    let body = Bytes::from_static(BODY.as_bytes());
    let request = SignedRequest::sign(url, body, WEBHOOK_ID, TIMESTAMP, &secret(), Some(&previous)).unwrap();
    assert_eq!(sender(settings()).send(request).await, Ok(200));

    let request = &receiver.requests()[0];
    let hex = sign_hex(&secret(), BODY.as_bytes());
    assert_eq!(header(request, "x-webhook-signature"), Some(hex.as_str()));
    let standard: Vec<_> = [SECRET, previous.reveal()]
        .map(|text| standardwebhooks::Webhook::new(text).unwrap())
        .iter()
        .map(|key| key.sign(WEBHOOK_ID, TIMESTAMP, BODY.as_bytes()).unwrap())
        .collect();
    assert_eq!(header(request, "webhook-signature"), Some(standard.join(" ").as_str()));
}

#[tokio::test]
async fn an_id_that_no_header_can_carry_is_refused() {
    let url = WebhookUrl::parse_stored("http://example.com/").unwrap();
    let signed = SignedRequest::sign(url, Bytes::new(), "a\r\nb", 0, &secret(), None);
    assert!(signed.is_err());
}

#[tokio::test]
async fn every_2xx_is_a_success_and_no_other_status_is() {
    assert_eq!(outcome(answer("202 Accepted")).await, Ok(202));
    let no_content = Behaviour::Answer("HTTP/1.1 204 No Content\r\n\r\n".into());
    assert_eq!(outcome(no_content).await, Ok(204));
    for (line, status) in [("304 Not Modified", 304), ("400 Bad Request", 400), ("410 Gone", 410), ("500 Oh", 500)] {
        let failure = outcome(answer(line)).await.unwrap_err();
        assert_eq!(failure.response_status(), Some(status));
        assert_eq!(failure.to_string(), format!("http {status}"));
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let target = Receiver::start(Behaviour::Answer(OK.into())).await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = format!("HTTP/1.1 {status} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
        assert_eq!(outcome(Behaviour::Answer(redirect)).await, Err(SendFailure::Status(status)));
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn cookies_are_not_kept() {
    let cookie = "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(Behaviour::Answer(cookie.into())).await;
    let sender = sender(settings());
    for _ in 0..2 {
        assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    }
    assert_eq!(header(&receiver.requests()[1], "cookie"), None);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let sender = sender(settings());
    for _ in 0..20 {
        assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    }
    assert_eq!(receiver.requests().len(), 20);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_failure_with_a_body_does_not_cost_the_connection() {
    let failing = "HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops";
    let receiver = Receiver::start(Behaviour::Answer(failing.into())).await;
    let sender = sender(settings());
    for _ in 0..3 {
        let sent = sender.send(request(&receiver.url())).await;
        assert_eq!(sent, Err(SendFailure::Status(500)));
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_body_of_64_kib_is_read_and_a_longer_one_costs_the_connection() {
    for (length, connections) in [(64 * 1024, 1), (64 * 1024 + 1, 2)] {
        let body = "x".repeat(length);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        let receiver = Receiver::start(Behaviour::Answer(answer)).await;
        let sender = sender(settings());
        for _ in 0..2 {
            assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
        }
        assert_eq!(receiver.connections(), connections, "{length} bytes");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_and_its_head_still_counts() {
    let receiver = Receiver::start(Behaviour::EndlessBody).await;
    let mut settings = settings();
    // Only the limit on the size can end it.
    settings.drain_timeout = Duration::from_hours(1);
    let sender = sender(settings);
    let sending = sender.send(request(&receiver.url()));
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    assert_eq!(sent, Ok(Ok(200)));
}

#[tokio::test]
async fn a_body_that_never_ends_arriving_is_given_up_and_its_head_still_counts() {
    let stalled = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let receiver = Receiver::start(Behaviour::Answer(stalled.into())).await;
    let mut settings = settings();
    settings.drain_timeout = Duration::from_millis(50);
    assert_eq!(sender(settings).send(request(&receiver.url())).await, Ok(200));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_has_timed_out() {
    let receiver = Receiver::start(Behaviour::Silence).await;
    let trickling = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nx-slow: ".into())).await;
    for receiver in [receiver, trickling] {
        let mut settings = settings();
        settings.timeout = Duration::from_millis(100);
        let failure = sender(settings).send(request(&receiver.url())).await;
        assert_eq!(failure, Err(SendFailure::TimedOut));
        assert_eq!(receiver.requests().len(), 1);
    }
    assert_eq!(SendFailure::TimedOut.to_string(), "timed out");
    assert_eq!(SendFailure::TimedOut.response_status(), None);
}

#[tokio::test]
async fn the_time_for_looking_up_the_name_counts_too() {
    let mut settings = settings();
    settings.timeout = Duration::from_millis(50);
    settings.lookup = Arc::new(StuckLookup);
    let failure = sender(settings).send(request("http://example.com/")).await;
    assert_eq!(failure, Err(SendFailure::TimedOut));
}

#[tokio::test]
async fn a_closed_port_is_connection_refused() {
    let closed = TcpListener::bind((OPEN, 0)).await.unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let failure = sender(settings()).send(request(&url)).await.unwrap_err();
    assert_eq!(failure.to_string(), "connection refused");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_is_connection_reset() {
    for behaviour in
        [Behaviour::CloseUnanswered, Behaviour::Reset, Behaviour::AnswerAndClose("HTTP/1.1 200 OK\r\ncontent-".into())]
    {
        let failure = outcome(behaviour).await.unwrap_err();
        assert_eq!(failure.to_string(), "connection reset");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_an_invalid_response() {
    let garbage = Behaviour::AnswerAndClose("220 mail.example.com ESMTP\r\n\r\n".into());
    let failure = outcome(garbage).await.unwrap_err();
    assert_eq!(failure.to_string(), "invalid response");
}

#[tokio::test]
async fn a_name_without_an_address_is_dns() {
    let lookups: [Arc<dyn Lookup>; 2] = [Arc::new(FailingLookup), ScriptedLookup::new([&[]])];
    for lookup in lookups {
        let mut settings = settings();
        settings.lookup = lookup;
        let failure = sender(settings).send(request("http://example.com/")).await;
        assert_eq!(failure.unwrap_err().to_string(), "dns");
    }
}

#[tokio::test]
async fn a_literal_address_that_the_guard_refuses_is_never_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let closed_guard = sender(SenderSettings::new(AddressGuard::default()));
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0"] {
        let failure = closed_guard.send(request(&receiver.url_of(host))).await;
        assert_eq!(failure, Err(SendFailure::BlockedAddress), "{host}");
    }
    assert_eq!(SendFailure::BlockedAddress.to_string(), "blocked address");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_of_a_refused_address_is_never_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let url = receiver.url_of("localhost");
    let closed_guard = sender(SenderSettings::new(AddressGuard::default()));
    assert_eq!(closed_guard.send(request(&url)).await, Err(SendFailure::BlockedAddress));
    assert_eq!(receiver.connections(), 0);

    // The same name, over the system's resolver, where the operator opens the network.
    assert_eq!(sender(settings()).send(request(&url)).await, Ok(200));
}

#[tokio::test]
async fn of_a_names_addresses_only_the_permitted_are_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let trap = Receiver::trap(&receiver).await;
    for answer in [[BLOCKED, OPEN], [OPEN, BLOCKED]] {
        let mut settings = settings();
        settings.lookup = ScriptedLookup::new([&answer]);
        let url = receiver.url_of("example.com");
        assert_eq!(sender(settings).send(request(&url)).await, Ok(200));
    }
    assert_eq!((receiver.connections(), trap.connections()), (2, 0));
}

#[tokio::test]
async fn a_permitted_address_that_is_down_does_not_lead_to_a_refused_one() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let trap = Receiver::trap(&receiver).await;
    let url = receiver.url_of("example.com");
    receiver.serving.abort();
    while TcpStream::connect(receiver.address).await.is_ok() {}
    let mut settings = settings();
    settings.lookup = ScriptedLookup::new([&[OPEN, BLOCKED]]);
    assert_eq!(sender(settings).send(request(&url)).await, Err(SendFailure::ConnectionRefused));
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
async fn a_name_that_is_bound_anew_to_a_refused_address_does_not_pass() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(Behaviour::AnswerAndClose(closing.into())).await;
    let trap = Receiver::trap(&receiver).await;
    let lookup = ScriptedLookup::new([&[OPEN], &[BLOCKED]]);
    let mut settings = settings();
    settings.lookup = Arc::clone(&lookup) as Arc<dyn Lookup>;
    let sender = sender(settings);
    let url = receiver.url_of("rebinding.example.com");

    assert_eq!(sender.send(request(&url)).await, Ok(200));
    assert_eq!(sender.send(request(&url)).await, Err(SendFailure::BlockedAddress));
    // One look-up a connection: what was judged is what was dialled.
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 2);
    assert_eq!((receiver.connections(), trap.connections()), (1, 0));
}

/// A certificate authority and a server that has a certificate of it for `name`.
fn tls_server(name: &str) -> (CertificateDer<'static>, TlsAcceptor) {
    let issued = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let certificate = issued.cert.der().clone();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

/// Sends to a TLS receiver that has a certificate for `certified`, by the name `hook.test`.
async fn send_over_tls(certified: &str, trusted: bool) -> Result<u16, SendFailure> {
    let (certificate, tls) = tls_server(certified);
    let receiver = Receiver::start_tls(tls, Behaviour::Answer(OK.into())).await;
    let mut settings = settings();
    settings.lookup = ScriptedLookup::new([&[OPEN]]);
    settings.extra_roots = trusted.then_some(certificate).into_iter().collect();
    let url = format!("https://hook.test:{}/", receiver.address.port());
    let sent = sender(settings).send(request(&url)).await;
    assert_eq!(receiver.requests().len(), usize::from(sent.is_ok()));
    sent
}

#[tokio::test]
async fn a_trusted_certificate_for_the_name_is_accepted() {
    assert_eq!(send_over_tls("hook.test", true).await, Ok(200));
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_for_another_name_is_tls() {
    let untrusted = send_over_tls("hook.test", false).await.unwrap_err();
    assert_eq!(untrusted.to_string(), "tls");
    let misnamed = send_over_tls("other.test", true).await;
    assert_eq!(misnamed, Err(SendFailure::Tls));
}

#[tokio::test]
async fn a_receiver_that_does_not_speak_tls_is_tls() {
    for reply in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = TcpListener::bind((OPEN, 0)).await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let plain = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 4096];
            assert_ne!(stream.read(&mut hello).await.unwrap(), 0);
            stream.write_all(reply.as_bytes()).await.unwrap();
        });
        let failure = sender(settings()).send(request(&url)).await;
        assert_eq!(failure, Err(SendFailure::Tls), "{reply:?}");
        plain.await.unwrap();
    }
}

/// The environment of a process can't be changed safely while it runs threads, so this test starts
/// itself anew, in a process whose environment names a proxy.
#[tokio::test]
async fn a_proxy_in_the_environment_is_not_used() {
    const RECEIVER: &str = "TEST_RECEIVER_URL";
    const HERE: &str = concat!(module_path!(), "::a_proxy_in_the_environment_is_not_used");
    if let Ok(url) = std::env::var(RECEIVER) {
        assert_eq!(sender(settings()).send(request(&url)).await, Ok(200));
        return;
    }

    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let proxy = Receiver::start(Behaviour::Answer(OK.into())).await;
    let (_, this_test) = HERE.split_once("::").unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([this_test, "--exact"]).env(RECEIVER, receiver.url());
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        again.env(name, format!("http://{}", proxy.address));
    }
    again.env_remove("NO_PROXY").env_remove("no_proxy");
    let ran = tokio::task::spawn_blocking(move || again.output()).await;
    let ran = ran.unwrap().unwrap();

    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert_eq!((receiver.connections(), proxy.connections()), (1, 0));
}

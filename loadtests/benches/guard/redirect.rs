//! A service of its own for redirects, and requests to it, each answered from its cache.

use std::ffi::OsString;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix_http::body::BoxBody;
use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{RequestHead, Response, StatusCode};
use signpost::app::{App, TestSeams};
use signpost::clock::Clock;
use signpost::config::Config;
use signpost::http::Api;
use signpost::http::fast_path::{Begun, FastPathConnection, FastPathWorker, Next, Responder, Timeouts};
use signpost::http::redirect::{Resolved, link_name_of, resolve};
use signpost::http::request_id::request_id;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::oneshot;
use tokio::task::{spawn_local, yield_now};

use super::{REFERERS, START, USER_AGENTS};

const ROOT_KEY: &str = "root-key-of-a-benchmark-0123456789";
const CLIENTS: u8 = 16;
/// Requests that are answered each way before any is counted: caches and memory are as they are in a service that runs.
const LEAD: usize = 200;

/// What a browser sends where someone follows a link, behind `GET /AbCdEf1 HTTP/1.1`.
const FIELDS: [(&str, &str); 15] = [
    ("Host", "sign.example"),
    ("Connection", "keep-alive"),
    ("sec-ch-ua", r#""Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140""#),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", r#""Windows""#),
    ("Upgrade-Insecure-Requests", "1"),
    ("User-Agent", USER_AGENTS[0]),
    (
        "Accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
         application/signed-exchange;v=b3;q=0.7",
    ),
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-User", "?1"),
    ("Sec-Fetch-Dest", "document"),
    ("Referer", REFERERS[0]),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "en-US,en;q=0.9"),
];

/// What each of the requests is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Found,
    NotFound,
    Limited,
}

impl Outcome {
    fn status(self) -> StatusCode {
        match self {
            Self::Found => StatusCode::FOUND,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Limited => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// How many look-ups had this outcome.
    fn count(self, api: &Api) -> usize {
        let name = match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Limited => "limited",
        };
        let name = format!("signpost_redirects_total{{outcome=\"{name}\"}} ");
        let text = api.metrics.render();
        text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
    }
}

pub struct Redirects {
    api: Arc<Api>,
    responder: Responder,
    peers: Vec<SocketAddr>,
    /// One request as it comes on the fast path, and the same one of each peer as the edge service has it.
    bytes: Vec<u8>,
    heads: Vec<RequestHead>,
    requests: usize,
    outcome: Outcome,
    /// How many had that outcome before those that count.
    before: usize,
    stop: Option<oneshot::Sender<()>>,
    service: Option<JoinHandle<()>>,
    _data: tempfile::TempDir,
}

impl Redirects {
    /// A service that has answered some requests like those that come.
    pub fn ready(outcome: Outcome, requests: usize) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (api, address, stop, service) = serve(data.path(), outcome);
        let known = post(address, "/shorten", r#"{"redirect_url":"https://example.com/a/page?with=query"}"#);
        let known = known.split("\"short_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let path = if outcome == Outcome::NotFound { "/AbCdEf1".to_owned() } else { format!("/{known}") };
        // The first one is answered by way of the store.
        request(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));

        let peers: Vec<_> = (1..=CLIENTS).map(|n| SocketAddr::from(([10, 0, 0, n], 40_000))).collect();
        let fields = FIELDS.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
        let mut redirects = Self {
            responder: Responder::new(Arc::clone(&api), false),
            bytes: format!("GET {path} HTTP/1.1\r\n{fields}\r\n").into_bytes(),
            heads: peers.iter().map(|&peer| head(&path, peer)).collect(),
            api,
            peers,
            requests: LEAD,
            outcome,
            before: 0,
            stop: Some(stop),
            service: Some(service),
            _data: data,
        };
        if outcome == Outcome::Limited {
            // Each client has one redirect.
            redirects.heads.iter().for_each(|head| drop(by_edge(&redirects.api, head)));
        }
        redirects.before = outcome.count(&redirects.api);
        redirects.all_on_fast_path();
        redirects.check();
        redirects.before += LEAD;
        redirects.all_by_edge();
        redirects.check();
        redirects.before += LEAD;
        redirects.requests = requests;
        redirects
    }

    fn worker(&self) -> FastPathWorker {
        let minute = Duration::from_mins(1);
        let timeouts = Timeouts { head: minute, send: minute, keep_alive: Some(minute) };
        FastPathWorker::new(Arc::clone(&self.api), timeouts)
    }

    /// What a worker does from the bytes that it has read to those that it sends.
    pub fn all_on_fast_path(&mut self) {
        for &peer in self.peers.iter().cycle().take(self.requests) {
            let next = self.responder.answer(Some(peer), black_box(&self.bytes));
            black_box((self.responder.answers(), next));
        }
    }

    /// What a worker does from a request's head to its answer, where a connection asks for more than short links.
    pub fn all_by_edge(&self) {
        for head in self.heads.iter().cycle().take(self.requests) {
            black_box(by_edge(&self.api, black_box(head)));
        }
    }

    /// That all were answered as they should be, and that one more is, either way. Is not counted.
    pub fn check(&mut self) {
        assert_eq!(self.outcome.count(&self.api), self.before + self.requests, "{:?}", self.outcome);
        let status = self.outcome.status();
        let next = self.responder.answer(Some(self.peers[0]), &self.bytes);
        assert!(matches!(next, Next::Read), "{next:?}");
        let answer = std::str::from_utf8(self.responder.answers()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", status.as_str())), "{answer}");
        let is_found = status == StatusCode::FOUND;
        assert_eq!(answer.contains("\r\nlocation: https://example.com/a/page?with=query\r\n"), is_found, "{answer}");
        let (_, answer) = by_edge(&self.api, &self.heads[0]);
        assert_eq!((answer.status(), answer.headers().contains_key("location")), (status, is_found));
        self.before += 2;
    }
}

/// Connections that were accepted, each with its first request.
pub struct NewConnections {
    redirects: Redirects,
    worker: FastPathWorker,
    accepted: Vec<(OwnedFd, SocketAddr)>,
    _clients: Vec<TcpStream>,
}

impl NewConnections {
    pub fn ready(connections: usize) -> Self {
        let redirects = Redirects::ready(Outcome::Found, connections);
        let (mut accepted, mut clients) = (Vec::new(), Vec::new());
        let lead = 8;
        for &peer in redirects.peers.iter().cycle().take(lead + connections) {
            let (mut client, socket) = connected();
            client.write_all(&redirects.bytes).unwrap();
            accepted.push((socket.into(), peer));
            clients.push(client);
        }
        let mut new = Self { worker: redirects.worker(), redirects, accepted, _clients: clients };
        for (socket, peer) in new.accepted.drain(..lead) {
            assert!(new.worker.begin(&socket, Some(peer)).is_some());
        }
        new.redirects.before += lead;
        new
    }

    /// What a worker does with each connection that it has accepted, until its request is answered.
    pub fn all(&self) {
        for (socket, peer) in &self.accepted {
            black_box(self.worker.begin(black_box(socket), Some(*peer)));
        }
    }

    pub fn check(&mut self) {
        self.redirects.check();
    }
}

/// Connections that are kept, in a runtime as a worker's.
pub struct KeptConnections {
    redirects: Redirects,
    clients: Vec<TcpStream>,
    runtime: LocalRuntime,
}

impl KeptConnections {
    pub fn ready(requests: usize) -> Self {
        let redirects = Redirects::ready(Outcome::Found, requests);
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        let worker = Rc::new(redirects.worker());
        let clients = runtime.block_on(async {
            let open = |&peer: &SocketAddr| {
                let (client, socket) = connected();
                let begun = Begun::behind_dispatcher(Vec::new(), Instant::now());
                let stream = tokio::net::TcpStream::from_std(socket).unwrap();
                spawn_local(FastPathConnection::new(stream, Some(peer), Rc::clone(&worker), begun));
                client
            };
            redirects.peers.iter().map(open).collect()
        });
        let mut kept = Self { redirects, clients, runtime };
        kept.some(LEAD);
        kept.redirects.before += LEAD;
        kept
    }

    /// What a worker's runtime does for the next request of each connection, one connection after another.
    pub fn all(&mut self) {
        self.some(self.redirects.requests);
    }

    fn some(&mut self, requests: usize) {
        let (mut answer, count) = ([0; 4096], self.clients.len());
        for request in 0..requests {
            let client = &mut self.clients[request % count];
            client.write_all(&self.redirects.bytes).unwrap();
            self.runtime.block_on(async {
                // The runtime asks what has come in, and runs the connection's task.
                for _ in 0..3 {
                    yield_now().await;
                }
            });
            assert!(client.read(&mut answer).unwrap() > 0);
        }
    }

    pub fn check(&mut self) {
        self.redirects.check();
    }
}

/// Both ends of a connection; that of the server as a worker has it.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (client, socket)
}

impl Drop for Redirects {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.service.take().into_iter().for_each(|service| service.join().unwrap());
    }
}

/// All that has to follow when the edge service's way changes.
fn by_edge(api: &Api, request: &RequestHead) -> (HeaderValue, Response<BoxBody>) {
    let id = request_id(&request.headers);
    let short_id = link_name_of(request).unwrap();
    let Resolved::Answered(answer) = resolve(api, request, short_id) else { panic!("not in cache") };
    (id, answer)
}

fn head(path: &str, peer: SocketAddr) -> RequestHead {
    let mut head = RequestHead::default();
    head.uri = path.parse().unwrap();
    head.peer_addr = Some(peer);
    for (name, value) in FIELDS {
        head.headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static(value));
    }
    head
}

type Served = (Arc<Api>, SocketAddr, oneshot::Sender<()>, JoinHandle<()>);

/// Everything on and as the program has it by default, but for the limit's height and a clock that stands: no window ends
/// while requests are counted.
fn serve(directory: &Path, outcome: Outcome) -> Served {
    let data = directory.join("data");
    let limit = if outcome == Outcome::Limited { "1" } else { "1000000" };
    let settings = [
        ("SIGNPOST_HTTP__LISTEN", "127.0.0.1:0"),
        ("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:0"),
        ("SIGNPOST_HTTP__WORKERS", "1"),
        ("SIGNPOST_ROOT_KEY", ROOT_KEY),
        ("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", limit),
        ("SIGNPOST_CACHE__LINKS_TTL", "1h"),
        ("SIGNPOST_CACHE__MISSING_TTL", "1m"),
        ("SIGNPOST_DATA_DIR", data.to_str().unwrap()),
    ];
    let settings = settings.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let config = Config::load(None, settings, directory).unwrap();
    let (started, starting) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let service = std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async {
            let seams = TestSeams { clock: Clock::standing_at(START), ..TestSeams::default() };
            let app = App::build_with(&config, &|_, _| Ok(()), seams).await.unwrap();
            started.send((app.api(), app.address)).unwrap();
            app.run(Box::pin(async { drop(stopped.await) })).await.unwrap();
        });
    });
    let (api, address) = starting.recv().unwrap();
    (api, address, stop, service)
}

fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let length = body.len();
    request(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: {ROOT_KEY}\r\nContent-Type: \
             application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn request(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

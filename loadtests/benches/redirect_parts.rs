//! What each part of a redirect from cache costs, in nanoseconds, on one thread and on two.
//!
//! `cargo bench -p loadtests --bench redirect_parts`. Each figure is the mean of a sample of calls in a tight loop; shown are the least
//! and the median of the samples. On two threads it is the time that a call takes each of them.
//!
//! Behind them is what would do in the place of a part, and is not taken for what it costs.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a measurement ends where something fails"
)]

use std::ffi::OsString;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant, SystemTime};

use actix_http::header::{HeaderName, HeaderValue, HttpDate};
use actix_http::{RequestHead, StatusCode};
use metrics::{Key, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use signpost::app::App;
use signpost::clock::Clock;
use signpost::config::Config;
use signpost::domain::hit::{NodeId, Position};
use signpost::domain::link::LinkName;
use signpost::http::Api;
use signpost::http::fast_path::encode::{AfterAnswer, CannedError, DateText};
use signpost::http::fast_path::{Next, Responder};
use signpost::http::pages::ErrorAnswer;
use signpost::http::problem::{Problem, ProblemKind};
use signpost::http::redirect::{Resolved, link_name_of, resolve};
use signpost::http::request_id::request_id;
use signpost::journal::record::HitRecord;
use signpost::journal::{self, Journal, JournalSettings};
use signpost::limits::client::{ClientKey, ClientLimiter};
use signpost::telemetry::metrics::requests::LookUp;
use tokio::sync::oneshot;

const SAMPLES: usize = 201;
/// So few that a sample fits into a slice of the scheduler: on a busy machine the least sample is still undisturbed.
const CALLS: u64 = 5_000;
const ROOT_KEY: &str = "root-key-of-a-benchmark-0123456789";
const USER_AGENT: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
const REFERER: &str = "https://www.news.example/2026/11/21/an-article?from=newsletter";

fn main() {
    println!("| part | 1 thread: min / median, ns | 2 threads: min / median, ns |\n|---|---|---|");
    parts();
    whole();
    println!("\n| instead | 1 thread: min / median, ns | 2 threads: min / median, ns |\n|---|---|---|");
    instead();
}

/// What would do in the place of parts.
fn instead() {
    let id = |_: u64| |_| consume(HeaderValue::from_str(&uuid::Uuid::now_v7().to_string()));
    row("request id, as a UUID", id, || ());
    row("date, made for each answer", |_| |_| consume(HttpDate::from(SystemTime::now()).to_string()), || ());
    let problem = || Problem::new(ProblemKind::NotFound, "There is no link with this id.");
    row("answer to an unknown id, made for each", |_| |_| consume(problem().to_json()), || ());
    let canned = CannedError::new(&ErrorAnswer::from(&problem()));
    let mut date = DateText::default();
    let date = date.stamp(Clock::system().now(), b"0123456789012345678", AfterAnswer::GoesOn);
    row(
        "the same, made once and copied",
        |_| {
            let (canned, mut out) = (&canned, Vec::with_capacity(1_024));
            move |_| {
                out.clear();
                canned.write(&mut out, true, date);
                consume(out.len());
            }
        },
        || (),
    );
    let recorder = PrometheusBuilder::new().build_recorder();
    let (key, metadata) = (Key::from_name("times"), Metadata::new("", Level::INFO, None));
    let times = recorder.register_histogram(&key, &metadata);
    // What is observed is kept until somebody asks.
    row(
        "metric of a time, the recorder's own",
        |_| |_| times.record(black_box(0.001)),
        || consume(recorder.handle().render()),
    );
    let one_line = OneLine::default();
    let add = |counter: &AtomicU64| consume(counter.fetch_add(1, Ordering::Relaxed));
    row(
        "a counter for each thread, on one cache line",
        |thread| {
            let own = &one_line.0[thread as usize];
            move |_| add(own)
        },
        || (),
    );
    let apart = [Apart::default(), Apart::default()];
    row(
        "the same, each on lines of its own",
        |thread| {
            let own = &apart[thread as usize].0;
            move |_| add(own)
        },
        || (),
    );
}

#[derive(Default)]
#[repr(align(16))]
struct OneLine([AtomicU64; 2]);

#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// Measures `call`, made anew for each thread, and prints its row. `between` runs after each sample, untimed.
fn row<C: FnMut(u64)>(name: &str, make: impl Fn(u64) -> C + Sync, mut between: impl FnMut()) {
    let mut cells = [1, 2].map(|threads| {
        let mut samples: Vec<f64> = (0..SAMPLES)
            .map(|_| {
                let sample = sample(threads, &make);
                between();
                sample
            })
            .collect();
        samples.sort_by(f64::total_cmp);
        format!("{:.0} / {:.0}", samples[0], samples[SAMPLES / 2])
    });
    println!("| {name} | {} | {} |", std::mem::take(&mut cells[0]), cells[1]);
}

/// Nanoseconds a call, the mean over all threads.
fn sample<C: FnMut(u64)>(threads: u64, make: &(impl Fn(u64) -> C + Sync)) -> f64 {
    let barrier = Barrier::new(usize::try_from(threads).unwrap());
    let time: Duration = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut call = make(thread);
                    (0..CALLS / 20).for_each(&mut call);
                    barrier.wait();
                    let began = Instant::now();
                    (0..CALLS).for_each(&mut call);
                    began.elapsed()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let calls = u32::try_from(CALLS * threads).unwrap();
    time.as_secs_f64() * 1e9 / f64::from(calls)
}

/// Takes a result in a way that the compiler can't see through.
fn consume<T>(result: T) {
    let _ = black_box(result);
}

/// Parts that need no service around them.
fn parts() {
    let clock = Clock::system();
    row("clock", |_| |_| consume(clock.now()), || ());

    let head = head("/AbCdEf1");
    row("short id of the path", |_| |_| consume(link_name_of(&head)), || ());

    let limiter = ClientLimiter::new(1_000_000, 524_288, 42);
    row(
        "client limit, a client a thread",
        |_| {
            let (limiter, clock, client) = (&limiter, &clock, ClientKey::from(next_client()));
            move |_| consume(limiter.admit(client, clock.now().0))
        },
        || (),
    );
    row(
        "client limit, a client a call",
        |_| {
            let (limiter, clock) = (&limiter, &clock);
            move |_| consume(limiter.admit(ClientKey::from(next_client()), clock.now().0))
        },
        || (),
    );

    let directory = tempfile::tempdir().unwrap();
    let settings = JournalSettings::default();
    let node = NodeId(uuid::Uuid::now_v7());
    let Journal { writer, mut reader, upkeep } = journal::open(directory.path(), &settings, node, Position(0)).unwrap();
    let upkeep = upkeep.start().unwrap();
    let record = HitRecord {
        at_ms: clock.now().0,
        short_id: *b"AbCdEf1",
        owner: node.0.into_bytes(),
        user_agent: USER_AGENT.as_bytes(),
        referer: REFERER.as_bytes(),
        ..HitRecord::EMPTY
    };
    row(
        "journal append",
        |_| {
            let writer = writer.clone();
            move |_| {
                black_box(writer.append(&record)).unwrap();
            }
        },
        || {
            while !reader.read(usize::MAX, &mut |_, _| ()).caught_up {}
            reader.release(Position(u64::MAX));
            // The next segment is made ahead, as it would be at the rate at which requests can come.
            std::thread::sleep(Duration::from_millis(100));
        },
    );
    upkeep.stop();
}

/// A service with a link in its cache: what a worker does between the request's head and its answer.
fn whole() {
    let directory = tempfile::tempdir().unwrap();
    let (api, address, stop, thread) = serve(directory.path());
    let link = make_link(address);
    let path = format!("/{}", link.as_str());
    let drained = || {
        // Until the counter has read what the sample appended.
        while unread_bytes(&api) > 1 << 20 {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    row("cache look-up", |_| |_| consume(api.redirects.cached(&link).unwrap()), || ());
    row(
        "near look-up",
        |_| {
            let mut near = api.redirects.worker_cache();
            near.put(&api.redirects.cached(&link).unwrap().unwrap());
            move |_| assert!(black_box(near.get(black_box(&link))).is_some())
        },
        || (),
    );
    let request = head(&path);
    row("request id, made", |_| |_| consume(request_id(&request.headers)), || ());
    row("metric", |_| |_| api.metrics.redirects.found(LookUp::Memory), || ());
    let bytes = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: {USER_AGENT}\r\nReferer: {REFERER}\r\n\r\n"
    );
    row(
        "whole, on the fast path: head, id, limit, near look-up, journal, bytes",
        |_| {
            let mut responder = Responder::new(Arc::clone(&api), false);
            let bytes = &bytes;
            move |_| {
                // A client for each call: none comes near its limit.
                let peer = SocketAddr::new(next_client(), 40_000);
                assert!(matches!(responder.answer(Some(peer), bytes.as_bytes()), Next::Read));
                assert!(responder.answers().starts_with(b"HTTP/1.1 302"));
            }
        },
        drained,
    );
    row(
        "whole, in the edge service: id, limit, cache, journal, answer",
        |_| {
            let (api, path) = (&api, &path);
            let mut request = head(path);
            move |_| {
                request.peer_addr = Some(SocketAddr::new(next_client(), 40_000));
                let id = request_id(&request.headers);
                let short_id = link_name_of(&request).unwrap();
                let Resolved::Answered(answer) = resolve(api, &request, short_id) else { panic!("not in cache") };
                assert_eq!(answer.status(), StatusCode::FOUND);
                consume((id, answer));
            }
        },
        drained,
    );
    let lost = metric(&api, "signpost_journal_hits_not_recorded_total");
    assert_eq!(lost, 0, "the journal had no room: these figures are of something else");
    drop(stop);
    thread.join().unwrap();
}

/// An address that has not been used before.
fn next_client() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    IpAddr::V4(Ipv4Addr::from_bits(NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn head(path: &str) -> RequestHead {
    let mut head = RequestHead::default();
    head.uri = path.parse().unwrap();
    head.peer_addr = Some(SocketAddr::from(([127, 0, 0, 1], 40_000)));
    for (name, value) in [("host", "localhost:8080"), ("user-agent", USER_AGENT), ("referer", REFERER)] {
        head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    head
}

type Served = (Arc<Api>, SocketAddr, oneshot::Sender<()>, std::thread::JoinHandle<()>);

fn serve(directory: &Path) -> Served {
    let data = directory.join("data");
    let settings = [
        ("SIGNPOST_HTTP__LISTEN", "127.0.0.1:0"),
        ("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:0"),
        ("SIGNPOST_HTTP__WORKERS", "1"),
        ("SIGNPOST_ROOT_KEY", ROOT_KEY),
        ("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "1000000"),
        ("SIGNPOST_CACHE__LINKS_TTL", "1h"),
        ("SIGNPOST_DATA_DIR", data.to_str().unwrap()),
    ];
    let settings = settings.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let config = Config::load(None, settings, directory).unwrap();
    let (started, starting) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async {
            let app = App::build(&config, &|_, _| Ok(())).await.unwrap();
            started.send((app.api(), app.address)).unwrap();
            app.run(Box::pin(async { drop(stopped.await) })).await.unwrap();
        });
    });
    let (api, address) = starting.recv().unwrap();
    (api, address, stop, thread)
}

fn make_link(address: SocketAddr) -> LinkName {
    let body = r#"{"redirect_url":"https://example.com/a/page?with=query"}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /shorten HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: {ROOT_KEY}\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let id = answer.split("\"short_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
    LinkName::parse(id.unwrap_or_else(|| panic!("{answer}"))).unwrap()
}

fn unread_bytes(api: &Api) -> u64 {
    metric(api, "signpost_journal_unread_bytes")
}

fn metric(api: &Api, name: &str) -> u64 {
    let text = api.metrics.render();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

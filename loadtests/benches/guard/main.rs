//! How many instructions the dearest and the most frequent work takes: the redirect, alone and with its connection, the admission of a key's request, a QR
//! code, the counting of a hit, the analytics record, a signed webhook, and what the embedded store does for links and deliveries.
//!
//! Instructions, not seconds: they are the same on a busy machine, so CI can hold them to a line. `loadtests/guard/run check`
//! compares them with the stored baseline and fails where one has grown by 5 %; `loadtests/guard/baseline-*.md` says how to move it.
//!
//! Each benchmark is a process of its own under valgrind's callgrind. Counted is what its own thread executes in the
//! benchmark's function, what that calls included, the kernel not; never its setup. `of_1000` in a name is how many calls
//! that are, so that a growth of some memory once in a while is shared out among them.

#![allow(clippy::unwrap_used, clippy::too_many_arguments, reason = "a measurement ends where something fails")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use gungraun::prelude::*;
use signpost::actors::key_shard::AdmitRequest;
use signpost::actors::key_shard::state::ShardState;
use signpost::counting::aggregator::HitAggregator;
use signpost::counting::enrich::Enricher;
use signpost::domain::analytics::{Analytics, analyze};
use signpost::domain::bots::{BotRules, SharedBotRules};
use signpost::domain::breakdown::Dimension;
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::hit::{DeviceHits, LinkHits, MAX_LABELS, NodeId, OTHER_LABEL, Position};
use signpost::domain::key::KeyId;
use signpost::domain::qr::{QrFormat, QrImage, QrOptions, QrParameters, render};
use signpost::domain::rate_limit::RateLimitId;
use signpost::domain::referrer::OwnHost;
use signpost::domain::signature::{WebhookSecret, sign_hex, standard_signature};
use signpost::domain::tally::{BotFilter, Tally};
use signpost::domain::webhook_event::hit_event_body;
use signpost::domain::window::SlidingWindow;
use signpost::journal::record::HitRecord;
use uuid::Uuid;

use self::redirect::{KeptConnections, NewConnections, Outcome, Redirects};
use self::store::{BulkCreation, Deliveries, Edits};

mod redirect;
mod store;

/// As the program's, whose cost is a part of what is counted.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: Timestamp = Timestamp(1_790_000_000_000);
const USER_AGENTS: [&str; 4] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 \
     Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36",
];
const REFERERS: [&str; 4] = [
    "https://www.news.example/2026/11/21/an-article?from=newsletter",
    "https://search.example/",
    "",
    "https://forum.example/t/a-thread/12345",
];

// Redirects from cache, one browser's request after another: on the fast path, and behind the dispatcher.

fn answered(mut redirects: Redirects) {
    redirects.check();
}

#[library_benchmark]
#[bench::of_1000(args = (Outcome::Found, 1000), setup = Redirects::ready, teardown = answered)]
fn found(mut redirects: Redirects) -> Redirects {
    redirects.all_on_fast_path();
    redirects
}

#[library_benchmark]
#[bench::of_1000(args = (Outcome::NotFound, 1000), setup = Redirects::ready, teardown = answered)]
fn not_found(mut redirects: Redirects) -> Redirects {
    redirects.all_on_fast_path();
    redirects
}

#[library_benchmark]
#[bench::of_1000(args = (Outcome::Limited, 1000), setup = Redirects::ready, teardown = answered)]
fn limited(mut redirects: Redirects) -> Redirects {
    redirects.all_on_fast_path();
    redirects
}

#[library_benchmark]
#[bench::of_1000(args = (Outcome::Found, 1000), setup = Redirects::ready, teardown = answered)]
fn found_by_edge(redirects: Redirects) -> Redirects {
    redirects.all_by_edge();
    redirects
}

library_benchmark_group!(name = redirects, benchmarks = [found, not_found, limited, found_by_edge]);

// A redirect with what a worker does for its connection: reading and sending, and what the runtime does.

fn all_answered(mut connections: NewConnections) {
    connections.check();
}

#[library_benchmark]
#[bench::of_100(args = (100), setup = NewConnections::ready, teardown = all_answered)]
fn first_request(connections: NewConnections) -> NewConnections {
    connections.all();
    connections
}

fn kept_answered(mut connections: KeptConnections) {
    connections.check();
}

#[library_benchmark]
#[bench::of_1000(args = (1000), setup = KeptConnections::ready, teardown = kept_answered)]
fn next_request(mut connections: KeptConnections) -> KeptConnections {
    connections.all();
    connections
}

library_benchmark_group!(name = connections, benchmarks = [first_request, next_request]);

// Key admission: twice as many requests as the limit lets in, so that half are refused.

const LIMIT: NonZeroU32 = NonZeroU32::new(600).unwrap();

/// When the requests are made, of a key that has been at its limit for a minute.
fn moments(requests: u64) -> (u64, impl Iterator<Item = u64>) {
    let every_ms = 60_000 / (2 * u64::from(LIMIT.get()));
    let lead = 3 * u64::from(LIMIT.get());
    (lead, (0..lead + requests).map(move |n| START.0 + n * every_ms))
}

fn full_window(requests: u64) -> (SlidingWindow, Vec<u64>) {
    let (lead, mut moments) = moments(requests);
    let mut window = SlidingWindow::default();
    for now_ms in moments.by_ref().take(usize::try_from(lead).unwrap()) {
        window.admit(now_ms, LIMIT);
    }
    (window, moments.collect())
}

#[library_benchmark]
#[bench::of_1000(args = (1000), setup = full_window)]
fn window((mut window, moments): (SlidingWindow, Vec<u64>)) -> (SlidingWindow, Vec<u64>) {
    for &now_ms in &moments {
        black_box(window.admit(black_box(now_ms), LIMIT));
    }
    (window, moments)
}

fn full_shard(requests: u64) -> (ShardState, Vec<AdmitRequest>) {
    let (lead, moments) = moments(requests);
    let keys: Vec<_> = (0..16).map(|n| KeyId(Uuid::from_u64_pair(0x0194_0000_0000_7000, n))).collect();
    let mut requests: Vec<_> = moments
        .zip(keys.into_iter().cycle())
        .map(|(now, key)| AdmitRequest {
            key,
            rate_limit: RateLimitId::new(0),
            limit: LIMIT.get() / 16,
            now: Timestamp(now),
        })
        .collect();
    let mut shard = ShardState::sharing();
    for request in requests.drain(..usize::try_from(lead).unwrap()) {
        shard.admit(&request);
    }
    (shard, requests)
}

// What a key shard does for one message, as on one of several nodes.
#[library_benchmark]
#[bench::of_1000(args = (1000), setup = full_shard)]
fn shard((mut shard, requests): (ShardState, Vec<AdmitRequest>)) -> (ShardState, Vec<AdmitRequest>) {
    for request in &requests {
        black_box(shard.admit(black_box(request)));
    }
    (shard, requests)
}

library_benchmark_group!(name = admission, benchmarks = [window, shard]);

// QR codes at their defaults.

fn qr_options(format: QrFormat) -> QrOptions {
    let format = if format == QrFormat::Png { "png" } else { "svg" };
    QrOptions::parse(&QrParameters { format: Some(format), ..QrParameters::default() }).unwrap()
}

#[library_benchmark]
#[bench::png_of_1(args = (QrFormat::Png), setup = qr_options)]
#[bench::svg_of_1(args = (QrFormat::Svg), setup = qr_options)]
fn qr(options: QrOptions) -> QrImage {
    render(black_box("https://sign.example/AbCdEf1"), &options).unwrap()
}

library_benchmark_group!(name = images, benchmarks = [qr]);

// Hits: counting them, and the record of a link that has had very many.

fn tally(hits: usize) -> (HitAggregator, Vec<HitRecord<'static>>) {
    let records: Vec<_> = (0..hits)
        .map(|n| HitRecord {
            at_ms: START.0 + n as u64,
            short_id: std::array::from_fn(|digit| if digit == 6 { b'A' + u8::try_from(n % 26).unwrap() } else { b'x' }),
            webhooks: u8::from(n % 10 == 0),
            ch_ua_mobile: [None, Some(true), Some(false)][n % 3],
            owner: Uuid::from_u64_pair(0x0194_0000_0000_7000, n as u64 % 5).into_bytes(),
            address: IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(n).unwrap())),
            user_agent: USER_AGENTS[n % 4].as_bytes(),
            referer: REFERERS[n % 4].as_bytes(),
            ..HitRecord::EMPTY
        })
        .collect();
    let rules = SharedBotRules::new(BotRules::built_in());
    let enricher = Enricher::new(OwnHost::of_base_url("https://sign.example"), None, rules);
    let mut tally = HitAggregator::new(NodeId(Uuid::from_u64_pair(0x0194_0000_0000_7000, 1)), enricher);
    // The counter goes on with what it had: visitors that it has seen, maps that have grown.
    records.iter().zip(1..).for_each(|(hit, at)| tally.add(Position(at * 300), hit));
    tally.take(Position(0), Position(records.len() as u64 * 300));
    (tally, records)
}

#[library_benchmark]
#[bench::of_1000(args = (1000), setup = tally)]
fn count((mut tally, records): (HitAggregator, Vec<HitRecord<'static>>)) -> (HitAggregator, Vec<HitRecord<'static>>) {
    for (hit, at) in records.iter().zip(1001..) {
        tally.add(Position(at * 300), black_box(hit));
    }
    black_box(tally.take(Position(1000 * 300), Position(2000 * 300)));
    (tally, records)
}

/// 400 days, and the label lists of one month, full.
fn many_hits() -> LinkHits {
    let labels = |dimension| {
        // Counts in no order, many of them alike.
        let label = |n| (format!("label-{n:04}.of.{dimension:?}.example"), n * 7919 % 256);
        let rows = (0..MAX_LABELS).map(label).chain([(OTHER_LABEL.to_owned(), 1_000_000)]);
        (dimension, rows.collect())
    };
    let tally = |persons| Tally { persons, bots: 1 };
    let days = (0..400).map(|n| (Day(20_000 + n), DeviceHits([u64::from(n), 2 * u64::from(n), 7].map(tally))));
    LinkHits { days: days.collect(), labels: Dimension::LISTED.into_iter().map(labels).collect() }
}

#[library_benchmark]
#[bench::of_1(args = (), setup = many_hits)]
fn analytics(hits: LinkHits) -> Analytics {
    analyze(hits, Day(20_399), BotFilter::Exclude)
}

library_benchmark_group!(name = hits, benchmarks = [count, analytics]);

// Webhooks: the body and both signatures of a delivery, in the days after a rotation of secrets.

struct Event {
    secrets: [WebhookSecret; 2],
    data: String,
    deliveries: u32,
}

fn event(deliveries: u32) -> Event {
    let secret = |byte: &str| WebhookSecret::parse(&format!("whsec_{}=", byte.repeat(43))).unwrap();
    let data = format!("{{\"campaign\":\"autumn\",\"note\":\"{}\"}}", "x".repeat(200));
    Event { secrets: [secret("A"), secret("Q")], data, deliveries }
}

#[library_benchmark]
#[bench::of_100(args = (100), setup = event)]
fn signed_body(event: Event) -> Event {
    let [newer, older] = &event.secrets;
    let hit_id = "01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f";
    for _ in 0..event.deliveries {
        let url = black_box("https://example.com/a/page?with=query");
        let body = hit_event_body("AbCdEf1", url, hit_id, "2026-11-21T07:49:42.028Z", &event.data);
        black_box(standard_signature(&[newer, older], hit_id, 1_790_000_000, &body));
        black_box(sign_hex(newer, &body));
    }
    event
}

library_benchmark_group!(name = webhooks, benchmarks = [signed_body]);

// What the embedded store does, for each link and each delivery.

#[library_benchmark]
#[bench::of_500(args = (500), setup = BulkCreation::ready)]
fn bulk_creation(mut creation: BulkCreation) -> BulkCreation {
    creation.create();
    creation
}

#[library_benchmark]
#[bench::of_100(args = (100), setup = Edits::ready)]
fn edit(mut edits: Edits) -> Edits {
    edits.write();
    edits
}

#[library_benchmark]
#[bench::of_640(args = (640), setup = Deliveries::ready)]
fn delivery(mut deliveries: Deliveries) -> Deliveries {
    deliveries.deliver(640);
    deliveries
}

library_benchmark_group!(name = writes, benchmarks = [bulk_creation, edit, delivery]);

main!(library_benchmark_groups = [redirects, connections, admission, images, hits, webhooks, writes]);

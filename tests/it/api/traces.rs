//! What a collector of traces is told.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::collector::{Collector, Span, SpanKind, StatusCode, texts};
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{ROOT_KEY, Server, metric};
use crate::support::{SOON, eventually};

/// Of the examples of W3C Trace Context.
const CALLER: [u128; 2] = [0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7];

fn traceparent(flags: &str) -> String {
    let [trace, span] = CALLER;
    format!("00-{trace:032x}-{span:016x}-{flags}")
}

fn number(id: &[u8]) -> u128 {
    id.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn start(collector: &Collector, sample_ratio: &str) -> Server {
    Server::builder()
        .set("SIGNPOST_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint())
        .set("SIGNPOST_TELEMETRY__TRACE_SAMPLE_RATIO", sample_ratio)
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10ms")
        .start()
}

/// Ends the server, which sends what waits.
async fn end(server: Server) {
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// Waits until the collector has as many spans of each name: those that are left for an end may be too late.
async fn wait_for_spans(collector: &Collector, expected: &[(&str, usize)]) {
    eventually("spans", SOON, async || {
        let spans = collector.spans();
        expected.iter().all(|(name, count)| named(&spans, name).len() >= *count).then_some(())
    })
    .await;
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let [span] = named(spans, name)[..] else { panic!("{name}: {spans:#?}") };
    span
}

#[tokio::test]
async fn a_click_is_one_trace_from_its_redirect_to_the_tries_of_its_webhooks() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    receiver.reply_with([Reply::Status(500), Reply::Status(204)]);
    let server = start(&collector, "1");
    let link = server.root().link_with_webhooks(&[receiver.url("/a-secret-path?token=a-secret")]).await;
    let headers = [("X-Request-Id", "id-of-the-click"), ("traceparent", &*traceparent("01"))];
    server.anonymous().get_with(&format!("/{link}"), &headers).await.expect(302);
    let tries = receiver.wait_for(2, SOON).await;
    wait_for_spans(&collector, &[("GET /{short_id}", 1), ("webhook attempt", 2)]).await;
    end(server).await;

    let hit: uuid::Uuid = tries[0].json()["hit_id"].as_str().unwrap().parse().unwrap();
    let spans = collector.spans();
    let redirect = one(&spans, "GET /{short_id}");
    assert_eq!(redirect.trace_id, hit.as_bytes(), "the trace of a hit has its id");
    assert!(redirect.parent_span_id.is_empty());
    assert_eq!(redirect.kind(), SpanKind::Server);
    let [caller] = &redirect.links[..] else { panic!("{:?}", redirect.links) };
    assert_eq!([number(&caller.trace_id), number(&caller.span_id)], CALLER);
    let told = texts(&redirect.attributes);
    assert_eq!(told["http.request.method"], "GET");
    assert_eq!(told["http.route"], "/{short_id}");
    assert_eq!(told["http.response.status_code"], "302");
    assert_eq!(told["signpost.request_id"], "id-of-the-click");

    let [first, second] = named(&spans, "webhook attempt")[..] else { panic!("{spans:#?}") };
    for (attempt, resent, status) in [(first, None, "500"), (second, Some("1"), "204")] {
        assert_eq!((&attempt.trace_id, &attempt.parent_span_id), (&redirect.trace_id, &redirect.span_id));
        assert_eq!(attempt.kind(), SpanKind::Client);
        assert!(attempt.start_time_unix_nano >= redirect.start_time_unix_nano);
        assert!(attempt.end_time_unix_nano > attempt.start_time_unix_nano);
        let told = texts(&attempt.attributes);
        assert_eq!(told.get("http.request.resend_count").map(String::as_str), resent);
        assert_eq!(told["http.response.status_code"], status);
        assert_eq!(format!("{}:{}", told["server.address"], told["server.port"]), receiver.address.to_string());
    }
    assert_eq!(first.status.as_ref().unwrap().code(), StatusCode::Error);
    assert_eq!(texts(&first.attributes)["error.type"], "500");
    assert_ne!(first.span_id, second.span_id);

    let requests = collector.requests();
    let resource = texts(&requests[0].resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!((&*resource["service.name"], &*resource["service.version"]), ("signpost", env!("CARGO_PKG_VERSION")));
    let bytes = collector.bytes();
    for secret in [ROOT_KEY, &link, "a-secret", "example.com"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret} was told");
    }
}

#[tokio::test]
async fn a_request_of_the_api_is_part_of_its_callers_trace_and_has_its_calls_of_the_store() {
    let collector = Collector::start().await;
    let server = start(&collector, "1");
    let send = async |flags: &str, body: &str| {
        let headers = [("Content-Type", "application/json"), ("traceparent", &*traceparent(flags))];
        server.root().send(reqwest::Method::POST, "/shorten", &headers, Some(body.into())).await
    };
    let body = json!({"redirect_url": "https://example.com/"}).to_string();
    send("01", &body).await.expect(200);
    // Its caller does not trace this one.
    send("00", "{}").await.expect(422);
    server.anonymous().get("/nothing/here").await.expect(404);
    wait_for_spans(&collector, &[("POST /shorten", 1), ("store create_link", 1), ("GET", 1)]).await;
    end(server).await;

    let spans = collector.spans();
    let request = one(&spans, "POST /shorten");
    assert_eq!(texts(&request.attributes)["http.response.status_code"], "200", "the other one is not told");
    assert_eq!([number(&request.trace_id), number(&request.parent_span_id)], CALLER);
    assert!(request.links.is_empty());
    let call = one(&spans, "store create_link");
    assert_eq!((&call.trace_id, &call.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(texts(&call.attributes)["signpost.store.outcome"], "ok");
    assert!(call.start_time_unix_nano >= request.start_time_unix_nano);
    assert!(call.end_time_unix_nano <= request.end_time_unix_nano);
    let unknown = one(&spans, "GET");
    assert!(unknown.parent_span_id.is_empty() && unknown.trace_id != request.trace_id, "{unknown:?}");
}

#[tokio::test]
async fn of_the_traces_that_are_not_sampled_nothing_is_told_and_of_the_others_all() {
    let (collector, receiver) = (Collector::start().await, Receiver::start().await);
    let server = start(&collector, "0.3333");
    let link = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&link, 120).await;
    receiver.wait_for(120, SOON).await;
    end(server).await;

    let spans = collector.spans();
    let traces = |name| {
        let mut traces: Vec<_> = named(&spans, name).into_iter().map(|span| span.trace_id.clone()).collect();
        traces.sort();
        traces
    };
    let told = traces("GET /{short_id}");
    assert_eq!(told, traces("webhook attempt"));
    // Of 120 a third, give or take five standard deviations.
    assert!((14..=66).contains(&told.len()), "{}", told.len());
}

#[tokio::test]
async fn what_the_collector_does_not_take_is_counted_and_holds_nothing_up() {
    let collector = Collector::start().await;
    collector.0.decide_with(|_| Reply::Status(400));
    let server = start(&collector, "1");
    let link = server.root().any_link().await;
    server.click(&link, 20).await;
    let spans = |metrics: &str, outcome| {
        metric(metrics, &format!("signpost_trace_spans_total{{outcome=\"{outcome}\"}}")).unwrap()
    };
    let metrics = eventually("spans that failed", SOON, async || {
        let metrics = server.metrics().await;
        (spans(&metrics, "failed") >= 21.0).then_some(metrics)
    })
    .await;
    assert_eq!((spans(&metrics, "exported"), spans(&metrics, "dropped")), (0.0, 0.0));

    // It is tried anew.
    collector.0.decide_with(|_| Reply::Status(200));
    server.click(&link, 20).await;
    eventually("spans that are taken", SOON, async || {
        (spans(&server.metrics().await, "exported") >= 20.0).then_some(())
    })
    .await;

    collector.0.decide_with(|_| Reply::Silence);
    server.click(&link, 20).await;
    let began = Instant::now();
    end(server).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

//! Ten thousand requests by chance, with and without a key: none finds a fault of the server, and every refusal is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::json;
use signpost::http::routes;

use crate::support::client::Answer;
use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const REQUESTS: usize = 10_000;
const CONNECTIONS: usize = 8;
const SEED: [u8; 32] = *b"any seed will do, but only one!!";

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
struct Sent {
    bytes: Vec<u8>,
    is_head: bool,
}

/// What exists on the server.
struct Known {
    links: Vec<String>,
    keys: Vec<String>,
}

#[apply(on_each_store)]
async fn ten_thousand_random_requests_find_no_fault_of_the_server() {
    let server = Server::start();
    let root = server.root();
    let mut known = Known { links: Vec::new(), keys: Vec::new() };
    for tracked in [true, false] {
        known.links.push(root.shorten(json!({"redirect_url": "https://example.com/", "tracked": tracked})).await);
    }
    for number in 0..30 {
        root.new_key(json!({"name": format!("key {number}")})).await;
    }
    for key in root.get("/api-keys").await.expect(200).json()["api_keys"].as_array().unwrap() {
        known.keys.push(key["key_id"].as_str().unwrap().to_owned());
    }
    let mut seen = BTreeMap::<u16, usize>::new();
    for statuses in join_all((0..CONNECTIONS).map(|number| run(server.address, &known, number))).await {
        for status in statuses {
            *seen.entry(status).or_default() += 1;
        }
    }
    assert_eq!(seen.values().sum::<usize>(), REQUESTS);
    // The generator reaches every kind of answer, or it would show nothing.
    for status in [200, 201, 204, 302, 400, 401, 403, 404, 405, 413, 415, 422] {
        assert!(seen.contains_key(&status), "{status} is missing: {seen:?}");
    }
    // The server is as it was.
    server.anonymous().get("/").await.expect(200);
    let id = root.any_link().await;
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    root.get("/usage").await.expect(200);
    let operator = server.operator();
    eventually("a ready server", SOON, async || (operator.get("/readyz").await.status == 200).then_some(())).await;
    let metrics = server.metrics().await;
    assert!(!metrics.lines().any(|line| line.contains("restart") && !line.starts_with('#') && !line.ends_with(" 0")));
}

/// One client: keep-alive connections, one after the other as the server closes them.
async fn run(address: SocketAddr, known: &Known, number: usize) -> Vec<u16> {
    let mut seed = SEED;
    seed[0] ^= u8::try_from(number).unwrap();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let requests = requests(known);
    let mut statuses = Vec::new();
    let mut connection = Raw::connect(address).await;
    for _ in 0..REQUESTS / CONNECTIONS {
        let sent = requests.new_tree(&mut runner).unwrap().current();
        connection.send(&sent.bytes).await;
        let answer = connection.answer_to(sent.is_head).await;
        let answer = answer.unwrap_or_else(|| panic!("no answer to {}", String::from_utf8_lossy(&sent.bytes)));
        check(&sent, &answer);
        if answer.header("connection") == "close" || answer.is_event_stream() {
            connection = Raw::connect(address).await;
        }
        statuses.push(answer.status);
    }
    statuses
}

fn check(sent: &Sent, answer: &Answer) {
    let request = || String::from_utf8_lossy(&sent.bytes).into_owned();
    assert!(answer.status < 500, "{answer:?} to {}", request());
    assert!(!answer.header("x-request-id").is_empty(), "{answer:?} to {}", request());
    if answer.status < 400 {
        // Of whichever link: a code says the URL of that one.
        let link = || request().split('/').nth(1).unwrap().to_owned();
        assert!(answer.code.as_ref().is_none_or(|code| code.text.ends_with(&link())), "{answer:?} to {}", request());
        return;
    }
    assert_eq!(answer.header("content-type"), "application/problem+json", "{answer:?} to {}", request());
    if sent.is_head {
        return;
    }
    let problem = answer.json();
    let slug = problem["type"].as_str().unwrap().strip_prefix("urn:problem-type:signpost:").unwrap();
    answer.problem(slug);
    assert_eq!(answer.status == 405, !answer.header("allow").is_empty(), "{answer:?} to {}", request());
    assert_eq!(answer.status == 401, !answer.header("www-authenticate").is_empty(), "{answer:?} to {}", request());
    let has_faults = problem["errors"].as_array().is_some_and(|faults| !faults.is_empty());
    assert_eq!(answer.status == 422, has_faults, "{problem} to {}", request());
}

fn requests(known: &Known) -> BoxedStrategy<Sent> {
    let well_formed = (line(known), key(), headers(), body()).prop_map(|((method, target), key, headers, body)| {
        let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n").into_bytes();
        for (name, value) in key.into_iter().chain(headers) {
            bytes.extend([name.as_bytes(), b": ", &value, b"\r\n"].concat());
        }
        if let Some(body) = body {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
            bytes.extend(b"\r\n");
            bytes.extend(body);
        } else {
            bytes.extend(b"\r\n");
        }
        Sent { bytes, is_head: method == "HEAD" }
    });
    // Anything at all, with an end that a parser waits for.
    let garbage = vec(any::<u8>(), 1..40).prop_map(|mut bytes| {
        bytes.extend(b"\r\n\r\n");
        Sent { bytes, is_head: false }
    });
    let no_http = garbage
        .prop_filter("would wait for more", |sent| !sent.bytes.starts_with(b"\r") && !sent.bytes.starts_with(b"\n"));
    prop_oneof![60 => well_formed, 1 => no_http].boxed()
}

fn any_method() -> BoxedStrategy<String> {
    let methods =
        vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "PROPFIND", "X-Y_Z.1"];
    select(methods).prop_map(str::to_owned).boxed()
}

/// A method and a path of the route table, or nearly so, and a query.
fn line(known: &Known) -> BoxedStrategy<(String, String)> {
    let operations: Vec<(String, &str)> = routes::table()
        .iter()
        .flat_map(|path| path.operations.iter().map(|operation| (path.pattern, operation)))
        .flat_map(|(pattern, operation)| operation.methods.iter().map(move |method| (method.to_string(), pattern)))
        .collect();
    let short_id =
        prop_oneof![select(known.links.clone()), text("[0-9A-Za-z]{7}"), text("[0-9A-Za-z]{0,9}"), segment()];
    let key_id = prop_oneof![
        select(known.keys.clone()),
        any::<u128>().prop_map(|id| uuid::Uuid::from_u128(id).to_string()),
        segment(),
    ];
    let by_table = (select(operations), short_id, key_id).prop_map(|((method, pattern), short_id, key_id)| {
        (method, pattern.replace("{short_id}", &short_id).replace("{key_id}", &key_id))
    });
    let off_table = (by_table.clone(), any_method()).prop_map(|((_, path), method)| (method, path));
    let free = vec(segment(), 1..5).prop_map(|segments| format!("/{}", segments.join("/")));
    let free = (any_method(), free);
    let method_and_path = prop_oneof![12 => by_table, 2 => off_table, 1 => free];
    let parameter = (
        prop_oneof![
            select(vec!["format", "scale", "dark", "light", "limit", "cursor", "status", "colour"])
                .prop_map(str::to_owned),
            escaped(),
        ],
        prop_oneof![
            select(vec!["png", "svg", "5", "0", "transparent", "fff", "pending", "failed", "-1", ""])
                .prop_map(str::to_owned),
            escaped(),
        ],
    );
    let query = prop_oneof![
        4 => Just(String::new()),
        2 => vec(parameter, 1..4).prop_map(|parameters| {
            let pairs: Vec<String> = parameters.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("?{}", pairs.join("&"))
        }),
        1 => escaped().prop_map(|text| format!("?{text}")),
    ];
    (method_and_path, query).prop_map(|((method, path), query)| (method, path + &query)).boxed()
}

fn segment() -> BoxedStrategy<String> {
    prop_oneof![
        escaped(),
        text("[!$&'()*+,.:;=@_~0-9A-Za-z-]{0,12}"),
        text("\\PC{0,6}").prop_map(|text| percent(text.as_bytes()))
    ]
    .boxed()
}

/// Text by a regular expression, which is read once.
fn text(pattern: &str) -> BoxedStrategy<String> {
    string_regex(pattern).unwrap().boxed()
}

/// Any bytes, percent-encoded.
fn escaped() -> BoxedStrategy<String> {
    vec(any::<u8>(), 0..8).prop_map(|bytes| percent(&bytes)).boxed()
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| ['%', hex(byte >> 4), hex(byte & 15)]).collect()
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap()
}

type Header = (String, Vec<u8>);

fn key() -> BoxedStrategy<Option<Header>> {
    let header = |name: &str, value: String| Some((name.to_owned(), value.into_bytes()));
    prop_oneof![
        8 => Just(header("X-API-Key", ROOT_KEY.to_owned())),
        1 => Just(header("Authorization", format!("Bearer {ROOT_KEY}"))),
        2 => Just(None),
        1 => visible(0..60).prop_map(|value| Some(("X-API-Key".to_owned(), value))),
        1 => visible(0..60).prop_map(|value| Some(("Authorization".to_owned(), value))),
    ]
    .boxed()
}

fn headers() -> BoxedStrategy<Vec<Header>> {
    let content_type = select(vec![
        "application/json",
        "application/problem+json; charset=utf-8",
        "application/merge-patch+json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
    ])
    .prop_map(|value| ("Content-Type".to_owned(), value.as_bytes().to_vec()));
    let names = vec![
        "User-Agent",
        "Referer",
        "X-Forwarded-For",
        "Forwarded",
        "X-Request-Id",
        "If-None-Match",
        "Sec-CH-UA-Mobile",
        "Accept",
        "Accept-Encoding",
        "Range",
        "Cookie",
        "Origin",
    ];
    let known = (select(names).prop_map(str::to_owned), visible(0..80));
    let unknown = (text("[A-Za-z][A-Za-z0-9-]{0,20}").prop_map(|name| format!("X-{name}")), visible(0..20));
    let others = vec(prop_oneof![4 => known, 1 => unknown], 0..5);
    (prop::option::weighted(0.2, content_type), others)
        .prop_map(|(content_type, others)| content_type.into_iter().chain(others).collect())
        .boxed()
}

/// Bytes that may stand in a header field.
fn visible(length: std::ops::Range<usize>) -> BoxedStrategy<Vec<u8>> {
    vec(prop_oneof![8 => 0x21..=0x7eu8, 1 => 0x80..=0xffu8], length).boxed()
}

fn body() -> BoxedStrategy<Option<Vec<u8>>> {
    let fields = vec((field(), value()), 0..5).prop_map(|fields| object(&fields));
    let good = select(vec![
        json!({"redirect_url": "https://example.com/a"}).to_string(),
        json!({"redirect_url": "https://example.com/a", "data": {"a": [1, null]}, "webhooks": ["http://127.0.0.1:9/"]})
            .to_string(),
        json!({"name": "a key", "tier": "Pro", "scopes": ["links:write"]}).to_string(),
        json!({"grace_seconds": 5, "rotate_webhook_secret": true}).to_string(),
        "{}".to_owned(),
    ]);
    let mutated = (good.clone(), vec((any::<Index>(), any::<u8>()), 1..3)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    });
    let nested = (1..200usize).prop_map(|depth| ["[".repeat(depth), "]".repeat(depth)].concat());
    let large = (60_000..80_000usize).prop_map(|length| format!("{{\"name\":\"{}\"}}", "x".repeat(length)));
    let some = prop_oneof![
        8 => good.prop_map(String::into_bytes),
        8 => mutated,
        8 => fields.prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 0..60),
        2 => nested.prop_map(String::into_bytes),
        1 => large.prop_map(String::into_bytes),
    ];
    prop::option::weighted(0.5, some).boxed()
}

fn object(fields: &[(String, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn field() -> BoxedStrategy<String> {
    let names = vec![
        "redirect_url",
        "data",
        "webhooks",
        "tracked",
        "name",
        "tier",
        "scopes",
        "expires_at",
        "grace_seconds",
        "rotate_webhook_secret",
    ];
    prop_oneof![8 => select(names).prop_map(str::to_owned), 1 => text("\\PC{0,12}")].boxed()
}

/// JSON text of any type.
fn value() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1e999",
            "9223372036854775808",
            "0.1",
            "\"\\ud800\"",
            "\"\\u0000\""
        ])
        .prop_map(str::to_owned),
        select(vec![
            "https://example.com/",
            "http://[::1]/",
            "http://127.0.0.1:9/",
            "https://user@example.com",
            "http:///x",
            "https://ä.example/ö",
            "Free",
            "Pro",
            "links:write",
            "keys:manage",
            "2199-01-01T00:00:00Z",
            "+262142-12-31T23:59:60.999999999Z",
        ])
        .prop_map(|text| json!(text).to_string()),
        text("\\PC{0,12}").prop_map(|text| json!(text).to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| json!(number).to_string()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            vec((text("\\PC{0,12}"), inner), 0..4).prop_map(|fields| object(&fields)),
        ]
    })
    .boxed()
}

//! `POST /shorten` and `GET /links/{short_id}`.

use reqwest::Method;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::{Answer, Client};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

const TARGET: &str = "https://example.com/";

async fn send(client: &Client, body: impl Into<Vec<u8>>) -> Answer {
    client.send(Method::POST, "/shorten", &[("Content-Type", "application/json")], Some(body.into())).await
}

/// Where a body's faults are, in the order told.
async fn faults(client: &Client, body: impl Into<Vec<u8>>) -> Vec<String> {
    let problem = send(client, body).await.expect(422).problem("validation");
    let errors = problem["errors"].as_array().unwrap();
    assert!(errors.iter().all(|fault| fault["detail"].as_str().is_some_and(|detail| !detail.is_empty())), "{problem}");
    errors.iter().map(|fault| fault["pointer"].as_str().unwrap().to_owned()).collect()
}

#[apply(on_each_store)]
async fn a_new_link_is_answered_with_exactly_its_four_fields() {
    let clock = Clock::standing_at(Timestamp(1_795_247_382_028));
    let server = Server::builder().clock(clock).set("SIGNPOST_HTTP__BASE_URL", "https://go.example/s/").start();
    let answer = server.root().post("/shorten", json!({"redirect_url": "https://example.com/a?b#c"})).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    let link = answer.json();
    let id = link["short_id"].as_str().unwrap();
    assert!(id.len() == 7 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    let expected = [
        r#"{"short_id":"ID","short_url":"https://go.example/s/ID","redirect_url":"https://example.com/a?b#c","#,
        r#""created_at":"2026-11-21T07:49:42.028Z"}"#,
    ];
    assert_eq!(answer.text(), expected.concat().replace("ID", id));
}

#[apply(on_each_store)]
async fn without_a_base_url_short_urls_begin_with_where_the_server_listens_and_lead_there() {
    let server = Server::start();
    let link = server.root().post("/shorten", json!({"redirect_url": TARGET})).await.expect(200).json();
    let short_url = link["short_url"].as_str().unwrap();
    assert_eq!(short_url, format!("http://{}/{}", server.address, link["short_id"].as_str().unwrap()));
    Client::new(short_url, None).get("").await.expect(302);
}

#[apply(on_each_store)]
async fn two_links_to_one_target_are_two_links() {
    let server = Server::start();
    let root = server.root();
    assert_ne!(root.any_link().await, root.any_link().await);
}

#[apply(on_each_store)]
async fn all_faults_of_a_body_are_told_at_once() {
    let server = Server::start();
    let body = json!({
        "redirect_url": 7,
        "data": [],
        "webhooks": ["https://a.example/", 7, "nonsense", "https://a.example/", "https://u:p@b.example/", null],
        "tracked": "yes",
        "redirectUrl": TARGET,
        "a/b~c": 1,
    });
    let mut told = faults(&server.root(), body.to_string()).await;
    told.sort();
    let expected = [
        "/a~1b~0c",
        "/data",
        "/redirectUrl",
        "/redirect_url",
        "/tracked",
        "/webhooks/1",
        "/webhooks/2",
        "/webhooks/3",
        "/webhooks/4",
        "/webhooks/5",
    ];
    assert_eq!(told, expected);
}

#[apply(on_each_store)]
async fn a_fault_points_at_where_it_is() {
    let server = Server::start();
    let root = server.root();
    for (body, pointer) in [
        (r"{}", "/redirect_url"),
        (r#"{"redirect_url":null}"#, "/redirect_url"),
        (r#"{"redirect_url":["https://a.example"]}"#, "/redirect_url"),
        (r#"{"redirect_url":"\ud800"}"#, "/redirect_url"),
        (r#"{"redirect_url":"https://a.example","data":{"a/b":[1,{"c":"x\uDC00"}]}}"#, "/data/a~1b/1/c"),
        (r#"{"redirect_url":"https://a.example","data":{"\ud83d":1,"d":"\ud83d\ude00"}}"#, "/data/\u{fffd}"),
        (r#"{"redirect_url":"https://a.example","webhooks":["https://b.example/\ud800"]}"#, "/webhooks/0"),
        (r#"{"redirect_url":"https://a.example","redirect_url":"https://b.example"}"#, "/redirect_url"),
        (r#"{"redirect_url":"https://a.example","data":"{}"}"#, "/data"),
        (r#"{"redirect_url":"https://a.example","webhooks":{}}"#, "/webhooks"),
        (r#"{"redirect_url":"https://a.example","webhooks":"https://b.example"}"#, "/webhooks"),
        (r#"{"redirect_url":"https://a.example","tracked":1}"#, "/tracked"),
        (r#"{"redirect_url":"https://a.example","":1}"#, "/"),
        (r#"{"redirect_url":"https://a.example","Data":{}}"#, "/Data"),
        (r"[]", ""),
        (r#""https://a.example""#, ""),
        (r"null", ""),
        (r" 7 ", ""),
    ] {
        assert_eq!(faults(&root, body).await, [pointer], "{body}");
    }
}

#[apply(on_each_store)]
async fn what_is_no_json_is_malformed() {
    let server = Server::start();
    for body in [
        &b""[..],
        b" ",
        b"{",
        b"{}}",
        b"{'redirect_url': 1}",
        b"{\"redirect_url\": \"https://a.example\",}",
        b"redirect_url=https%3A%2F%2Fa.example",
        b"{\"redirect_url\": \"https://a.example/\xff\"}",
        b"\xef\xbb\xbf{}",
        b"{\"redirect_url\": \"\n\"}",
        b"{\"redirect_url\": 01}",
        b"NaN",
        b"\0",
    ] {
        let answer = send(&server.root(), body).await;
        assert_eq!(answer.status, 400, "{:?}", String::from_utf8_lossy(body));
        answer.problem("malformed-body");
    }
}

#[apply(on_each_store)]
async fn a_body_may_nest_64_levels_and_no_deeper() {
    let server = Server::start();
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 2), "]".repeat(levels - 2));
        // Brackets in strings are none.
        format!(r#"{{"redirect_url":"https://a.example/","data":{{"a":{open}{close},"b":"[[{{\"[["}}}}"#)
    };
    send(&server.root(), nested(64)).await.expect(200);
    send(&server.root(), nested(65)).await.expect(400).problem("malformed-body");
    send(&server.root(), "[".repeat(60_000)).await.expect(400).problem("malformed-body");
}

#[apply(on_each_store)]
async fn a_body_may_have_64_kib_and_no_more() {
    let server = Server::start();
    let body = |bytes: usize| {
        let json = json!({"redirect_url": TARGET}).to_string();
        format!("{json}{}", " ".repeat(bytes - json.len()))
    };
    send(&server.root(), body(65_536)).await.expect(200);
    send(&server.root(), body(65_537)).await.expect(413).problem("payload-too-large");
    send(&server.root(), body(1_000_000)).await.expect(413).problem("payload-too-large");
}

#[apply(on_each_store)]
async fn json_by_any_of_its_names_is_read_and_nothing_else() {
    let server = Server::start();
    let root = server.root();
    let body = || Some(json!({"redirect_url": TARGET}).to_string().into_bytes());
    root.send(Method::POST, "/shorten", &[], body()).await.expect(200);
    // A field that says nothing is as if it were not there.
    for accepted in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/vnd.x+json",
        "application/ld+json;a=b",
        "",
        " ",
    ] {
        root.send(Method::POST, "/shorten", &[("Content-Type", accepted)], body()).await.expect(200);
    }
    for refused in [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/+json",
        "json",
        "*/*",
        ";",
    ] {
        let answer = root.send(Method::POST, "/shorten", &[("Content-Type", refused)], body()).await;
        assert_eq!(answer.status, 415, "{refused:?}");
        answer.problem("unsupported-media-type");
    }
}

#[apply(on_each_store)]
async fn data_is_kept_with_its_key_order_and_the_text_of_its_numbers() {
    let server = Server::start();
    let root = server.root();
    let data = r#"{"z":1.0,"a":[1e400,-0,12345678901234567890123,0.10],"z":"twice","ä":"\u00e4\/","n":null,"e":{}}"#;
    let body = format!("{{ \"data\" :\n {data} , \"redirect_url\":\"{TARGET}\"}}");
    let id = send(&root, body).await.expect(200).json()["short_id"].as_str().unwrap().to_owned();
    let stored = root.get(&format!("/links/{id}")).await.expect(200).text();
    assert!(stored.contains(&format!("\"data\":{data},")), "{stored}");
}

#[apply(on_each_store)]
async fn data_may_have_10240_bytes_without_its_white_space() {
    let server = Server::start();
    let root = server.root();
    let body = |bytes: usize, filler: &str| {
        let text = filler.repeat((bytes - 8) / filler.len());
        format!(r#"{{"redirect_url":"{TARGET}","data":{{  "a" : "{text}"   }} }}"#)
    };
    send(&root, body(10_240, "x")).await.expect(200);
    assert_eq!(faults(&root, body(10_241, "x")).await, ["/data"]);
    // Bytes of UTF-8, not characters.
    send(&root, body(10_240, "ä")).await.expect(200);
    assert_eq!(faults(&root, body(10_242, "ä")).await, ["/data"]);
}

#[apply(on_each_store)]
async fn targets_are_answered_as_sent_and_so_is_location() {
    let server = Server::start();
    let root = server.root();
    for (sent, kept) in [
        ("http://a.example", "http://a.example"),
        ("HTTPS://Example.COM:443/%7e/../x?q=<'\">#f", "HTTPS://Example.COM:443/%7e/../x?q=<'\">#f"),
        ("http://user:secret@a.example/", "http://user:secret@a.example/"),
        ("http://[::1]:8/", "http://[::1]:8/"),
        ("http://192.168.0.1/", "http://192.168.0.1/"),
        ("http://a.example\\b", "http://a.example\\b"),
        ("https://bücher.example/ä?ö#ü", "https://xn--bcher-kva.example/%C3%A4?%C3%B6#%C3%BC"),
        ("http://例え.jp", "http://xn--r8jz45g.jp/"),
    ] {
        let link = root.post("/shorten", json!({"redirect_url": sent})).await.expect(200).json();
        assert_eq!(link["redirect_url"], kept);
        let redirect = server.anonymous().get(&format!("/{}", link["short_id"].as_str().unwrap())).await.expect(302);
        assert_eq!(redirect.header("location"), kept);
    }
    let longest = format!("http://a.example/{}", "x".repeat(8_192 - 17));
    root.post("/shorten", json!({"redirect_url": longest})).await.expect(200);
}

#[apply(on_each_store)]
async fn targets_that_no_browser_should_be_sent_to_are_refused() {
    let server = Server::builder().set("SIGNPOST_HTTP__BASE_URL", "https://go.example/s").start();
    let root = server.root();
    let too_long = format!("http://a.example/{}", "x".repeat(8_192 - 16));
    // Its bytes are counted as sent: 8,192 characters, 8,193 bytes.
    let too_long_in_bytes = format!("http://a.example/{}ä", "x".repeat(8_192 - 18));
    for target in [
        "",
        "a.example",
        "/a",
        "//a.example/",
        "ftp://a.example/",
        "javascript:alert(1)",
        "data:text/html,x",
        "http:",
        "http://",
        "http:///x",
        "http:a.example",
        "https://?q",
        "http://a.example:99999/",
        "http://a b.example/",
        " http://a.example/",
        "http://a.example/\r\nSet-Cookie: x=y",
        "http://a.example/\u{7f}",
        "http://a.example/\u{2028}",
        "http://[::1/",
        "https://go.example/s",
        "http://go.example/s/abcdefg",
        "https://GO.example:443/s/x",
        "https://go.example./s/",
        &too_long,
        &too_long_in_bytes,
    ] {
        let told = faults(&root, json!({"redirect_url": target}).to_string()).await;
        assert_eq!(told, ["/redirect_url"], "{target:?}");
    }
    // Beside this service is not at it.
    for target in
        ["https://go.example/", "https://go.example/shop", "https://go.example:8443/s", "https://x.go.example/s"]
    {
        root.post("/shorten", json!({"redirect_url": target})).await.expect(200);
    }
}

#[apply(on_each_store)]
async fn webhooks_are_at_most_ten_distinct_public_urls() {
    let server = Server::builder().unset("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS").start();
    let root = server.root();
    let body = |webhooks: Value| json!({"redirect_url": TARGET, "webhooks": webhooks}).to_string();
    let hooks = |count: usize| json!((0..count).map(|n| format!("https://h{n}.example/hook")).collect::<Vec<_>>());
    send(&root, body(json!([]))).await.expect(200);
    send(&root, body(hooks(10))).await.expect(200);
    assert_eq!(faults(&root, body(hooks(11))).await, ["/webhooks"]);
    let mut one_is_none = hooks(11);
    one_is_none[2] = json!("ftp://h.example");
    assert_eq!(faults(&root, body(one_is_none)).await, ["/webhooks", "/webhooks/2"]);
    // The same request in two spellings is one receiver.
    let same = json!(["https://h.example", "https://i.example", "HTTPS://H.example:443/#x"]);
    assert_eq!(faults(&root, body(same)).await, ["/webhooks/2"]);
    let of_bytes = |bytes: usize| format!("https://h.example/{}", "x".repeat(bytes - 18));
    send(&root, body(json!([of_bytes(2_048)]))).await.expect(200);
    for refused in [
        of_bytes(2_049).as_str(),
        "ftp://h.example/",
        "/hook",
        "http:///hook",
        "https://user@h.example/",
        "https://:secret@h.example/",
        "http://h.example/a b",
        "http://127.0.0.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://10.1.2.3/",
        "http://172.16.0.1/",
        "http://192.168.0.1:8080/hook",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://192.0.2.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[64:ff9b::a00:1]/",
        "http://[2002:a00:1::]/",
    ] {
        assert_eq!(faults(&root, body(json!([refused]))).await, ["/webhooks/0"], "{refused}");
    }
    send(&root, body(json!(["http://8.8.8.8/", "https://[2606:4700::1111]/"]))).await.expect(200);
}

#[apply(on_each_store)]
async fn networks_that_the_operator_opened_are_open_to_webhooks() {
    let server = Server::builder().set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "10.0.0.0/8").start();
    let body = |url: &str| json!({"redirect_url": TARGET, "webhooks": [url]}).to_string();
    send(&server.root(), body("http://10.1.2.3/")).await.expect(200);
    assert_eq!(faults(&server.root(), body("http://127.0.0.1/")).await, ["/webhooks/0"]);
}

#[apply(on_each_store)]
async fn a_link_is_read_with_all_that_is_stored_of_it() {
    let server = Server::start();
    let root = server.root();
    let whole = json!({
        "redirect_url": "https://example.com/x",
        "data": {"order": 7},
        "webhooks": ["https://b.example/B", "HTTPS://a.example"],
        "tracked": false,
    });
    let link = root.post("/shorten", whole.clone()).await.expect(200).json();
    let id = link["short_id"].as_str().unwrap();
    let stored = root.get(&format!("/links/{id}")).await.expect(200).json();
    assert_eq!(stored.as_object().unwrap().len(), 23);
    for field in ["short_id", "short_url", "redirect_url", "created_at"] {
        assert_eq!(stored[field], link[field]);
    }
    for field in ["data", "webhooks", "tracked"] {
        assert_eq!(stored[field], whole[field]);
    }
    // What is left out: an empty object, no webhooks, tracked.
    let stored = root.get(&format!("/links/{}", root.any_link().await)).await.expect(200).json();
    assert_eq!((&stored["data"], &stored["webhooks"], &stored["tracked"]), (&json!({}), &json!([]), &json!(true)));
}

#[apply(on_each_store)]
async fn a_link_is_read_by_its_owner_and_the_root_alone() {
    let server = Server::start();
    let root = server.root();
    let key = async |body: Value| server.with_key(root.new_key(body).await["key"].as_str().unwrap());
    let (owner, other) = (key(json!({"name": "owner"})).await, key(json!({"name": "other"})).await);
    let writer = key(json!({"name": "writer", "scopes": ["links:write"]})).await;
    let id = owner.any_link().await;
    let path = format!("/links/{id}");
    owner.get(&path).await.expect(200);
    root.get(&path).await.expect(200);
    other.get(&path).await.expect(403).problem("not-owner");
    let missing = writer.get(&path).await.expect(403).problem("scope-missing");
    assert_eq!(missing["scope"], "links:read");
    server.anonymous().get(&path).await.expect(401).problem("unauthorized");
    for unknown in ["zzzzzzz", "x", "toolong1", "a-b_c.d"] {
        owner.get(&format!("/links/{unknown}")).await.expect(404).problem("not-found");
    }
    // It reads a key's own scope for creation too.
    let reader = key(json!({"name": "reader", "scopes": ["links:read"]})).await;
    let refused = send(&reader, json!({"redirect_url": TARGET}).to_string()).await.expect(403);
    assert_eq!(refused.problem("scope-missing")["scope"], "links:write");
}

#[apply(on_each_store)]
async fn an_untracked_link_redirects_and_has_no_analytics() {
    // Asked again and again.
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0").start();
    let root = server.root();
    let key = async |name: &str| server.with_key(root.new_key(json!({"name": name})).await["key"].as_str().unwrap());
    let (owner, other) = (key("owner").await, key("other").await);
    let id = owner.shorten(json!({"redirect_url": TARGET, "tracked": false})).await;
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    for path in [format!("/links/{id}/analytics"), format!("/links/{id}/analytics/summary")] {
        owner.get(&path).await.expect(403).problem("untracked-link");
        root.get(&path).await.expect(403).problem("untracked-link");
        other.get(&path).await.expect(403).problem("not-owner");
    }
    owner.get(&format!("/{id}/webhooks/status")).await.expect(200);
    // Its hits count in the key's usage.
    crate::support::eventually("the hit in the usage", crate::support::SOON, async || {
        let usage = owner.get("/usage").await.expect(200).json();
        (usage["usage"]["hits_served"]["current"] == 1).then_some(())
    })
    .await;
}

#[apply(on_each_store)]
async fn scoped_keys_are_told_their_usage_and_the_root_is_not() {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "2").start();
    let root = server.root();
    let key = async |tier: &str| {
        server.with_key(root.new_key(json!({"name": tier, "tier": tier})).await["key"].as_str().unwrap())
    };
    let (free, pro) = (key("Free").await, key("Pro").await);
    let body = || json!({"redirect_url": TARGET});
    let usage = |answer: &Answer| {
        (answer.header("x-usage-links-created").to_owned(), answer.header("x-usage-links-limit").to_owned())
    };
    assert_eq!(usage(&free.post("/shorten", body()).await.expect(200)), ("1".into(), "2".into()));
    // One that fails takes none.
    free.post("/shorten", json!({"redirect_url": ""})).await.expect(422);
    assert_eq!(usage(&free.post("/shorten", body()).await.expect(200)), ("2".into(), "2".into()));
    let refused = free.post("/shorten", body()).await.expect(403);
    assert_eq!(usage(&refused), ("2".into(), "2".into()));
    let problem = refused.problem("link-quota-exceeded");
    assert_eq!(problem["detail"], "Monthly link creation limit reached");
    assert_eq!((&problem["limit"], &problem["current"]), (&json!(2), &json!(2)));
    assert_eq!(usage(&pro.post("/shorten", body()).await.expect(200)), ("1".into(), "unlimited".into()));
    assert_eq!(usage(&root.post("/shorten", body()).await.expect(200)), (String::new(), String::new()));
}

//! Error answers as such: what they look like, whatever was wrong, and that they come at all.

use reqwest::Method;
use serde_json::json;
use signpost::http::problem::ProblemKind;
use signpost::http::routes;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::raw::Raw;
use crate::support::server::{ROOT_KEY, Server};
use crate::support::stores::{apply, on_each_store};

#[apply(on_each_store)]
async fn a_problem_begins_with_type_title_status_and_detail() {
    let server = Server::start();
    let answer = server.root().post("/shorten", json!({"redirect_url": 1})).await.expect(422);
    assert_eq!(
        answer.text(),
        r#"{"type":"urn:problem-type:signpost:validation","title":"Validation failed","status":422,"#.to_owned()
            + r#""detail":"The request is invalid; see `errors`.","#
            + r#""errors":[{"pointer":"/redirect_url","detail":"must be a string"}]}"#
    );
}

#[test]
fn every_kind_has_its_slug_and_status() {
    let kinds: Vec<(&str, u16)> = ProblemKind::ALL.iter().map(|kind| (kind.slug(), kind.status().as_u16())).collect();
    for kind in [
        ("malformed-body", 400),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("scope-missing", 403),
        ("not-owner", 403),
        ("untracked-link", 403),
        ("link-quota-exceeded", 403),
        ("key-quota-exceeded", 403),
        ("not-found", 404),
        ("method-not-allowed", 405),
        ("slug-taken", 409),
        ("link-expired", 410),
        ("link-blocked", 410),
        ("precondition-failed", 412),
        ("payload-too-large", 413),
        ("unsupported-media-type", 415),
        ("validation", 422),
        ("rate-limited", 429),
        ("internal", 500),
        ("unavailable", 503),
    ] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[apply(on_each_store)]
async fn a_method_that_a_path_does_not_answer_is_405_with_those_that_it_does() {
    let server = Server::start();
    // With a key and without: nobody needs one to be told.
    for client in [server.root(), server.anonymous()] {
        for path in routes::table() {
            let allowed: Vec<Method> = path
                .operations
                .iter()
                .flat_map(|operation| operation.methods)
                .map(|method| method.as_str().parse().unwrap())
                .collect();
            let concrete = path
                .pattern
                .replace("{short_id}", "abcdefg")
                .replace("{key_id}", "0190163d-8694-739b-aea5-966c26f8ad91");
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
                let method: Method = method.parse().unwrap();
                if allowed.contains(&method) {
                    continue;
                }
                let answer = client.send(method.clone(), &concrete, &[], None).await.expect(405);
                let told: Vec<Method> = answer.header("allow").split(", ").map(|name| name.parse().unwrap()).collect();
                assert_eq!(told, allowed, "{method} {concrete}");
                if method != Method::HEAD {
                    answer.problem("method-not-allowed");
                }
            }
        }
    }
}

#[apply(on_each_store)]
async fn paths_that_nothing_answers_are_404() {
    let server = Server::start();
    for path in ["/a/b/c/d", "/links/abcdefg/", "/shorten/x", "/usage/", "/docs/", "/api-keys/a/b", "/abcdefg/qr/x"] {
        for client in [server.root(), server.anonymous()] {
            client.get(path).await.expect(404).problem("not-found");
        }
    }
}

#[apply(on_each_store)]
async fn a_request_id_is_taken_where_it_is_well_formed_and_else_made() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let longest = "x".repeat(64);
    // On every kind of answer: from the edge service, from cache, from a route, from a gate, a validation, no route, no method.
    let long_path = format!("/{link}/qr?scale=99");
    let paths = ["/", &format!("/{link}"), "/zzzzzzz", "/usage", "/nothing/at/all", &long_path, "/shorten"];
    for path in paths {
        let get = async |id: &str| server.anonymous().get_with(path, &[("X-Request-Id", id)]).await;
        for taken in ["a", "A-z_0.9", &longest] {
            assert_eq!(get(taken).await.header("x-request-id"), taken, "{path}");
        }
        let mut made = Vec::new();
        for refused in ["", "a b", "a/b", "ä", "a,b", &format!("{longest}x")] {
            let answer = get(refused).await;
            let id = answer.header("x-request-id").to_owned();
            assert!(id != refused && (1..=64).contains(&id.len()), "{path} {id:?}");
            made.push(id);
        }
        made.push(server.anonymous().get(path).await.header("x-request-id").to_owned());
        made.sort();
        made.dedup();
        assert_eq!(made.len(), 7, "each its own");
    }
}

/// What a key can read.
fn keyed_reads(link: &str) -> [String; 7] {
    [
        "/usage".to_owned(),
        "/api-keys".to_owned(),
        "/api-keys/self".to_owned(),
        format!("/links/{link}"),
        format!("/links/{link}/analytics"),
        format!("/links/{link}/analytics/summary"),
        format!("/{link}/webhooks/status"),
    ]
}

#[apply(on_each_store)]
async fn answers_to_authenticated_requests_are_not_to_be_stored() {
    let server = Server::start();
    let root = server.root();
    let link = root.any_link().await;
    let refused = ["/usage?x=y".to_owned(), "/links/zzzzzzz".to_owned()];
    for path in keyed_reads(&link).into_iter().chain(refused) {
        assert_eq!(root.get(&path).await.header("cache-control"), "no-store", "{path}");
        let refused = server.anonymous().get(&path).await.expect(401);
        assert_eq!(refused.header("cache-control"), "no-store");
        assert!(!refused.header("www-authenticate").is_empty());
        refused.problem("unauthorized");
    }
    let made = root.post("/shorten", json!({"redirect_url": "https://example.com/"})).await.expect(200);
    assert_eq!(made.header("cache-control"), "no-store");
}

#[apply(on_each_store)]
async fn query_parameters_that_nobody_knows_are_told_all_at_once() {
    let server = Server::start();
    let root = server.root();
    let link = root.any_link().await;
    let without_key = ["/openapi.json".to_owned(), format!("/{link}/qr")];
    for path in keyed_reads(&link).into_iter().chain(without_key) {
        let problem = root.get(&format!("{path}?colour=red&%C3%A4=1")).await.expect(422).problem("validation");
        let parameters: Vec<&str> =
            problem["errors"].as_array().unwrap().iter().map(|fault| fault["parameter"].as_str().unwrap()).collect();
        assert_eq!(parameters, ["colour", "ä"], "{path}");
        assert!(problem["errors"][0].get("pointer").is_none());
    }
    for (method, path) in [(Method::POST, "/shorten?dry=1"), (Method::POST, "/api-keys?dry=1")] {
        let problem = root.send(method, path, &[], Some(b"{}".to_vec())).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["parameter"], "dry");
        assert!(problem["errors"][1]["pointer"].is_string(), "the body's faults are told with it: {problem}");
    }
    // Where links are followed, other sites append to them.
    for path in ["/?fbclid=x", "/docs?utm_source=y&utm_source=z"] {
        server.anonymous().get(path).await.expect(200);
    }
    server.anonymous().get(&format!("/{link}?fbclid=x&gclid=%zz")).await.expect(302);
}

#[apply(on_each_store)]
async fn a_panic_is_answered_500_and_the_server_goes_on() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server =
        Server::builder().wrap_store(move |store| std::sync::Arc::new(FaultyStore::new(store, around))).start();
    switch.panics_in(Some("monthly_counts"));
    let answer = server.root().get_with("/usage", &[("X-Request-Id", "find-me")]).await.expect(500);
    let problem = answer.problem("internal");
    assert_eq!(answer.header("x-request-id"), "find-me");
    assert!(!problem.to_string().contains("monthly_counts"), "no internal name: {problem}");
    // Also before the router.
    switch.panics_in(Some("link"));
    let answer = server.anonymous().get_with("/zzzzzzz", &[("X-Request-Id", "find-me-too")]).await.expect(500);
    answer.problem("internal");
    assert_eq!(answer.header("x-request-id"), "find-me-too");
    switch.panics_in(None);
    server.root().get("/usage").await.expect(200);
    server.anonymous().get("/zzzzzzz").await.expect(404);
}

#[apply(on_each_store)]
async fn errors_tell_nothing_of_what_was_asked_or_of_the_inside() {
    let server = Server::start();
    let secret = "sp_thisIsNobodysSecretButItMustNotComeBack";
    for path in ["/usage?key=sekrit", "/links/sekrit", "/sekrit/webhooks/status?limit=sekrit", "/sekrit/sekrit/x/y"] {
        for client in [server.root(), server.with_key(secret)] {
            let answer = client.get(path).await;
            let body = answer.text();
            assert!(answer.status >= 400 && !body.contains("sekrit") && !body.contains(secret), "{path}: {body}");
            assert!(!body.contains("src/") && !body.contains("::"), "{path}: {body}");
        }
    }
    let body = format!("{{\"redirect_url\": \"{ROOT_KEY}\", ");
    let answer = server.root().send(Method::POST, "/shorten", &[], Some(body.into())).await.expect(400);
    assert!(!answer.text().contains(ROOT_KEY));
}

/// The largest body of an error.
const MOST_BYTES: usize = 32 * 1024;

#[tokio::test]
async fn no_error_body_tells_of_more_than_a_hundred_faults_or_is_larger_than_32_kib() {
    let server = Server::start();
    let link = server.root().any_link().await;
    // Many parameters, and names that JSON writes with six bytes for one; without a key, and with one.
    let many = "a&".repeat(30_000);
    let long = format!("{}=1", "%01".repeat(20_000));
    for (path, query, faults) in [
        (format!("/{link}/qr"), &many, 100),
        ("/openapi.json".to_owned(), &many, 100),
        ("/usage".to_owned(), &many, 100),
        (format!("/{link}/qr"), &long, 1),
        ("/shorten".to_owned(), &long, 2),
    ] {
        let (method, body) = if path == "/shorten" { ("POST", "{}") } else { ("GET", "") };
        let request = format!(
            "{method} {path}?{query} HTTP/1.1\r\nHost: x\r\nX-API-Key: {ROOT_KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut raw = Raw::connect(server.address).await;
        raw.send(request.as_bytes()).await;
        let answer = raw.answer().await.unwrap().expect(422);
        assert!(answer.body.len() <= MOST_BYTES, "{path}: {} bytes", answer.body.len());
        assert_eq!(answer.problem("validation")["errors"].as_array().unwrap().len(), faults, "{path}");
    }
    let unknown: Vec<String> = (0..3_000).map(|n| format!("\"{}{n}\":0", "\\u0001".repeat(2))).collect();
    let unknown = format!("{{{}}}", unknown.join(","));
    let zeros = format!("{{\"name\":\"x\",\"scopes\":[{}0]}}", "0,".repeat(30_000));
    let surrogates = format!("{{\"data\":[{}0]}}", "\"\\ud800\",".repeat(6_000));
    let name = format!("{{\"{}\":0}}", "\\u0001".repeat(10_000));
    for (path, body, faults) in [
        ("/shorten", &unknown, 100),
        ("/api-keys", &unknown, 100),
        ("/api-keys", &zeros, 100),
        ("/shorten", &surrogates, 100),
        ("/shorten", &name, 2),
    ] {
        let answer = server.root().send(Method::POST, path, &[], Some(body.clone().into())).await.expect(422);
        assert!(answer.body.len() <= MOST_BYTES, "{path}: {} bytes", answer.body.len());
        assert_eq!(answer.problem("validation")["errors"].as_array().unwrap().len(), faults, "{path}");
    }
}

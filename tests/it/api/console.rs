//! `GET /console`: the page for people and its files.

use std::io::Read;

use flate2::read::GzDecoder;
use reqwest::Method;

use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

#[apply(on_each_store)]
async fn the_console_is_revalidated_and_its_files_are_kept() {
    let server = Server::start();
    let client = server.anonymous();
    let page = client.get("/console?from=mail").await.expect(200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("content-security-policy", POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("vary", "Accept-Encoding"),
        ("content-encoding", ""),
    ] {
        assert_eq!(page.header(name), value, "{name}");
    }
    let etag = page.header("etag").to_owned();
    let again = client.get_with("/console", &[("If-None-Match", &etag)]).await.expect(304);
    assert!(again.body.is_empty() && again.header("content-security-policy") == POLICY);
    client.get_with("/console", &[("If-None-Match", "\"other\"")]).await.expect(200);
    client.send(Method::HEAD, "/console", &[], None).await.expect(200);

    let text = page.text();
    let paths: Vec<&str> = text.split('"').filter(|part| part.starts_with("console/")).collect();
    assert!(paths.len() > 5, "{text}");
    for path in paths {
        let plain = client.get(&format!("/{path}")).await.expect(200);
        assert_eq!(plain.header("cache-control"), "public, max-age=31536000, immutable", "{path}");
        assert_eq!(plain.header("x-content-type-options"), "nosniff", "{path}");
        let zipped = client.get_with(&format!("/{path}"), &[("Accept-Encoding", "br, gzip;q=0.8")]).await.expect(200);
        assert_eq!(zipped.header("content-encoding"), "gzip", "{path}");
        let mut unzipped = Vec::new();
        GzDecoder::new(&zipped.body[..]).read_to_end(&mut unzipped).unwrap();
        assert!(unzipped == plain.body, "{path}");
        let refused = client.get_with(&format!("/{path}"), &[("Accept-Encoding", "gzip;q=0")]).await.expect(200);
        assert_eq!(refused.header("content-encoding"), "", "{path}");
    }
}

#[apply(on_each_store)]
async fn other_paths_below_the_console_lead_nowhere() {
    let server = Server::start();
    let client = server.anonymous();
    let slash = client.get("/console/").await.expect(308);
    assert_eq!(slash.header("location"), "../console");
    for path in ["/console/x", "/console/0123456789abcdef/main.js", "/console/../usage/x", "/console/a/b/c"] {
        client.get(path).await.expect(404).problem("not-found");
    }
    client.post("/console", serde_json::json!({})).await.expect(405).problem("method-not-allowed");
}

#[apply(on_each_store)]
async fn a_console_that_is_turned_off_is_not_there() {
    let server = Server::builder().set("SIGNPOST_CONSOLE__ENABLED", "false").start();
    let client = server.anonymous();
    for path in ["/console", "/console/", "/console/0123456789abcdef/main.js"] {
        client.get(path).await.expect(404).problem("not-found");
    }
}

//! Pages for people: errors of redirects, previews, fallbacks, `robots.txt` and the icon.

use std::fs;
use std::sync::Arc;

use serde_json::json;
use signpost::app;
use signpost::clock::Clock;
use signpost::config::Config;
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tempfile::TempDir;

use crate::support::client::Answer;
use crate::support::picture::read_back;
use crate::support::raw::Raw;
use crate::support::server::{Server, count};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

async fn get_as(server: &Server, path: &str, accept: &str) -> Answer {
    server.anonymous().get_with(path, &[("Accept", accept)]).await
}

/// Checks what every page has, and answers its text.
#[track_caller]
fn page(answer: &Answer, status: u16) -> String {
    assert_eq!((answer.status, answer.header("content-type")), (status, "text/html; charset=utf-8"), "{answer:?}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-robots-tag", "noindex"),
        ("vary", "Accept"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("script"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = answer.text();
    for forbidden in ["<script", "javascript:", "@import", "url(", " style=", "<link"] {
        assert!(!text.contains(forbidden), "{forbidden} in {text}");
    }
    text
}

#[track_caller]
fn problem(answer: &Answer, status: u16, slug: &str) {
    assert_eq!((answer.status, answer.header("content-type")), (status, "application/problem+json"), "{answer:?}");
    assert_eq!((answer.header("vary"), answer.header("x-robots-tag")), ("Accept", "noindex"));
    answer.problem(slug);
}

#[apply(on_each_store)]
async fn a_browser_at_a_link_that_leads_nowhere_gets_a_page_and_a_program_the_problem() {
    let server = Server::start();
    for path in ["/zzzzzzz", "/zzzzzzz?fbclid=x", "/no-id", "/%3Cscript%3E", "/zzzzzzz+"] {
        let text = page(&get_as(&server, path, BROWSER).await, 404);
        assert!(text.contains("<h1>Link not found</h1>") && text.contains("<html lang=\"en\">"), "{text}");
        for accept in ["*/*", "application/json", "text/html;q=0.5, application/json;q=0.6", "text/html;q=0", "x;q=2"] {
            problem(&get_as(&server, path, accept).await, 404, "not-found");
        }
        problem(&server.anonymous().get(path).await, 404, "not-found");
        let head = server.anonymous().send(reqwest::Method::HEAD, path, &[("Accept", BROWSER)], None).await;
        page(&head, 404);
        assert_eq!(head.header("content-length"), text.len().to_string());
        assert!(head.body.is_empty());
    }
    // Not of the API, nor of other paths.
    for path in ["/links/zzzzzzz", "/usage", "/a/b", "/zzzzzzz/qr"] {
        let answer = get_as(&server, path, BROWSER).await;
        assert_eq!((answer.header("content-type"), answer.header("vary")), ("application/problem+json", ""), "{path}");
    }
}

#[apply(on_each_store)]
async fn a_browser_over_its_limit_is_told_when_to_come_again() {
    let server = Server::builder()
        .clock(Clock::standing_at(Timestamp(1_795_247_382_028)))
        .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "3")
        .start();
    let id = server.root().any_link().await;
    // Previews and errors count like redirects.
    get_as(&server, &format!("/{id}"), BROWSER).await.expect(302);
    get_as(&server, &format!("/{id}+"), BROWSER).await.expect(200);
    get_as(&server, "/zzzzzzz+", "*/*").await.expect(404);
    for path in [format!("/{id}"), format!("/{id}+"), "/no-id".into()] {
        let answer = get_as(&server, &path, BROWSER).await;
        let text = page(&answer, 429);
        let seconds: u32 = answer.header("retry-after").parse().unwrap();
        assert!(text.contains(&format!("Try again in {seconds} s.")), "{text}");
        problem(&get_as(&server, &path, "*/*").await, 429, "rate-limited");
    }
    let metrics = server.metrics().await;
    for (name, expected) in [
        ("signpost_requests_limited_total{limit=\"redirect\"}", 6),
        ("signpost_redirects_total{outcome=\"limited\"}", 4),
        ("signpost_http_requests_total{route=\"/{short_id}+\",status=\"4xx\"}", 3),
        ("signpost_http_requests_total{route=\"/{short_id}+\",status=\"2xx\"}", 1),
        ("signpost_http_requests_total{route=\"/{short_id}\",status=\"4xx\"}", 4),
    ] {
        assert_eq!(count(&metrics, name), expected, "{name}");
    }
}

#[apply(on_each_store)]
async fn a_browser_is_told_that_a_link_can_not_be_looked_up_now() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = Server::builder().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let id = server.root().any_link().await;
    switch.out_of_reach(true);
    for path in ["/zzzzzzz", "/zzzzzzz+"] {
        let answer = get_as(&server, path, BROWSER).await;
        assert!(page(&answer, 503).contains("<h1>Temporarily unavailable</h1>"));
        assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
        problem(&get_as(&server, path, "*/*").await, 503, "unavailable");
    }
    // From the cache.
    get_as(&server, &format!("/{id}+"), BROWSER).await.expect(200);
}

#[tokio::test]
async fn a_browser_gets_a_page_also_after_a_panic() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    for log in ["false", "true"] {
        let around = around.clone();
        let server = Server::builder()
            .set("SIGNPOST_LOG__REQUESTS", log)
            .wrap_store(move |store| Arc::new(FaultyStore::new(store, around)))
            .start();
        switch.panics_in(Some("link"));
        assert!(page(&get_as(&server, "/zzzzzzz", BROWSER).await, 500).contains("<h1>Internal error</h1>"));
        problem(&get_as(&server, "/zzzzzzz", "*/*").await, 500, "internal");
        switch.panics_in(None);
    }
}

#[apply(on_each_store)]
async fn a_preview_shows_where_a_link_leads_and_is_no_hit() {
    let server = Server::builder().set("SIGNPOST_HTTP__BASE_URL", "https://sign.example/at").start();
    let root = server.root();
    let target = "https://example.com/a?b=<i>&c='d'\"</p>";
    let id = root.shorten(json!({"redirect_url": target})).await;
    let short_url = format!("https://sign.example/at/{id}");
    let text = page(&get_as(&server, &format!("/{id}+?fbclid=x"), BROWSER).await, 200);
    let escaped = "https://example.com/a?b=&lt;i&gt;&amp;c=&#39;d&#39;&quot;&lt;/p&gt;";
    assert!(text.contains(&format!("<bdi dir=\"ltr\">{escaped}</bdi>")), "{text}");
    assert!(text.contains(&format!("<title>{short_url}</title>")), "{text}");
    assert!(text.contains(&format!("<a href=\"{short_url}\"")) && !text.contains("<i>"), "{text}");
    let svg = &text[text.find("<svg").unwrap()..text.find("</svg>").unwrap() + 6];
    assert_eq!(read_back("image/svg+xml", svg.as_bytes()).unwrap().text, short_url);

    let expected = json!({"short_id": id, "short_url": short_url, "redirect_url": target, "title": null});
    for accept in ["application/json", "*/*", "text/html;q=0.1, application/json"] {
        let answer = get_as(&server, &format!("/{id}+"), accept).await.expect(200);
        assert_eq!(answer.json(), expected);
        for (name, value) in [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("vary", "Accept"),
            ("x-robots-tag", "noindex"),
        ] {
            assert_eq!(answer.header(name), value);
        }
    }
    let head = server.anonymous().send(reqwest::Method::HEAD, &format!("/{id}+"), &[("Accept", BROWSER)], None).await;
    assert!(page(&head, 200).is_empty());
    assert_eq!(head.header("content-length"), text.len().to_string());
    for path in ["/+", "/no-id+", "/eightchr+", "/zzzzzzz+", &format!("/{id}++"), &format!("/{id}+1")] {
        problem(&get_as(&server, path, "*/*").await, 404, "not-found");
    }
    let refused = server.anonymous().post(&format!("/{id}+"), json!({})).await.expect(405);
    assert_eq!(refused.header("allow"), "GET, HEAD");

    // What comes into the journal after them is counted after them.
    server.click(&id, 1).await;
    eventually("the hit is counted", SOON, async || {
        let record = root.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json();
        (record["total_hits"] == 1).then_some(())
    })
    .await;
    assert_eq!(count(&server.metrics().await, "signpost_journal_hits_appended_total"), 1);
}

fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

#[apply(on_each_store)]
async fn pages_of_the_operator_replace_the_services_own_and_escape_what_they_show() {
    let pages = directory(&[
        ("not-found.html", b"<style>p { color: red }</style>\n<p title='{{title}}'>{{short_url}}|{{target}}</p>"),
        ("preview.html", "\u{feff}<a href=\"{{ target }}\">\u{fc} {{title}}</a> {{short_url}}".as_bytes()),
    ]);
    let server = Server::builder()
        .set("SIGNPOST_PAGES__DIRECTORY", pages.path().to_str().unwrap())
        .set("SIGNPOST_HTTP__BASE_URL", "https://sign.example")
        .start();
    let id = server.root().shorten(json!({"redirect_url": "https://example.com/\"><script>alert(1)</script>"})).await;
    let text = page(&get_as(&server, &format!("/{id}+"), BROWSER).await, 200);
    let expected = format!(
        "<a href=\"https://example.com/&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\">\u{fc} https://sign.example/{id}</a> \
         https://sign.example/{id}"
    );
    assert_eq!(text, expected);
    for name in ["zzzzzzz", "no-id", "a'b&c", "%3Cscript%3E"] {
        let answer = get_as(&server, &format!("/{name}"), BROWSER).await;
        assert!(answer.header("content-security-policy").contains("style-src 'sha256-"), "{answer:?}");
        let shown = format!("https://sign.example/{}", name.replace('&', "&amp;").replace('\'', "&#39;"));
        let expected = format!("<style>p {{ color: red }}</style>\n<p title='{shown}'>{shown}|</p>");
        assert_eq!(page(&answer, 404), expected);
    }
    // Bytes that clients of libraries would not send.
    let hostile = "GET /\"><script>alert(1)</script> HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n";
    for answer in Raw::exchange(server.address, hostile.as_bytes()).await {
        assert!([400, 404].contains(&answer.status) && !answer.text().contains("<script"), "{answer:?}");
    }
    // Those that are not there are the service's own.
    let own = directory(&[]);
    let server = Server::builder().set("SIGNPOST_PAGES__DIRECTORY", own.path().to_str().unwrap()).start();
    assert!(page(&get_as(&server, "/zzzzzzz", BROWSER).await, 404).contains("<h1>Link not found</h1>"));
}

/// The line of a start that is refused. `check-config` refuses the same.
#[track_caller]
fn refusal(settings: &[(&str, &str)]) -> String {
    let builder = settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(name, value));
    let line = builder.try_start().err().expect("the start is refused");
    let elsewhere = tempfile::tempdir().unwrap();
    let variables = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let checked = match Config::load(None, variables, elsewhere.path()) {
        Ok(config) => app::check(&config).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    assert_eq!(checked.as_ref(), Some(&line));
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[tokio::test]
async fn a_page_that_can_not_be_used_stops_the_start_with_its_name_and_cause() {
    const ORIGIN: &str = "(from environment SIGNPOST_PAGES__DIRECTORY)";
    let large = vec![b'x'; 256 * 1024 + 1];
    for (name, bytes, cause) in [
        (
            "not-found.html",
            &b"a\n<p>{{titel}}"[..],
            "line 2: unknown placeholder \"titel\"; known are {{title}}, {{target}} and {{short_url}}",
        ),
        ("gone.html", b"{{title", "line 1: a placeholder begins with {{ and does not end with }}"),
        ("blocked.html", b"<style>{{title}}", "line 1: a placeholder can't stand in a style element"),
        ("preview.html", b"\xff", "is not UTF-8"),
        ("gone.html", &large, "can't be read: larger than 262144 bytes"),
    ] {
        let pages = directory(&[(name, bytes)]);
        let line = refusal(&[("SIGNPOST_PAGES__DIRECTORY", pages.path().to_str().unwrap())]);
        assert_eq!(line, format!("pages.directory: {name}: {cause} {ORIGIN}"));
    }
    let pages = directory(&[]);
    fs::create_dir(pages.path().join("gone.html")).unwrap();
    let line = refusal(&[("SIGNPOST_PAGES__DIRECTORY", pages.path().to_str().unwrap())]);
    assert!(line.starts_with("pages.directory: gone.html: can't be read: "), "{line}");
    let line = refusal(&[("SIGNPOST_PAGES__DIRECTORY", "/no/such/directory")]);
    assert_eq!(line, format!("pages.directory: \"/no/such/directory\" is not an existing directory {ORIGIN}"));

    let file = pages.path().join("robots.txt");
    let robots = ("SIGNPOST_PAGES__ROBOTS", file.to_str().unwrap());
    assert!(refusal(&[robots]).contains("is not an existing file"));
    fs::write(&file, vec![b'#'; 500 * 1024 + 1]).unwrap();
    assert_eq!(
        refusal(&[robots]),
        "pages.robots: can't be read: larger than 512000 bytes (from environment SIGNPOST_PAGES__ROBOTS)"
    );
}

#[apply(on_each_store)]
async fn unknown_links_lead_to_their_fallback_and_are_no_hits() {
    let server = Server::builder().set("SIGNPOST_FALLBACKS__NOT_FOUND", "https://b\u{fc}cher.example/lost?x=1").start();
    let id = server.root().any_link().await;
    for accept in [BROWSER, "*/*"] {
        for path in ["/zzzzzzz", "/zzzzzzz?a=b", "/no-id", "/%3Cscript%3E"] {
            for method in [reqwest::Method::GET, reqwest::Method::HEAD] {
                let answer = server.anonymous().send(method, path, &[("Accept", accept)], None).await.expect(302);
                for (name, value) in [
                    ("location", "https://xn--bcher-kva.example/lost?x=1"),
                    ("cache-control", "no-store"),
                    ("x-robots-tag", "noindex"),
                    ("content-length", "0"),
                ] {
                    assert_eq!(answer.header(name), value, "{path}");
                }
            }
        }
        // Of links alone.
        for path in ["/zzzzzzz+", "/zzzzzzz/qr", "/zzzzzzz/webhooks/status", "/a/b"] {
            assert!([401, 404].contains(&get_as(&server, path, accept).await.status), "{path}");
        }
    }
    let known = get_as(&server, &format!("/{id}"), BROWSER).await.expect(302);
    assert_eq!(
        (known.header("location"), known.header("cache-control")),
        ("https://example.com/", "private, no-store")
    );
    let metrics = server.metrics().await;
    for (name, expected) in [
        ("signpost_journal_hits_appended_total", 1),
        ("signpost_redirects_total{outcome=\"found\"}", 1),
        ("signpost_redirects_total{outcome=\"not_found\"}", 12),
        ("signpost_http_requests_total{route=\"/{short_id}\",status=\"3xx\"}", 17),
        ("signpost_http_requests_total{route=\"/{short_id}\",status=\"4xx\"}", 0),
    ] {
        assert_eq!(count(&metrics, name), expected, "{name}");
    }
}

#[apply(on_each_store)]
async fn the_root_is_the_health_answer_but_for_browsers_where_a_fallback_is_set() {
    let server = Server::builder().set("SIGNPOST_FALLBACKS__ROOT", "https://example.com/home").start();
    for path in ["/", "/?utm_source=x"] {
        let answer = get_as(&server, path, BROWSER).await.expect(302);
        for (name, value) in [
            ("location", "https://example.com/home"),
            ("cache-control", "no-store"),
            ("vary", "Accept"),
            ("x-robots-tag", "noindex"),
        ] {
            assert_eq!(answer.header(name), value);
        }
        for accept in ["*/*", "application/json", "text/html, */*"] {
            let answer = get_as(&server, path, accept).await.expect(200);
            assert_eq!((&answer.json()["status"], answer.header("vary")), (&json!("ok"), "Accept"));
        }
    }
    let server = Server::start();
    let answer = get_as(&server, "/", BROWSER).await.expect(200);
    assert_eq!((&answer.json()["status"], answer.header("vary")), (&json!("ok"), ""));
}

#[tokio::test]
async fn a_fallback_that_no_link_could_have_as_its_target_stops_the_start() {
    for (url, cause) in [
        ("example.com", "must be an absolute http or https URL with a host"),
        ("javascript:alert(1)", "must be an absolute http or https URL with a host"),
        ("https://example.com/ x", "must not contain control characters or white space"),
        ("https://sign.example/x", "must not point at this service itself"),
    ] {
        for setting in ["root", "not_found"] {
            let variable = format!("SIGNPOST_FALLBACKS__{}", setting.to_uppercase());
            let line = refusal(&[("SIGNPOST_HTTP__BASE_URL", "https://sign.example"), (&variable, url)]);
            assert_eq!(line, format!("fallbacks.{setting}: {cause} (from environment {variable})"));
        }
    }
}

#[apply(on_each_store)]
async fn crawlers_get_rules_and_browsers_an_icon() {
    let server = Server::start();
    let answer = server.anonymous().get("/robots.txt?x").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(answer.header("cache-control"), "public, max-age=86400");
    assert_eq!(
        answer.text(),
        "User-agent: *\nAllow: /\n\
         Disallow: /analytics$\nDisallow: /analytics/\n\
         Disallow: /api-keys$\nDisallow: /api-keys/\nDisallow: /exports$\nDisallow: /exports/\n\
         Disallow: /hits$\nDisallow: /hits/\nDisallow: /links$\nDisallow: /links/\n\
         Disallow: /shorten$\nDisallow: /shorten/\nDisallow: /usage$\nDisallow: /usage/\n"
    );
    let icon = server.anonymous().get("/favicon.ico").await.expect(200);
    assert_eq!((icon.header("content-type"), icon.header("cache-control")), ("image/x-icon", "public, max-age=86400"));
    assert!(icon.body.starts_with(b"\0\0\x01\0\x01\0") && icon.body.len() < 1_000);
    for path in ["/robots.txt", "/favicon.ico"] {
        let head = server.anonymous().head(path).await.expect(200);
        assert!(head.body.is_empty() && head.header("content-length") != "0");
        assert_eq!(server.anonymous().post(path, json!({})).await.expect(405).header("allow"), "GET, HEAD");
    }

    let own = directory(&[("rules.txt", b"User-agent: *\nDisallow: /\n")]);
    let path = own.path().join("rules.txt");
    let server = Server::builder().set("SIGNPOST_PAGES__ROBOTS", path.to_str().unwrap()).start();
    assert_eq!(server.anonymous().get("/robots.txt").await.expect(200).text(), "User-agent: *\nDisallow: /\n");
}

#[apply(on_each_store)]
async fn redirects_pages_and_errors_are_not_for_search_engines_unless_the_operator_wants_it() {
    for noindex in [true, false] {
        let server = Server::builder().set("SIGNPOST_REDIRECT__NOINDEX", &noindex.to_string()).start();
        let root = server.root();
        let id = root.any_link().await;
        let expected = if noindex { "noindex" } else { "" };
        for (path, status) in [
            (format!("/{id}"), 302),
            (format!("/%{:02x}{}", id.as_bytes()[0], &id[1..]), 302),
            (format!("/{id}+"), 200),
            ("/zzzzzzz".into(), 404),
            ("/zzzzzzz+".into(), 404),
            ("/no-id".into(), 404),
            ("/a/b".into(), 404),
            ("/shorten".into(), 405),
            ("/docs".into(), 200),
            ("/openapi.json?x".into(), 422),
        ] {
            for accept in ["*/*", BROWSER] {
                let answer = get_as(&server, &path, accept).await.expect(status);
                assert_eq!(answer.header("x-robots-tag"), expected, "{path}");
            }
        }
        for request in ["garbage\r\n\r\n", "GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n"] {
            let answers = Raw::exchange(server.address, request.as_bytes()).await;
            assert_eq!((answers[0].status, answers[0].header("x-robots-tag")), (400, expected), "{request}");
        }
        for path in ["/", "/openapi.json", "/robots.txt", "/favicon.ico", "/usage", &format!("/{id}/qr")] {
            assert_eq!(root.get(path).await.expect(200).header("x-robots-tag"), "", "{path}");
        }
        // The operator's listener is not public.
        assert_eq!(server.operator().get("/nothing").await.header("x-robots-tag"), "");
    }
}

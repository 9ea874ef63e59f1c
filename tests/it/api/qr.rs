//! `GET /{short_id}/qr`. Images are read back by the client that gets them; what they look like in every option is tested at
//! the renderer.

use std::sync::Arc;

use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::picture::Code;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

#[apply(on_each_store)]
async fn the_code_of_a_link_is_its_short_url_as_a_png_of_scale_5() {
    let server = Server::builder().set("SIGNPOST_HTTP__BASE_URL", "https://go.example/s").start();
    let id = server.root().any_link().await;
    let answer = server.anonymous().get(&format!("/{id}/qr")).await.expect(200);
    assert_eq!(answer.header("content-type"), "image/png");
    assert_eq!(answer.header("cache-control"), "public, max-age=86400");
    let Code { side, text } = answer.code.clone().unwrap();
    assert_eq!(text, format!("https://go.example/s/{id}"));
    // 28 bytes at level M are a symbol of version 3: 29 modules and a quiet zone of 4 on either side.
    assert_eq!(side, (29 + 8) * 5);
    let defaults = "format=png&scale=5&dark=%23000000&light=%23FFFFFF";
    let same = server.anonymous().get(&format!("/{id}/qr?{defaults}")).await.expect(200);
    assert_eq!((&same.body, same.header("etag")), (&answer.body, answer.header("etag")));
}

#[apply(on_each_store)]
async fn every_option_is_taken_in_every_notation() {
    let server = Server::start();
    let id = server.root().any_link().await;
    let short_url = format!("http://{}/{id}", server.address);
    for scale in [1, 20] {
        let png = server.anonymous().get(&format!("/{id}/qr?scale={scale}")).await.expect(200);
        let svg = server.anonymous().get(&format!("/{id}/qr?scale={scale}&format=svg")).await.expect(200);
        assert_eq!(svg.header("content-type"), "image/svg+xml");
        assert!(svg.code.is_some() && svg.code == png.code, "{svg:?} {png:?}");
        assert_eq!(png.code.unwrap().text, short_url);
    }
    for colours in [
        "dark=123",
        "dark=%23123",
        "dark=102030&light=fFeEdD",
        "dark=cmyk(0,100,100,0)",
        "dark=0,100,100,0&light=cmyk(0,0,20,0)",
        "light=transparent",
        "dark=%23000080&light=transparent",
    ] {
        let png = server.anonymous().get(&format!("/{id}/qr?{colours}")).await.expect(200);
        assert_eq!(png.code.unwrap().text, short_url, "{colours}");
        let svg = server.anonymous().get(&format!("/{id}/qr?format=svg&{colours}")).await.expect(200);
        assert_eq!(svg.code.unwrap().text, short_url, "{colours}");
    }
}

#[apply(on_each_store)]
async fn bad_options_are_told_by_parameter_and_all_at_once() {
    let server = Server::start();
    let id = server.root().any_link().await;
    let faults = async |query: &str| -> Vec<String> {
        let answer = server.anonymous().get(&format!("/{id}/qr?{query}")).await;
        assert_eq!(answer.status, 422, "{query}");
        let problem = answer.problem("validation");
        let errors = problem["errors"].as_array().unwrap();
        errors.iter().map(|fault| fault["parameter"].as_str().unwrap().to_owned()).collect()
    };
    for (query, parameter) in [
        ("format=gif", "format"),
        ("format=PNG", "format"),
        ("format=", "format"),
        ("scale=0", "scale"),
        ("scale=21", "scale"),
        ("scale=-1", "scale"),
        ("scale=5.0", "scale"),
        ("scale=%2B5", "scale"),
        ("scale=99999999999999999999", "scale"),
        ("dark=red", "dark"),
        ("dark=%2312345", "dark"),
        ("dark=transparent", "dark"),
        ("dark=cmyk(0,0,0,101)", "dark"),
        ("dark=0,0,0", "dark"),
        ("light=%23ggg", "light"),
        ("light=none", "light"),
        // Nobody could read it.
        ("dark=fff&light=fff", "light"),
        ("size=5", "size"),
        ("scale=5&scale=6", "scale"),
    ] {
        assert_eq!(faults(query).await, [parameter], "{query}");
    }
    let mut told = faults("format=gif&scale=99&dark=red&light=blue&colour=x").await;
    told.sort();
    assert_eq!(told, ["colour", "dark", "format", "light", "scale"]);
}

#[apply(on_each_store)]
async fn a_code_is_only_for_links_that_are_there() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = Server::builder().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let id = server.root().any_link().await;
    for unknown in ["zzzzzzz", "short", "favicon.ico", "%ff"] {
        server.anonymous().get(&format!("/{unknown}/qr")).await.expect(404).problem("not-found");
    }
    switch.out_of_reach(true);
    server.anonymous().get(&format!("/{id}/qr")).await.expect(200);
    server.anonymous().get("/short/qr").await.expect(404);
    let unavailable = server.anonymous().get("/yyyyyyy/qr").await.expect(503);
    unavailable.problem("unavailable");
    assert!(!unavailable.header("retry-after").is_empty());
}

#[apply(on_each_store)]
async fn an_image_that_the_client_has_is_answered_304() {
    let server = Server::start();
    let id = server.root().any_link().await;
    let path = format!("/{id}/qr");
    let etag = server.anonymous().get(&path).await.expect(200).header("etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
    let conditional =
        async |path: &str, tags: &str| server.anonymous().get_with(path, &[("If-None-Match", tags)]).await;
    for tags in [&etag, &format!("W/{etag}"), &format!("\"other\", {etag}"), "*"] {
        let answer = conditional(&path, tags).await.expect(304);
        assert!(answer.body.is_empty());
        assert_eq!((answer.header("etag"), answer.header("cache-control")), (&*etag, "public, max-age=86400"));
    }
    for tags in ["\"other\"", "", etag.trim_matches('"')] {
        conditional(&path, tags).await.expect(200);
    }
    // Every other image has another tag, and another link's too.
    let other = server.root().any_link().await;
    for path in
        [format!("{path}?scale=6"), format!("{path}?format=svg"), format!("{path}?dark=111"), format!("/{other}/qr")]
    {
        conditional(&path, &etag).await.expect(200);
    }
    // There is no image of what is not there.
    conditional("/zzzzzzz/qr", "*").await.expect(404);
}

#[apply(on_each_store)]
async fn head_answers_as_get_does_without_the_image() {
    let server = Server::start();
    let path = format!("/{}/qr", server.root().any_link().await);
    let (got, head) =
        (server.anonymous().get(&path).await.expect(200), server.anonymous().head(&path).await.expect(200));
    for name in ["etag", "content-type", "content-length", "cache-control"] {
        assert_eq!(head.header(name), got.header(name), "{name}");
    }
}

#[apply(on_each_store)]
async fn a_code_is_no_hit() {
    let server = Server::start();
    let root = server.root();
    let (id, probe) = (root.any_link().await, root.any_link().await);
    server.anonymous().get(&format!("/{id}/qr")).await.expect(200);
    server.anonymous().get(&format!("/{probe}")).await.expect(302);
    crate::support::eventually("the hit of the other link", crate::support::SOON, async || {
        let usage = root.get("/usage").await.expect(200).json();
        (usage["usage"]["hits_served"]["current"] == 1).then_some(())
    })
    .await;
    assert_eq!(root.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json()["total_hits"], 0);
}

#[apply(on_each_store)]
async fn codes_have_a_limit_of_their_own_of_60_a_client() {
    let server = Server::builder()
        .clock(Clock::standing_at(Timestamp(1_795_247_382_028)))
        .unset("SIGNPOST_LIMITS__QR_PER_MINUTE")
        .unset("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE")
        .set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    let id = server.root().any_link().await;
    let get = async |path: &str, client: &str| server.anonymous().get_with(path, &[("X-Forwarded-For", client)]).await;
    let path = format!("/{id}/qr?format=svg");
    for n in 0..60 {
        // Bad options and unknown links count too.
        let (path, status) = match n {
            0 => (format!("/{id}/qr?scale=0"), 422),
            1 => ("/zzzzzzz/qr".into(), 404),
            _ => (path.clone(), 200),
        };
        get(&path, "192.0.2.1").await.expect(status);
    }
    let refused = get(&path, "192.0.2.1").await.expect(429);
    refused.problem("rate-limited");
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    get(&path, "192.0.2.2").await.expect(200);
    get(&format!("/{id}"), "192.0.2.1").await.expect(302);
    server.clock.advance(std::time::Duration::from_secs(seconds - 1));
    get(&path, "192.0.2.1").await.expect(429);
    server.clock.advance(std::time::Duration::from_secs(1));
    get(&path, "192.0.2.1").await.expect(200);
}

//! Clients that follow a link while it is changed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::json;

use crate::support::links::changing;
use crate::support::raw::Raw;

const CLIENTS: usize = 64;
const CHANGES: u32 = 1_000;

fn target(number: u32) -> String {
    format!("https://example.com/{number}")
}

fn number_of(location: &str) -> u32 {
    location.strip_prefix("https://example.com/").unwrap().parse().unwrap()
}

/// A request that is sent after the answer of a change, or after another client's answer, gets that target or a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_gets_an_old_target_after_the_answer_of_a_change() {
    let server = changing().set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "0").start();
    let root = server.root();
    let name = root.shorten(json!({"redirect_url": target(0), "slug": "summer"})).await;
    let (answered, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let follow = async || {
        let mut raw = Raw::connect(server.address).await;
        let (mut asked, request) = (0_u64, format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        while !is_over.load(Ordering::SeqCst) {
            let before = answered.load(Ordering::SeqCst);
            raw.send(request.as_bytes()).await;
            let answer = raw.answer().await.unwrap().expect(302);
            let number = number_of(answer.header("location"));
            assert!(number >= before, "{number} after {before}");
            answered.fetch_max(number, Ordering::SeqCst);
            asked += 1;
        }
        asked
    };
    let clients = futures_util::future::join_all((0..CLIENTS).map(|_| follow()));
    let edit = async {
        for number in 1..=CHANGES {
            root.patch_link(&name, json!({"redirect_url": target(number)})).await.expect(200);
            answered.fetch_max(number, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    };
    let (asked, ()) = tokio::join!(clients, edit);
    assert!(asked.iter().all(|asked| *asked > 10), "{asked:?}");
    assert_eq!(number_of(server.anonymous().get(&format!("/{name}")).await.header("location")), CHANGES);
}

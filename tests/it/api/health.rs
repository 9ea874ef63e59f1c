//! `GET /` and the operator's listener.

use reqwest::Method;

use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

/// Waits until it is: while the store is slow to say that it is there, it need not be.
async fn ready(server: &Server) {
    let operator = server.operator();
    eventually("a ready server", SOON, async || (operator.get("/readyz").await.status == 200).then_some(())).await;
}

#[apply(on_each_store)]
async fn the_health_check_answers_whatever_the_query() {
    let server = Server::start();
    let answer = server.anonymous().get("/?fbclid=x").await.expect(200);
    assert_eq!(
        answer.text(),
        format!(r#"{{"status":"ok","service":"signpost","version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
    );
    ready(&server).await;
    server.operator().get("/livez").await.expect(200);
}

#[apply(on_each_store)]
async fn the_operators_paths_answer_other_methods_405_and_every_answer_has_an_id() {
    let server = Server::start();
    ready(&server).await;
    let operator = server.operator();
    let sent = [("X-Request-Id", "an-id-of-the-operator")];
    for path in ["/metrics", "/livez", "/readyz"] {
        for (method, status) in [("GET", 200), ("HEAD", 200), ("POST", 405), ("PUT", 405), ("DELETE", 405)] {
            let method: Method = method.parse().unwrap();
            let answer = operator.send(method.clone(), path, &sent, None).await.expect(status);
            assert_eq!(answer.header("x-request-id"), "an-id-of-the-operator", "{method} {path}");
            assert_eq!(answer.body.is_empty(), method == Method::HEAD, "{method} {path}");
            if status == 405 {
                assert_eq!(answer.header("allow"), "GET, HEAD", "{method} {path}");
                answer.problem("method-not-allowed");
            }
        }
    }
    let answer = operator.get("/shorten").await.expect(404);
    assert!(answer.problem("not-found")["detail"].as_str().unwrap().contains("/metrics"));
    assert!(!answer.header("x-request-id").is_empty());
}

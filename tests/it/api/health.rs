//! `GET /` and the operator's listener.

use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

#[apply(on_each_store)]
async fn the_health_check_answers_whatever_the_query() {
    let server = Server::start();
    let answer = server.anonymous().get("/?fbclid=x").await.expect(200);
    assert_eq!(
        answer.text(),
        format!(r#"{{"status":"ok","service":"signpost","version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
    );
    server.operator().get("/readyz").await.expect(200);
    server.operator().get("/livez").await.expect(200);
}

//! The engine reports trouble through the `log` crate; it has to end up in the service's log.

use std::process::{Command, Stdio};

use super::Embedded;
use super::conformance::Ground;

#[tokio::test]
async fn what_the_engine_reports_is_in_the_log() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    std::fs::rename(made_store().await.path(), &store).unwrap();
    std::fs::write(store.join("no-number.jnl"), "").unwrap();
    for format in ["text", "json"] {
        let run = Command::new(env!("CARGO_BIN_EXE_signpost"))
            .current_dir(data.path())
            .env("SIGNPOST_DATA_DIR", data.path())
            .env("SIGNPOST_HTTP__LISTEN", "127.0.0.1:0")
            .env("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:0")
            .env("SIGNPOST_LOG__FORMAT", format)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let log = String::from_utf8(run.stderr).unwrap();
        assert!(!run.status.success(), "{log}");
        let line = log.lines().find(|line| line.contains("Invalid journal file name: no-number.jnl"));
        assert!(line.is_some_and(|line| line.contains("ERROR") && line.contains("fjall")), "{log}");
    }
}

async fn made_store() -> Embedded {
    use signpost::store::Lifecycle;
    let ground = Embedded::fresh().await;
    ground.open_here().close().await;
    ground
}

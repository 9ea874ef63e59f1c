//! The operator's list of hosts that no link may lead to.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::eventually;
use crate::support::links::{TARGET, changing, faults};
use crate::support::stores::{apply, on_each_store};

/// A change of the list is in force within this time.
const IN_FORCE: Duration = Duration::from_secs(5);

/// As an editor saves a file.
fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[apply(on_each_store)]
async fn no_link_is_made_or_changed_to_lead_to_a_blocked_host() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hosts");
    write(&file, "# phishing\nevil.example\n");
    let server = changing().set("SIGNPOST_ABUSE__BLOCKED_HOSTS", file.to_str().unwrap()).start();
    let root = server.root();
    let (evil, below) = ("https://evil.example/", "https://a.EVIL.example./?x");
    let both = ["/fallback_url", "/redirect_url"];
    let body = json!({"redirect_url": evil, "fallback_url": below});
    assert_eq!(faults(root.post("/shorten", body.clone()).await), both);
    assert_eq!(faults(root.put_link("summer", body.clone()).await), both);
    let id = root.any_link().await;
    assert_eq!(faults(root.patch_link(&id, body.clone()).await), both);
    assert_eq!(faults(root.put_link(&id, body).await), both);
    root.patch_link(&id, json!({"redirect_url": "https://notevil.example/"})).await.expect(200);
}

#[apply(on_each_store)]
async fn links_that_are_there_follow_the_list_within_5_s() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hosts");
    write(&file, "");
    let server = changing().set("SIGNPOST_ABUSE__BLOCKED_HOSTS", file.to_str().unwrap()).start();
    let (root, anyone) = (server.root(), server.anonymous());
    let id = root.shorten(json!({"redirect_url": "https://a.evil.example/"})).await;
    let other = root.any_link().await;
    let has_status = async |status: u16| {
        eventually("the list is in force", IN_FORCE, async || {
            (anyone.get(&format!("/{id}")).await.status == status).then_some(())
        })
        .await;
    };
    has_status(302).await;
    write(&file, "evil.example");
    has_status(410).await;
    anyone.get(&format!("/{id}")).await.expect(410).problem("link-blocked");
    anyone.get(&format!("/{id}+")).await.expect(410).problem("link-blocked");
    assert_eq!(anyone.get(&format!("/{other}")).await.expect(302).header("location"), TARGET);
    let record = root.link_record(&id).await;
    assert_eq!(
        (&record["state"], &record["block_reason"], &record["revision"]),
        (&json!("blocked"), &json!(null), &json!(1))
    );
    // The stored link does not change by it, and can be led elsewhere.
    root.patch_link(&id, json!({"title": "x"})).await.expect(200);
    has_status(410).await;
    root.patch_link(&id, json!({"redirect_url": TARGET})).await.expect(200);
    has_status(302).await;
    root.patch_link(&id, json!({"redirect_url": "https://a.evil.example/"})).await.expect(422);
    write(&file, "# none");
    eventually("the list is in force", IN_FORCE, async || {
        let answer = root.patch_link(&id, json!({"redirect_url": "https://a.evil.example/"})).await;
        (answer.status == 200).then_some(())
    })
    .await;
    has_status(302).await;
}

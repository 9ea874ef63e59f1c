//! A journal that has no room while the store takes nothing.

use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::server::{Server, count};
use crate::support::{SOON, eventually};

const VISITS: u64 = 1_000;
/// Two segments.
const BUDGET: u64 = 2 * 65_536;
/// Makes a record so long that a few hundred of them fill the budget.
const AGENT_BYTES: usize = 400;

#[tokio::test]
async fn without_room_redirects_go_on_and_what_is_not_recorded_is_counted() {
    let switch = FaultSwitch::default();
    let stall = switch.clone();
    let server = Server::builder()
        .wrap_store(move |store| std::sync::Arc::new(FaultyStore::new(store, stall)))
        .set("SIGNPOST_JOURNAL__SEGMENT_BYTES", &(BUDGET / 2).to_string())
        .set("SIGNPOST_JOURNAL__DISK_BUDGET_BYTES", &BUDGET.to_string())
        .start();
    let link = server.root().any_link().await;
    let (visitor, agent) = (server.anonymous(), "a".repeat(AGENT_BYTES));
    let visit = async || visitor.get_with(&format!("/{link}"), &[("User-Agent", &agent)]).await.expect(302);
    let told = async |name| count(&server.metrics().await, name);
    switch.out_of_reach(true);
    for _ in 0..VISITS {
        visit().await;
    }
    let not_recorded = told("signpost_journal_hits_not_recorded_total").await;
    let recorded = told("signpost_journal_hits_appended_total").await;
    assert!(not_recorded > 0 && recorded > 0, "{recorded} recorded, {not_recorded} not");
    assert_eq!(recorded + not_recorded, VISITS);
    assert!(told("signpost_journal_bytes").await <= BUDGET);

    switch.out_of_reach(false);
    let counted = async || {
        let summary = server.root().get(&format!("/links/{link}/analytics/summary")).await.expect(200).json();
        summary["total_hits"].as_u64().unwrap()
    };
    eventually("recorded hits are counted", SOON, async || (counted().await == recorded).then_some(())).await;

    // Room is made once they are counted, not in the same moment. From there on nothing is lost.
    let has_room = async || (told("signpost_journal_bytes").await < BUDGET).then_some(());
    eventually("there is room", SOON, has_room).await;
    for _ in 0..100 {
        visit().await;
    }
    eventually("later hits too", SOON, async || (counted().await == recorded + 100).then_some(())).await;
    assert_eq!(told("signpost_journal_hits_not_recorded_total").await, not_recorded);
}

//! Replays of deliveries.

use signpost::domain::webhook::DeliveryStatus;
use signpost::store::Replay;

use super::run::Run;
use super::{apply, due_once};
use crate::store::samples::{MINUTE, delivered, delivery, failed, noon, settlement, short_id};

pub async fn replay_deliveries(run: &Run) {
    apply(run, 0, 6).await;
    let [first, second] = [0, 1].map(|url| delivery(run.n, noon(), url));
    let settlements =
        [first, second].map(|id| settlement(id, 1, if id == first { failed(None) } else { delivered() }, noon()));
    run.done(async || run.store.settle_deliveries(settlements.to_vec()).await).await;
    let at = noon().plus(MINUTE);
    let replay = Replay { link: short_id(run.n), ids: vec![first, second], at };
    let queued = run.disturbed_until_done(async || run.store.replay_deliveries(replay.clone()).await).await;
    assert!(queued <= 2, "{}", run.name());
    // By another node, which leaves them alone.
    let again = Replay { at: noon().plus(MINUTE * 2), ..replay };
    assert_eq!(run.done(async || run.clean.replay_deliveries(again.clone()).await).await, 0, "{}", run.name());
    let states = run.clean.delivery_states(vec![first, second]).await.unwrap();
    for state in states.iter().flatten() {
        assert_eq!(
            (state.status, state.attempts, state.counted),
            (DeliveryStatus::Pending, 1, false),
            "{}",
            run.name()
        );
        assert!(state.round > 0, "{}", run.name());
    }
    let due = due_once(run, noon().plus(MINUTE * 60), 2).await;
    let rounds: Vec<_> = states.iter().flatten().map(|state| state.round).collect();
    let mut seen: Vec<_> = due.iter().map(|due| (due.id.url_index, due.round)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0, rounds[0]), (1, rounds[1])], "{}", run.name());
    let summaries = run.clean.delivery_summaries(short_id(run.n), noon().day()).await.unwrap();
    let counts: Vec<_> = summaries.iter().map(|(_, url)| (url.delivered, url.pending, url.failed)).collect();
    assert_eq!(counts, [(0, 1, 0), (0, 1, 0)], "{}", run.name());
}

//! The order in which notes of other nodes are sent.

use std::collections::HashMap;

use uuid::Uuid;

use crate::domain::hit::Position;
use crate::domain::live_hit::LiveEvent;
use crate::store::hit_streams::NotedHits;

/// Orders notes by the time of their hits, and those of each node by position, whichever life noted them. Those of each life
/// come in their order.
pub fn in_order(noted: Vec<NotedHits>) -> Vec<NotedHits> {
    // Hits that were left out have the time of the next hit.
    let mut next_of_life: HashMap<Uuid, u64> = HashMap::new();
    let timed = noted.into_iter().rev().map(|noted| {
        let next = next_of_life.entry(noted.upto.life).or_insert(u64::MAX);
        *next = time_of(&noted).unwrap_or(*next);
        (*next, noted)
    });
    let mut timed: Vec<(u64, NotedHits)> = timed.collect();
    timed.reverse();
    timed.sort_by_key(|(time, _)| *time);
    let mut noted: Vec<NotedHits> = timed.into_iter().map(|(_, noted)| noted).collect();
    let mut places: HashMap<Uuid, Vec<usize>> = HashMap::new();
    for (place, noted) in noted.iter().enumerate() {
        places.entry(noted.node.0).or_default().push(place);
    }
    for places in places.into_values() {
        let mut of_node: Vec<NotedHits> = places.iter().map(|place| noted[*place].clone()).collect();
        of_node.sort_by_key(first_position);
        for (place, of_node) in places.into_iter().zip(of_node) {
            noted[place] = of_node;
        }
    }
    noted
}

fn first_position(noted: &NotedHits) -> Option<Position> {
    noted.entries.first().map(|entry| entry.position)
}

/// When the first hit was that is not left out.
fn time_of(noted: &NotedHits) -> Option<u64> {
    noted.entries.iter().find_map(|entry| match &entry.event {
        LiveEvent::Hit(hit) => Some(hit.id.at().0),
        LiveEvent::LeftOut(_) => None,
    })
}

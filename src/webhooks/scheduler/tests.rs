use std::collections::HashSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const BOUNDS: Bounds = Bounds { workers: 16, per_host: 4, waiting: 24 };

fn key(number: u8) -> KeyId {
    KeyId(Uuid::from_u128(u128::from(number)))
}

fn flow(of: u8, host: u32) -> Flow {
    Flow { owner: key(of), host: host.to_string().into() }
}

/// Reserves a slot and puts one delivery, if there is a free slot.
fn offer(scheduler: &mut Scheduler<u32>, to: &Flow, delivery: u32) -> Result<(), NoCapacity> {
    scheduler.reserve(to)?;
    scheduler.put(to, delivery);
    Ok(())
}

fn begin_what_may(scheduler: &mut Scheduler<u32>) -> Vec<Flow> {
    std::iter::from_fn(|| scheduler.next()).map(|(flow, _)| flow).collect()
}

/// As many attempts as one receiver may have at once.
fn begin_all(scheduler: &mut Scheduler<u32>, to: &Flow) -> usize {
    while offer(scheduler, to, 0).is_ok() {}
    begin_what_may(scheduler).len()
}

/// Offers one delivery to each of many receivers of a key, and begins those that may begin; returns them.
fn flood(scheduler: &mut Scheduler<u32>, of: u8, receivers: std::ops::Range<u32>) -> Vec<Flow> {
    let mut started = Vec::new();
    for host in receivers {
        let _ = offer(scheduler, &flow(of, host), 0);
        started.extend(begin_what_may(scheduler));
    }
    started
}

#[test]
fn a_receiver_is_given_more_as_it_succeeds_and_less_as_it_fails() {
    let (mut scheduler, one) = (Scheduler::new(BOUNDS), flow(1, 1));
    assert_eq!(begin_all(&mut scheduler, &one), 2);
    for (succeeded, more) in [(true, 2), (true, 2), (true, 1), (false, 0), (false, 0)] {
        scheduler.ended(&one, Some(succeeded));
        assert_eq!(begin_all(&mut scheduler, &one), more, "{}", scheduler.in_flight());
    }
    while scheduler.in_flight() > 0 {
        scheduler.ended(&one, Some(false));
    }
    assert_eq!(begin_all(&mut scheduler, &one), 1);
}

#[test]
fn keys_take_turns_and_so_do_the_receivers_of_a_key() {
    let mut scheduler = Scheduler::new(BOUNDS);
    let offered = [(1, 1), (1, 1), (1, 2), (1, 2), (2, 3), (2, 3)];
    for (of, host) in offered {
        offer(&mut scheduler, &flow(of, host), 0).unwrap();
    }
    let order: Vec<_> = begin_what_may(&mut scheduler).into_iter().map(|flow| flow.host.to_string()).collect();
    assert_eq!(order, ["1", "3", "2", "3", "1", "2"]);
}

#[test]
fn however_many_of_one_key_hang_another_key_finds_a_worker_and_a_slot_at_once() {
    let mut scheduler = Scheduler::new(BOUNDS);
    // New receivers may use three quarters, and a single key leaves an eighth of them.
    assert_eq!(flood(&mut scheduler, 1, 0..1_000).len(), 10);
    for of in 2..=3 {
        let other = flow(of, 1_000_000);
        assert_eq!(offer(&mut scheduler, &other, 7), Ok(()));
        assert_eq!(scheduler.next(), Some((other, 7)));
    }
}

#[test]
fn keys_whose_receivers_all_hang_come_to_have_as_many_workers_each() {
    let mut scheduler = Scheduler::new(BOUNDS);
    let mut started = flood(&mut scheduler, 1, 0..1_000);
    // The receivers of the later keys are new: each hangs and then fails.
    for round in 0..400 {
        for of in 1..=3 {
            let first = 1_000 * u32::from(of) + 2 * round;
            started.extend(flood(&mut scheduler, of, first..first + 2));
        }
        scheduler.ended(&started.remove(0), Some(false));
        started.extend(begin_what_may(&mut scheduler));
        scheduler.take_freed();
    }
    let of = |key: KeyId| started.iter().filter(|flow| flow.owner == key).count();
    let held = [of(key(1)), of(key(2)), of(key(3))];
    assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{held:?}");
}

#[test]
fn one_key_does_not_take_all_that_a_host_may_have() {
    let bounds = Bounds { workers: 64, per_host: 8, waiting: 64 };
    let (mut scheduler, [one, other]) = (Scheduler::new(bounds), [flow(1, 1), flow(2, 1)]);
    // The window of this receiver reaches the bound of a host.
    for _ in 0..20 {
        offer(&mut scheduler, &one, 0).unwrap();
        scheduler.next().unwrap();
        scheduler.ended(&one, Some(true));
    }
    assert_eq!(begin_all(&mut scheduler, &one), 7);
    assert_eq!(begin_all(&mut scheduler, &other), 1, "no more than that to one host");
    for _ in 0..2 {
        scheduler.ended(&one, Some(true));
    }
    assert_eq!(begin_what_may(&mut scheduler), [other], "who has fewer comes first");
}

#[test]
fn however_many_hang_a_healthy_receiver_of_the_same_key_finds_a_worker() {
    let (mut scheduler, sound) = (Scheduler::new(BOUNDS), flow(1, 0));
    offer(&mut scheduler, &sound, 0).unwrap();
    scheduler.next().unwrap();
    scheduler.ended(&sound, Some(true));
    // Failing receivers, then new ones, whose attempts never end.
    for host in 1..20 {
        if offer(&mut scheduler, &flow(1, host), 0).is_ok() && scheduler.next().is_some() {
            scheduler.ended(&flow(1, host), Some(false));
        }
    }
    flood(&mut scheduler, 1, 1..200);
    assert_eq!(scheduler.in_flight(), 10);
    offer(&mut scheduler, &sound, 7).unwrap();
    assert_eq!(scheduler.next(), Some((sound, 7)));
}

#[test]
fn many_keys_with_one_slow_receiver_leave_slots_to_others() {
    let mut scheduler: Scheduler<u32> = Scheduler::new(BOUNDS);
    let taken = (0..200).filter(|of| scheduler.reserve(&flow(*of, 1)).is_ok()).count();
    assert_eq!(taken, 12, "half of the places, or four for each attempt that it may have");
    assert_eq!(scheduler.reserve(&flow(201, 2)), Ok(()));
    assert_eq!(scheduler.take_freed(), FreedCapacity::default(), "the others are recalled once it has free slots");
    scheduler.release_slot(&flow(0, 1));
    let reported: HashSet<_> = scheduler.take_freed().flows.into_iter().collect();
    assert_eq!(reported, HashSet::from([flow(0, 1), flow(12, 1)]));
}

#[test]
fn refused_flows_are_recalled_in_the_order_of_their_refusals() {
    let mut scheduler: Scheduler<u32> = Scheduler::new(BOUNDS);
    let mut refused = Vec::new();
    for host in 0..60 {
        if scheduler.reserve(&flow(1, host)).is_err() {
            refused.push(flow(1, host));
        }
    }
    // Each slot that is given back becomes free for a refused flow.
    let reserved: Vec<_> = (0..60).map(|host| flow(1, host)).filter(|flow| !refused.contains(flow)).collect();
    assert_eq!((reserved.len(), refused.len()), (15, 45));
    scheduler.release_slot(&reserved[0]);
    let freed = scheduler.take_freed();
    assert_eq!(freed.flows, [reserved[0].clone(), refused[0].clone()]);
    assert_eq!(scheduler.reserve(&refused[0]), Ok(()));
    assert_eq!(scheduler.take_freed(), FreedCapacity::default(), "there was one place");
}

#[test]
fn a_key_with_too_many_refused_flows_is_barred_and_others_are_not() {
    let mut scheduler: Scheduler<u32> = Scheduler::with_memory(80, BOUNDS);
    let answers: Vec<_> = (0..200).map(|host| scheduler.reserve(&flow(1, host))).collect();
    let count = |full: NoCapacity| answers.iter().filter(|answer| **answer == Err(full)).count();
    assert_eq!((count(NoCapacity::Flow), count(NoCapacity::Key)), (70, 115));
    assert_eq!(scheduler.reserve(&flow(2, 0)), Ok(()));
    assert_eq!(scheduler.take_freed(), FreedCapacity::default(), "nothing has changed");
    for host in 0..2 {
        scheduler.release_slot(&flow(1, host));
    }
    let freed = scheduler.take_freed();
    assert_eq!((freed.flows.len(), freed.keys), (3, vec![key(1)]), "two that were recalled back, one that was refused");
}

#[test]
fn idle_receivers_are_forgotten_when_there_are_too_many() {
    let mut scheduler = Scheduler::new(BOUNDS);
    let steady = flow(2, 0);
    for host in 0..40_000 {
        let to = flow(1, host);
        for to in [&to, &steady] {
            offer(&mut scheduler, to, 0).unwrap();
            scheduler.next().unwrap();
            scheduler.ended(to, Some(true));
        }
        scheduler.take_freed();
    }
    assert!(scheduler.known <= 2 * REMEMBERED);
    assert_eq!(scheduler.known, scheduler.keys.values().map(|key| key.flows.len()).sum::<usize>());
    assert_eq!(
        scheduler.keys[&key(2)].flows[&steady.host].health,
        ReceiverHealth::Healthy,
        "not those of a key with few"
    );
}

/// Whether the flow has something ready that could begin.
fn could_begin(scheduler: &Scheduler<u32>, owner: KeyId, host: &Host) -> bool {
    let (key, workers) = (&scheduler.keys[&owner], BOUNDS.workers);
    let state = &key.flows[host];
    let to_host = scheduler.to_host.get(host).copied().unwrap_or(0);
    !state.ready.is_empty()
        && state.in_flight < state.window
        && state.in_flight < scheduler.in_flight.left(key.in_flight, state.health, workers)
        && FairShare::of_few(BOUNDS.per_host).admits(to_host, state.in_flight)
}

/// The sums match their parts, and no bound is exceeded.
fn check(scheduler: &Scheduler<u32>, in_flight: &[Flow]) {
    assert_eq!(scheduler.in_flight(), in_flight.len());
    assert!(scheduler.in_flight() <= BOUNDS.workers && scheduler.waiting.total() <= BOUNDS.waiting);
    assert!(scheduler.to_host.values().all(|count| *count <= BOUNDS.per_host));
    let at_hosts = scheduler.waiting_at.values();
    assert!(
        at_hosts.clone().all(|count| (1..=12).contains(count)) && at_hosts.sum::<usize>() == scheduler.waiting.total()
    );
    let (mut waiting, mut under_way, mut refused) = (SlotCounts::default(), SlotCounts::default(), 0);
    for (owner, key) in &scheduler.keys {
        let (mut of_key_waiting, mut of_key_in_flight) = (SlotCounts::default(), SlotCounts::default());
        for (host, state) in &key.flows {
            let this = Flow { owner: *owner, host: Arc::clone(host) };
            assert_eq!(state.in_flight, in_flight.iter().filter(|other| **other == this).count());
            assert!(!could_begin(scheduler, *owner, host), "{this:?} has something ready");
            (0..state.waiting()).for_each(|_| of_key_waiting.add(state.health));
            (0..state.in_flight).for_each(|_| of_key_in_flight.add(state.health));
            refused += usize::from(state.is_refused());
        }
        assert_eq!((key.waiting, key.in_flight), (of_key_waiting, of_key_in_flight));
        (waiting, under_way) = (waiting.plus(key.waiting), under_way.plus(key.in_flight));
    }
    assert_eq!((scheduler.waiting, scheduler.in_flight, scheduler.refused), (waiting, under_way, refused));
}

proptest! {
    /// Whatever happens, no bound is exceeded, every delivery that can begin begins, and refused flows are recalled
    /// when there are free slots.
    #[test]
    fn bounds_hold_and_every_delivery_begins(steps in prop::collection::vec((0_u8..8, 1_u8..5, 0_u32..12), 1..400)) {
        let mut scheduler = Scheduler::with_memory(8, BOUNDS);
        let mut in_flight: Vec<Flow> = Vec::new();
        let mut refused: HashSet<Flow> = HashSet::new();
        let mut barred: HashSet<KeyId> = HashSet::new();
        let (mut offered, mut started) = (0, 0);
        let mut begin = |scheduler: &mut Scheduler<u32>, in_flight: &mut Vec<Flow>| {
            let flows = begin_what_may(scheduler);
            started += flows.len();
            in_flight.extend(flows);
            started
        };
        for (step, of, host) in steps {
            let to = flow(of, host);
            match step {
                0..=4 => match offer(&mut scheduler, &to, offered) {
                    Ok(()) => offered += 1,
                    Err(NoCapacity::Flow) => _ = refused.insert(to),
                    Err(NoCapacity::Key) => _ = barred.insert(to.owner),
                    Err(NoCapacity::All) => {}
                },
                5 if scheduler.reserve(&to).is_ok() => scheduler.release_slot(&to),
                _ if !in_flight.is_empty() => {
                    let ended = in_flight.swap_remove(host as usize % in_flight.len());
                    scheduler.ended(&ended, [Some(true), Some(false), None][host as usize % 3]);
                }
                _ => {}
            }
            begin(&mut scheduler, &mut in_flight);
            check(&scheduler, &in_flight);
            if host % 2 == 0 {
                let freed = scheduler.take_freed();
                refused.retain(|flow| !freed.flows.contains(flow));
                barred.retain(|key| !freed.keys.contains(key));
                check(&scheduler, &in_flight);
            }
        }
        // All deliveries begin once the attempts in flight have ended.
        while let Some(flow) = in_flight.pop() {
            scheduler.ended(&flow, Some(true));
            begin(&mut scheduler, &mut in_flight);
        }
        prop_assert_eq!(begin(&mut scheduler, &mut in_flight), offered as usize);
        prop_assert_eq!((scheduler.in_flight.total(), scheduler.waiting.total()), (0, 0));
        // All refused flows are recalled, a few at a time.
        for _ in 0..20 {
            let freed = scheduler.take_freed();
            refused.retain(|flow| !freed.flows.contains(flow));
            barred.retain(|key| !freed.keys.contains(key));
        }
        prop_assert_eq!((refused.len(), barred.len(), scheduler.refused), (0, 0, 0));
    }
}

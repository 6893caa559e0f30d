//! Only what a lost master explains may overlap, and only for a short time.

use super::test_events::{BOUNDS, MS, broken, called, granted, released, reported, stall};
use super::{Affected, Event, EventKind, Fault, Operations, Timestamp, Wiped, overlaps};

/// The master of these locks is killed at 1 s, and replaced at 2 s.
fn master_lost(keys: &[&str]) -> Event {
    failover("KillMaster", keys, 1_000 * MS)
}

/// The old master goes on until its clients have heard of the new one: at 3 s at the latest.
fn planned_failover() -> Event {
    failover("FailOver", &["key"], UNTIL)
}

const UNTIL: Timestamp = 3_000 * MS;

/// From 1 s to 2 s. The old master carries out what is sent `until` this time.
fn failover(kind: &str, keys: &[&str], until: Timestamp) -> Event {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let fault = Fault {
        kind: kind.to_owned(),
        from: 1_000 * MS,
        to: 2_000 * MS,
        wiped: Wiped::Unreplicated { keys, until },
        affected: Affected::Everybody,
        heals: 0,
        hit: true,
        delays_attempts: false,
        reconnects: false,
    };
    let what = EventKind::Fault(fault);
    Event {
        at: 2_000 * MS,
        what,
    }
}

fn with_token(mut event: Event, number: u64) -> Event {
    if let EventKind::Granted { token, .. } = &mut event.what {
        *token = Some(number);
    }
    event
}

/// The first process is granted the key at `first`, and told of its loss at `told`. The second one is granted it at `second`.
fn two_holders(first: Timestamp, second: Timestamp, told: Timestamp) -> Vec<Event> {
    let mut events = vec![
        called(1, first, None),
        granted(1, first, first + BOUNDS.lease),
        called(2, second, None),
        granted(2, second, second + BOUNDS.lease),
    ];
    events.extend(reported(1, told));
    events.extend(released(2, told + 200 * MS, second + BOUNDS.lease));
    events
}

fn with_fault(mut events: Vec<Event>, keys: &[&str]) -> Vec<Event> {
    events.push(master_lost(keys));
    events
}

#[test]
fn two_holders_with_a_lost_master_between_their_grants_are_explained() {
    let events = two_holders(900 * MS, 2_100 * MS, 2_200 * MS);
    assert!(broken(events.clone()).contains(&"A1"));
    let explained = with_fault(events, &["key"]);
    assert!(broken(explained.clone()).is_empty());
    let mut explained = explained;
    explained.sort_by_key(|event| event.at);
    let operations = Operations::from_events(&explained, BOUNDS.lease);
    assert_eq!(overlaps(&operations).len(), 1);
}

#[test]
fn two_holders_of_a_key_of_another_master_violate_a1() {
    let events = two_holders(900 * MS, 2_100 * MS, 2_200 * MS);
    assert!(broken(with_fault(events, &["another key"])).contains(&"A1"));
}

#[test]
fn two_holders_before_their_master_was_lost_violate_a1() {
    let events = two_holders(800 * MS, 900 * MS, 1_200 * MS);
    assert!(broken(with_fault(events, &["key"])).contains(&"A1"));
}

#[test]
fn two_holders_who_were_both_granted_after_the_loss_violate_a1() {
    let events = two_holders(2_050 * MS, 2_100 * MS, 2_200 * MS);
    assert!(broken(with_fault(events, &["key"])).contains(&"A1"));
}

#[test]
fn a_holder_whose_renewal_the_new_master_confirmed_violates_a1_beside_another() {
    let mut events = vec![
        called(1, 900 * MS, None),
        granted(1, 900 * MS, 2_900 * MS),
        called(2, 2_100 * MS, None),
        granted(2, 2_100 * MS, 4_100 * MS),
    ];
    events.extend(released(1, 2_200 * MS, 4_050 * MS));
    events.extend(released(2, 2_300 * MS, 4_100 * MS));
    assert_eq!(broken(with_fault(events, &["key"])), ["A1"]);
}

#[test]
fn a_holder_who_is_told_long_after_the_failover_violates_a7() {
    let told_after = |time| {
        let second = 2_100 * MS;
        broken(with_fault(long_lease(second, second + time), &["key"]))
    };
    assert!(told_after(BOUNDS.confirmed).is_empty());
    assert_eq!(told_after(BOUNDS.confirmed + 10 * MS), ["A7"]);
}

/// As [`two_holders`], where the first one has a fixed lease of an hour.
fn long_lease(second: Timestamp, told: Timestamp) -> Vec<Event> {
    const HOUR: Timestamp = 3_600_000 * MS;
    let mut first = called(1, 900 * MS, None);
    if let EventKind::Called { lease, .. } = &mut first.what {
        *lease = Some(HOUR);
    }
    let mut events = vec![
        first,
        granted(1, 900 * MS, 900 * MS + HOUR),
        called(2, second, None),
        granted(2, second, second + BOUNDS.lease),
    ];
    events.extend(reported(1, told));
    events.extend(released(2, told + 200 * MS, second + BOUNDS.lease));
    events
}

#[test]
fn the_second_of_two_holders_needs_the_higher_token() {
    let with_tokens = |before, after| {
        let events = two_holders(900 * MS, 2_100 * MS, 2_200 * MS);
        let of = |event: Event| match &event.what {
            EventKind::Granted { id, .. } if id.process == 1 => with_token(event, before),
            _ => with_token(event, after),
        };
        broken(with_fault(events.into_iter().map(of).collect(), &["key"]))
    };
    assert!(with_tokens(7, 8).is_empty());
    assert!(with_tokens(7, 7).contains(&"A2"));
    assert!(with_tokens(8, 7).contains(&"A2"));
}

/// How many overlaps a planned failover explains, and what it does not explain.
fn beside_a_planned_failover(mut events: Vec<Event>) -> (usize, Vec<&'static str>) {
    events.push(planned_failover());
    events.sort_by_key(|event| event.at);
    let operations = Operations::from_events(&events, BOUNDS.lease);
    (overlaps(&operations).len(), broken(events))
}

/// The first process is granted the key by the old master at `old`, and told of it at `told`. The second one is granted it by
/// the new master at `new`.
fn old_and_new(old: Timestamp, new: Timestamp, told: Timestamp) -> Vec<Event> {
    two_holders(old, new, told)
}

#[test]
fn grant_of_an_old_master_before_one_of_the_new_is_explained() {
    let events = old_and_new(1_900 * MS, 2_100 * MS, 2_400 * MS);
    assert!(broken(events.clone()).contains(&"A1"));
    assert_eq!(beside_a_planned_failover(events), (1, vec![]));
}

#[test]
fn grant_of_an_old_master_after_one_of_the_new_is_explained() {
    let events = old_and_new(2_300 * MS, 2_100 * MS, 2_400 * MS);
    assert!(broken(events.clone()).contains(&"A1"));
    assert_eq!(beside_a_planned_failover(events), (1, vec![]));
}

#[test]
fn grant_of_an_old_master_after_one_that_was_confirmed_by_the_new_is_explained() {
    // The new one was asked again for the second hold, long after all clients have left the old one.
    let mut events = vec![
        called(2, 2_100 * MS, None),
        granted(2, 2_100 * MS, 4_100 * MS),
        called(1, 2_300 * MS, None),
        granted(1, 2_300 * MS, 4_300 * MS),
    ];
    events.extend(reported(1, 2_400 * MS));
    events.extend(released(2, 4_000 * MS, 5_500 * MS));
    assert_eq!(beside_a_planned_failover(events), (1, vec![]));
}

#[test]
fn owner_of_an_old_master_who_is_not_told_in_time_violates_a7_in_both_orders() {
    for old in [1_900, 2_300] {
        let told_at = |told| beside_a_planned_failover(old_and_new(old * MS, 2_100 * MS, told)).1;
        assert!(told_at(UNTIL).is_empty());
        assert_eq!(told_at(UNTIL + 10 * MS), ["A7"]);
    }
}

#[test]
fn owner_of_an_old_master_is_told_later_by_what_its_process_stood_still() {
    let mut events = old_and_new(2_300 * MS, 2_100 * MS, UNTIL + 150 * MS);
    events.push(stall(1, 2_500 * MS, 2_700 * MS));
    assert!(beside_a_planned_failover(events).1.is_empty());
}

#[test]
fn two_holders_who_were_both_granted_after_all_have_left_the_old_master_violate_a1() {
    let events = old_and_new(UNTIL + 20 * MS, UNTIL + 10 * MS, UNTIL + 50 * MS);
    assert!(beside_a_planned_failover(events).1.contains(&"A1"));
}

#[test]
fn holder_who_is_known_to_both_masters_violates_a1_beside_another() {
    // Held before the failover, and confirmed by the new master after it.
    let mut events = vec![
        called(1, 900 * MS, None),
        granted(1, 900 * MS, 2_900 * MS),
        called(2, 2_100 * MS, None),
        granted(2, 2_100 * MS, 4_100 * MS),
    ];
    events.extend(released(2, 2_200 * MS, 4_100 * MS));
    events.extend(released(1, 4_000 * MS, 5_500 * MS));
    assert_eq!(beside_a_planned_failover(events), (0, vec!["A1"]));
}

#[test]
fn tokens_tell_the_holders_apart_in_both_orders() {
    for (old, earlier) in [(1_900, 1), (2_300, 2)] {
        let with_tokens = |before, after| {
            let events = old_and_new(old * MS, 2_100 * MS, 2_400 * MS);
            let of = |event: Event| match &event.what {
                EventKind::Granted { id, .. } if id.process == earlier => with_token(event, before),
                _ => with_token(event, after),
            };
            beside_a_planned_failover(events.into_iter().map(of).collect()).1
        };
        assert!(with_tokens(7, 8).is_empty());
        assert!(with_tokens(7, 7).contains(&"A2"));
        assert!(with_tokens(8, 7).contains(&"A2"));
    }
}

#[test]
fn requests_to_two_masters_at_the_same_time_need_different_tokens() {
    let with_tokens = |one, other| {
        let mut events = vec![
            called(1, 2_000 * MS, None),
            called(2, 2_050 * MS, None),
            with_token(granted(1, 2_100 * MS, 4_000 * MS), one),
            with_token(granted(2, 2_110 * MS, 4_050 * MS), other),
        ];
        events.extend(reported(1, 2_200 * MS));
        events.extend(released(2, 2_300 * MS, 4_050 * MS));
        beside_a_planned_failover(events).1
    };
    assert!(with_tokens(7, 8).is_empty());
    assert!(with_tokens(8, 7).is_empty());
    assert_eq!(with_tokens(7, 7), ["A2"]);
}

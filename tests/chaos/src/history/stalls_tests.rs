//! Bounds on real time are relative to the stalls of the machine, and exact without them.

use distlock_tests::pulse::Stall;

use super::{
    Affected, Bounds, End, Event, EventKind, Fault, Id, Operations, Refusal, Timestamp, Wiped,
    check,
};

const MS: Timestamp = 1_000_000;

/// The bounds of a real server: a lease of 2 s, and everything else may be 1 s late.
const BOUNDS: Bounds = Bounds {
    lease: 2_000 * MS,
    wake: 1_500 * MS,
    late: 1_000 * MS,
    confirmed: 1_010 * MS,
    passes: usize::MAX,
    absent: 0,
    aftermath: 0,
    in_order: false,
    capacity: 1,
    settle: 0,
};

fn id(process: u32) -> Id {
    Id {
        process,
        task: 0,
        number: 0,
    }
}

fn called(process: u32, at: Timestamp, wait: Option<Timestamp>) -> Event {
    let what = EventKind::Called {
        id: id(process),
        key: String::from("key"),
        other_key: None,
        wait,
        lease: None,
        shared: false,
        leased: true,
    };
    Event { at, what }
}

fn granted(process: u32, at: Timestamp, deadline: Timestamp) -> Event {
    let what = EventKind::Granted {
        id: id(process),
        owner: format!("owner {process}"),
        deadline,
        token: None,
    };
    Event { at, what }
}

fn refused(process: u32, at: Timestamp, why: Refusal) -> Event {
    let what = EventKind::Refused {
        id: id(process),
        why,
    };
    Event { at, what }
}

fn reported(process: u32, at: Timestamp) -> [Event; 2] {
    let (id, how) = (id(process), End::Dropped);
    let (told, ended) = (EventKind::LossReported { id }, EventKind::Ended { id, how });
    [Event { at, what: told }, Event { at, what: ended }]
}

fn released(process: u32, at: Timestamp, deadline: Timestamp) -> [Event; 2] {
    let (id, how) = (id(process), End::Released);
    let (ending, ended) = (
        EventKind::Ending { id, deadline },
        EventKind::Ended { id, how },
    );
    [Event { at, what: ending }, Event { at, what: ended }]
}

fn wiped(at: Timestamp) -> Event {
    let fault = Fault {
        kind: String::from("Wipe"),
        from: at,
        to: at,
        wiped: Wiped::Everything,
        affected: Affected::Nobody,
        heals: 0,
        hit: true,
        delays_attempts: false,
        reconnects: false,
    };
    let what = EventKind::Fault(fault);
    Event { at, what }
}

fn stall(process: u32, from: Timestamp, to: Timestamp) -> Event {
    let stall = Stall { from, to };
    let what = EventKind::Stalled { process, stall };
    Event { at: to, what }
}

/// The rules that a history violates.
fn broken(events: impl IntoIterator<Item = Event>) -> Vec<&'static str> {
    let mut events: Vec<Event> = events.into_iter().collect();
    events.sort_by_key(|event| event.at);
    let operations = Operations::from_events(&events, BOUNDS.lease);
    let violations = check(&operations, &BOUNDS);
    violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_wait_that_ends_late_violates_a6_but_for_a_stall_as_long() {
    let late = || {
        [
            called(1, 0, Some(100 * MS)),
            refused(1, 1_300 * MS, Refusal::Busy),
        ]
    };
    let with = |stall| late().into_iter().chain([stall]);
    assert_eq!(broken(late()), ["A6"]);
    assert!(broken(with(stall(1, 300 * MS, 500 * MS))).is_empty());
    // The tester has the proxy, through which the process asks the server.
    assert!(broken(with(stall(0, 300 * MS, 500 * MS))).is_empty());
    assert_eq!(
        broken(with(stall(1, 300 * MS, 400 * MS))),
        ["A6"],
        "too short"
    );
    assert_eq!(broken(with(stall(1, 0, 100 * MS))), ["A6"], "over before");
    assert_eq!(
        broken(with(stall(2, 300 * MS, 500 * MS))),
        ["A6"],
        "of another process"
    );
}

#[test]
fn a_loss_reported_late_violates_a7_but_for_a_stall_as_long() {
    let events = || {
        let events = [
            called(1, 0, None),
            granted(1, 0, 2_000 * MS),
            wiped(100 * MS),
        ];
        events.into_iter().chain(reported(1, 1_900 * MS))
    };
    assert_eq!(broken(events()), ["A7"]);
    assert!(broken(events().chain([stall(1, 300 * MS, 500 * MS)])).is_empty());
    assert_eq!(
        broken(events().chain([stall(1, 300 * MS, 400 * MS)])),
        ["A7"]
    );
}

#[test]
fn a_hold_past_its_deadline_violates_a7_but_for_a_stall_as_long() {
    let events = || {
        let events = [called(1, 0, None), granted(1, 0, 2_000 * MS)];
        events
            .into_iter()
            .chain(released(1, 4_000 * MS, 2_000 * MS))
    };
    assert_eq!(broken(events()), ["A7"]);
    assert!(broken(events().chain([stall(1, 2_500 * MS, 3_600 * MS)])).is_empty());
}

#[test]
fn a_free_key_beside_a_waiter_violates_a5_but_for_a_stall_as_long() {
    let events = || {
        let before = [called(1, 0, None), granted(1, 0, 2_000 * MS)];
        let before = before.into_iter().chain(released(1, 100 * MS, 2_000 * MS));
        let after = [called(2, 50 * MS, None), granted(2, 2_600 * MS, 4_600 * MS)];
        before
            .chain(after)
            .chain(released(2, 2_700 * MS, 4_600 * MS))
    };
    assert_eq!(broken(events()), ["A5"]);
    // The stall of any process may delay a hand-over.
    assert!(broken(events().chain([stall(3, 200 * MS, 1_250 * MS)])).is_empty());
    assert_eq!(
        broken(events().chain([stall(3, 200 * MS, 1_000 * MS)])),
        ["A5"]
    );
}

#[test]
fn a_hold_lost_without_a_cause_violates_a12_but_for_a_stall() {
    let events = || {
        let events = [called(1, 0, None), granted(1, 0, 2_000 * MS)];
        events.into_iter().chain(reported(1, 2_000 * MS))
    };
    assert_eq!(broken(events()), ["A12"]);
    assert!(broken(events().chain([stall(1, 900 * MS, 1_900 * MS)])).is_empty());
    assert_eq!(
        broken(events().chain([stall(1, 900 * MS, 1_100 * MS)])),
        ["A12"]
    );
}

#[test]
fn a_refusal_as_unavailable_violates_a11_but_for_a_stall_in_which_commands_time_out() {
    let events = || {
        [
            called(1, 0, Some(2_000 * MS)),
            refused(1, 1_500 * MS, Refusal::Unavailable),
        ]
    };
    assert_eq!(broken(events()), ["A11"]);
    assert!(broken(events().into_iter().chain([stall(1, 100 * MS, 500 * MS)])).is_empty());
    assert_eq!(
        broken(events().into_iter().chain([stall(1, 100 * MS, 200 * MS)])),
        ["A11"]
    );
}

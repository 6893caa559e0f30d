//! Events for tests of the rules.

use distlock_tests::pulse::Stall;

use super::{
    Affected, Bounds, End, Event, EventKind, Fault, Id, Operations, Refusal, Timestamp, Wiped,
    check,
};

pub(super) const MS: Timestamp = 1_000_000;

/// The bounds of a real server: a lease of 2 s, and everything else may be 1 s late.
pub(super) const BOUNDS: Bounds = Bounds {
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
    margin: 0,
};

pub(super) fn id(process: u32) -> Id {
    Id {
        process,
        task: 0,
        number: 0,
    }
}

pub(super) fn called(process: u32, at: Timestamp, wait: Option<Timestamp>) -> Event {
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

pub(super) fn granted(process: u32, at: Timestamp, deadline: Timestamp) -> Event {
    let what = EventKind::Granted {
        id: id(process),
        owner: format!("owner {process}"),
        deadline,
        token: None,
    };
    Event { at, what }
}

pub(super) fn refused(process: u32, at: Timestamp, why: Refusal) -> Event {
    let what = EventKind::Refused {
        id: id(process),
        why,
    };
    Event { at, what }
}

pub(super) fn reported(process: u32, at: Timestamp) -> [Event; 2] {
    let (id, how) = (id(process), End::Dropped);
    let (told, ended) = (EventKind::LossReported { id }, EventKind::Ended { id, how });
    [Event { at, what: told }, Event { at, what: ended }]
}

pub(super) fn released(process: u32, at: Timestamp, deadline: Timestamp) -> [Event; 2] {
    let (id, how) = (id(process), End::Released);
    let (ending, ended) = (
        EventKind::Ending { id, deadline },
        EventKind::Ended { id, how },
    );
    [Event { at, what: ending }, Event { at, what: ended }]
}

pub(super) fn wiped(at: Timestamp) -> Event {
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

pub(super) fn stall(process: u32, from: Timestamp, to: Timestamp) -> Event {
    let stall = Stall { from, to };
    let what = EventKind::Stalled { process, stall };
    Event { at: to, what }
}

/// The rules that a history violates.
pub(super) fn broken(events: impl IntoIterator<Item = Event>) -> Vec<&'static str> {
    let mut events: Vec<Event> = events.into_iter().collect();
    events.sort_by_key(|event| event.at);
    let operations = Operations::from_events(&events, BOUNDS.lease);
    let violations = check(&operations, &BOUNDS);
    violations.iter().map(|violation| violation.rule).collect()
}

//! Leases that are extended, and holds that are detached.

use super::test_events::{MS, broken, called, granted, id, released, wiped};
use super::{End, Event, EventKind, Fault, STALE_COPY, Timestamp};

fn extended(process: u32, at: Timestamp, lease: Timestamp, deadline: Timestamp) -> Event {
    let what = EventKind::Extended {
        id: id(process),
        asked: at,
        lease,
        before: 2_000 * MS,
        deadline,
    };
    Event { at, what }
}

#[test]
fn an_extension_violates_a18_if_it_is_too_short_or_shortens_the_lease() {
    let events = |lease, deadline| {
        let begun = [called(1, 0, None), granted(1, 0, 2_000 * MS)];
        let extended = extended(1, 100 * MS, lease, deadline);
        let ended = released(1, 200 * MS, deadline);
        begun.into_iter().chain([extended]).chain(ended)
    };
    assert!(broken(events(3_000 * MS, 3_100 * MS)).is_empty());
    // It may be a second late.
    assert!(broken(events(3_000 * MS, 2_100 * MS)).is_empty());
    assert_eq!(broken(events(3_000 * MS, 2_099 * MS)), ["A18"]);
    assert_eq!(broken(events(10 * MS, 999 * MS)), ["A18"]);
}

fn taken(process: u32, at: Timestamp) -> [Event; 2] {
    let (id, from) = (id(process), id(1));
    let takes = EventKind::Takes { id, from };
    [called(process, at, Some(0)), Event { at, what: takes }]
}

/// A hold that is detached after 100 ms, and released by the second process.
fn detached_and_released() -> impl Iterator<Item = Event> {
    let (detached, freed) = (
        EventKind::Ended {
            id: id(1),
            how: End::Detached,
        },
        EventKind::Freed { id: id(2) },
    );
    let begun = [called(1, 0, None), granted(1, 0, 2_000 * MS)];
    let at = |at, what| [Event { at, what }];
    let detached = at(100 * MS, detached);
    let freed = at(200 * MS, freed);
    let first = begun.into_iter().chain(detached);
    first.chain(taken(2, 200 * MS)).chain(freed)
}

#[test]
fn a_detached_hold_that_was_released_violates_a17_if_it_is_attached_then_also_beside_a_fault() {
    assert!(broken(detached_and_released()).is_empty());
    assert_eq!(broken(released_and_attached()), ["A17"]);
    assert!(broken(released_and_attached().chain([wiped(150 * MS)])).contains(&"A17"));
}

/// The same, and attached by the third process after that.
fn released_and_attached() -> impl Iterator<Item = Event> {
    let attached = taken(3, 300 * MS).into_iter();
    let granted = [granted(3, 300 * MS, 2_300 * MS)];
    let ended = released(3, 400 * MS, 2_300 * MS);
    detached_and_released().chain(attached.chain(granted).chain(ended))
}

#[test]
fn a_detached_hold_that_the_server_has_again_may_be_attached_after_its_release() {
    let with = |kind: &str, from: Timestamp, to: Timestamp, delays_attempts: bool| {
        let Event { what, .. } = wiped(from);
        let EventKind::Fault(fault) = what else {
            unreachable!("a fault")
        };
        let fault = Fault {
            kind: kind.to_owned(),
            to,
            delays_attempts,
            ..fault
        };
        let fault = Event {
            at: to,
            what: EventKind::Fault(fault),
        };
        broken(released_and_attached().chain([fault])).contains(&"A17")
    };
    // An earlier copy of the server between the two, and before them.
    assert!(!with(STALE_COPY, 250 * MS, 250 * MS, false));
    assert!(with(STALE_COPY, 150 * MS, 150 * MS, false));
    // An attempt of the time of the acquisition that comes between the two, one that comes before them, and a later attempt.
    assert!(!with("Attempt Late", 0, 250 * MS, true));
    assert!(with("Attempt Late", 0, 150 * MS, true));
    assert!(with("Attempt Late", 50 * MS, 250 * MS, true));
}

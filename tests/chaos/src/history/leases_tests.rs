//! Leases that are extended, and holds that are detached.

use super::test_events::{MS, broken, called, granted, id, released, wiped};
use super::{End, Event, EventKind, Timestamp};

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
    let attached = || {
        let granted = [granted(3, 300 * MS, 2_300 * MS)];
        let ended = released(3, 400 * MS, 2_300 * MS);
        taken(3, 300 * MS).into_iter().chain(granted).chain(ended)
    };
    let both = || detached_and_released().chain(attached());
    assert_eq!(broken(both()), ["A17"]);
    assert!(broken(both().chain([wiped(150 * MS)])).contains(&"A17"));
}

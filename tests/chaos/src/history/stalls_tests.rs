//! Bounds on real time are relative to the stalls of the machine, and exact without them.

use super::test_events::{
    MS, broken, called, granted, id, refused, released, reported, stall, wiped,
};
use super::{End, Event, EventKind, Refusal};

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
fn a_release_that_nobody_answers_in_time_violates_a11_and_one_at_the_end_of_its_lease_does_not() {
    let unanswered_after = |time| {
        let (id, deadline) = (id(1), 100 * MS + time);
        let (at, how) = (deadline, End::Unanswered);
        let ending = Event {
            at: 100 * MS,
            what: EventKind::Ending { id, deadline },
        };
        let ended = Event {
            at,
            what: EventKind::Ended { id, how },
        };
        broken([called(1, 0, None), granted(1, 0, deadline), ending, ended])
    };
    assert_eq!(unanswered_after(1_001 * MS), ["A11"]);
    assert!(unanswered_after(336 * MS).is_empty());
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

#[test]
fn a_refused_write_violates_a4_but_for_an_entry_that_was_still_under_way() {
    // The first is cut short while it enters. Its entry may arrive after that of the second.
    let events = |first: u32, dropped: u64, granted_at: u64| {
        let entered = EventKind::Entered { id: id(2) };
        let wrote = EventKind::Wrote {
            id: id(2),
            accepted: false,
        };
        let at = |at, what| Event { at, what };
        let second = [
            called(2, 0, None),
            granted(2, granted_at, granted_at + 2_000 * MS),
            at(granted_at + MS, entered),
            at(granted_at + 8 * MS, wrote),
        ];
        let first_one = [called(first, 0, None), granted(first, MS, 2_000 * MS)];
        first_one
            .into_iter()
            .chain(released(first, dropped, 2_000 * MS))
            .chain(second)
            .chain(released(2, granted_at + 9 * MS, granted_at + 2_000 * MS))
    };
    assert!(broken(events(1, 5 * MS, 10 * MS)).is_empty());
    assert_eq!(broken(events(1, 5 * MS, 1_010 * MS)), ["A4"], "too late");
    assert_eq!(
        broken(events(0, 5 * MS, 10 * MS)),
        ["A4"],
        "it has the resource"
    );
}

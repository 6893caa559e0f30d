use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000;

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn name(text: &str) -> Name {
    Arc::from(text)
}

/// The names that are due at `ms`.
fn due(plan: &mut Plan, ms: u64) -> Vec<String> {
    let taken = plan.take_due(at(ms));
    taken
        .into_iter()
        .map(|(name, _)| name.to_string())
        .collect()
}

fn read(plan: &mut Plan, key: &str, ms: u64) {
    plan.was_read(&name(key), at(ms), Outcome::Read, |_| true);
}

/// A plan with one key that was read for the first time at 0, and is tracked.
fn tracked() -> Plan {
    let mut plan = Plan::default();
    plan.add(&name("k"), 1, at(0), |_| true);
    assert_eq!(due(&mut plan, 0), ["k"]);
    read(&mut plan, "k", 1);
    assert_eq!(plan.next(), Tick::NEVER);
    plan
}

#[test]
fn old_hold_is_read_once_and_a_change_of_its_key_leads_to_a_read_at_once() {
    let mut plan = tracked();
    assert!(plan.change("k", at(5)), "the task has to look");
    assert_eq!(due(&mut plan, 5), ["k"]);
    read(&mut plan, "k", 6);
    assert_eq!(plan.next(), Tick::NEVER);
    assert!(!plan.change("other", at(7)));
}

#[test]
fn key_that_changes_all_the_time_is_read_once_a_second() {
    let mut plan = tracked();
    let mut reads = 0;
    for ms in 2..10 * SECOND {
        plan.change("k", at(ms));
        for key in due(&mut plan, ms) {
            reads += 1;
            read(&mut plan, &key, ms);
        }
    }
    assert_eq!(reads, 10);
}

#[test]
fn change_during_a_read_leads_to_another_read_after_it() {
    let mut plan = tracked();
    plan.change("k", at(5));
    assert_eq!(due(&mut plan, 5), ["k"]);
    assert!(!plan.change("k", at(6)), "nothing to do before the answer");
    assert!(due(&mut plan, 6).is_empty());
    read(&mut plan, "k", 7);
    assert_eq!(plan.next(), at(5 + SECOND));
    assert_eq!(due(&mut plan, 5 + SECOND), ["k"]);
}

#[test]
fn own_write_leads_to_a_read_a_second_later_and_a_change_to_one_before() {
    let mut plan = tracked();
    assert!(plan.wrote("k", at(10)));
    assert!(!plan.wrote("k", at(500)));
    assert_eq!(plan.next(), at(10 + SECOND));
    // A word of the server, which knows more.
    assert!(plan.change("k", at(600)));
    assert_eq!(plan.next(), at(600));
    assert_eq!(due(&mut plan, 600), ["k"]);
    read(&mut plan, "k", 601);
    assert_eq!(plan.next(), Tick::NEVER);
}

#[test]
fn another_old_hold_of_a_key_shares_the_read_of_that_key() {
    let mut plan = tracked();
    plan.add(&name("k"), 2, at(10), |_| true);
    let taken = plan.take_due(at(12));
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].1.as_slice(), [1, 2]);
    read(&mut plan, "k", 13);
    plan.add(&name("k"), 3, at(14), |_| true);
    assert_eq!(plan.next(), at(12 + SECOND), "once a second");
}

#[test]
fn owners_of_one_key_that_get_old_together_are_each_looked_at_a_few_times() {
    const OWNERS: u64 = 10_000;
    let mut plan = Plan::default();
    let looks = Cell::new(0);
    for number in 0..2 * OWNERS {
        // The first half has gone when the second half gets old.
        let is_watched = |other: u64| {
            looks.set(looks.get() + 1);
            number < OWNERS || other >= OWNERS
        };
        plan.add(&name("k"), number, at(0), is_watched);
    }
    let looks = looks.get();
    assert!(looks <= 4 * OWNERS, "{looks} looks at {OWNERS} owners");
    let taken = plan.take_due(at(SECOND));
    assert_eq!(taken[0].1.len() as u64, OWNERS);
}

#[test]
fn key_whose_holds_have_gone_begins_anew_with_the_next_one() {
    let mut plan = tracked();
    plan.change("k", at(5));
    assert_eq!(due(&mut plan, 5), ["k"]);
    read(&mut plan, "k", 6);
    plan.add(&name("k"), 2, at(7), |number| number != 1);
    assert_eq!(due(&mut plan, 7), ["k"]);
    read(&mut plan, "k", 8);
    plan.change("k", at(9));
    assert_eq!(
        due(&mut plan, 9),
        ["k"],
        "the rest was that of the former hold"
    );
}

#[test]
fn read_without_an_answer_is_repeated_after_a_second() {
    let mut plan = tracked();
    plan.change("k", at(5));
    assert_eq!(due(&mut plan, 5), ["k"]);
    plan.was_read(&name("k"), at(2_005), Outcome::NoAnswer, |_| true);
    assert_eq!(plan.next(), at(2_005 + SECOND));
}

#[test]
fn read_that_was_refused_is_repeated_seldom_and_a_change_leads_to_one_before() {
    let mut plan = tracked();
    plan.change("k", at(5));
    assert_eq!(due(&mut plan, 5), ["k"]);
    plan.was_read(&name("k"), at(10), Outcome::Refused, |_| true);
    assert_eq!(plan.next(), at(10).after(TRACK_REFUSED_AGAIN));
    plan.change("k", at(20));
    assert_eq!(plan.next(), at(5 + SECOND));
}

#[test]
fn reads_of_a_task_that_has_ended_are_repeated() {
    let mut plan = tracked();
    plan.change("k", at(5));
    assert_eq!(due(&mut plan, 5), ["k"]);
    plan.restart(at(9));
    assert_eq!(due(&mut plan, 9), ["k"]);
}

#[test]
fn word_about_all_keys_has_all_of_them_read() {
    let mut plan = tracked();
    plan.add(&name("l"), 2, at(1), |_| true);
    assert_eq!(due(&mut plan, 1), ["l"]);
    read(&mut plan, "l", 2);
    plan.change_all(at(3));
    assert_eq!(due(&mut plan, 3), ["k", "l"]);
}

#[test]
fn keys_whose_holds_have_gone_do_not_pile_up() {
    let mut plan = Plan::default();
    for number in 0..10_000 {
        let key = name(&format!("k{number}"));
        plan.add(&key, number, at(number), |_| true);
        let is_watched = |other: u64| other + 10 > number;
        for (key, _) in plan.take_due(at(number)) {
            plan.was_read(&key, at(number), Outcome::Read, is_watched);
        }
        plan.tidy(is_watched);
        assert!(plan.keys.len() <= 2 * 10 + SPARE + 1, "{}", plan.keys.len());
        assert!(plan.due.len() <= plan.keys.len());
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u64),
    Change(u64),
    ChangeAll,
    Wrote(u64),
    Pass(u64),
    Answer { failed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_u64..6).prop_map(Step::Add),
        4 => (0_u64..3).prop_map(Step::Change),
        1 => Just(Step::ChangeAll),
        1 => (0_u64..3).prop_map(Step::Wrote),
        4 => (0_u64..1_500).prop_map(Step::Pass),
        4 => any::<bool>().prop_map(|failed| Step::Answer { failed }),
    ]
}

proptest! {
    /// Invariants 1 and 2, for three keys with holds that stay.
    #[test]
    fn each_change_is_followed_by_a_read_and_a_key_is_read_once_a_second(
        steps in prop::collection::vec(step(), 0..80)
    ) {
        let mut plan = Plan::default();
        let mut now = 0;
        let key = |number: u64| name(&(number % 3).to_string());
        let mut reading: Vec<Name> = Vec::new();
        // The keys whose last change was not read yet, and when each was read last.
        let mut unread: BTreeMap<Name, ()> = BTreeMap::new();
        let mut reads: BTreeMap<Name, Vec<u64>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(number) => plan.add(&key(number), number, at(now), |_| true),
                Step::Change(number) => {
                    plan.change(&key(number), at(now));
                    if plan.keys.contains_key(&key(number)) {
                        unread.insert(key(number), ());
                    }
                }
                Step::ChangeAll => {
                    plan.change_all(at(now));
                    unread.extend(plan.keys.keys().map(|name| (Arc::clone(name), ())));
                }
                Step::Wrote(number) => {
                    plan.wrote(&key(number), at(now));
                }
                Step::Pass(ms) => now += ms,
                Step::Answer { failed } => {
                    if let Some(name) = reading.pop() {
                        let outcome = if failed {
                            Outcome::NoAnswer
                        } else {
                            Outcome::Read
                        };
                        plan.was_read(&name, at(now), outcome, |_| true);
                        if failed {
                            unread.insert(name, ());
                        }
                    }
                }
            }
            for (name, _) in plan.take_due(at(now)) {
                prop_assert!(!reading.contains(&name), "read twice at once");
                unread.remove(&name);
                reads.entry(Arc::clone(&name)).or_default().push(now);
                reading.push(name);
            }
            for name in unread.keys() {
                let entry = &plan.keys[name];
                let is_planned = match entry.state {
                    State::Due { at: due, .. } => due <= at(now + SECOND),
                    State::Reading { again } => again,
                    State::Tracked => false,
                };
                prop_assert!(is_planned, "{name} is {:?} at {now}", entry.state);
            }
        }
        for times in reads.values() {
            // The first one does not count.
            for pair in times[1..].windows(2) {
                prop_assert!(pair[1] >= pair[0] + SECOND, "{times:?}");
            }
        }
    }
}

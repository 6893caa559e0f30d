//! What the answers of a latch say about its count, and what they may not.
//!
//! All are set to one count. Whoever counts it down learns what is left: from one setting to the next each number is
//! told once, but to those who never heard. A 0 is told to more of them: to the last, and as long as there is no latch.

use super::{Change, Claim, Operation, Timestamp};

/// A change of a latch: from its call to the time by which it was carried out, if ever, and its answer.
struct Changed {
    called: Timestamp,
    until: Timestamp,
    returned: Timestamp,
    answer: Option<u64>,
}

/// Those that had this effect, or may have had.
fn changes(ops: &[&Operation], wanted: Change, effect: u64, settle: Timestamp) -> Vec<Changed> {
    let of_op = |op: &&Operation| {
        let (change, answer) = op.change?;
        let returned = op.returned.or(op.died).unwrap_or(Timestamp::MAX);
        let meant = change == wanted && answer.is_none_or(|answer| answer == effect);
        meant.then_some(Changed {
            called: op.called,
            until: returned.saturating_add(if answer.is_none() { settle } else { 0 }),
            returned,
            answer,
        })
    };
    ops.iter().filter_map(of_op).collect()
}

/// When the first of them may have come that may lie behind this time.
fn first_after(changes: &[Changed], time: Timestamp) -> Timestamp {
    let later = changes.iter().filter(|change| change.until >= time);
    later
        .map(|change| change.called)
        .min()
        .unwrap_or(Timestamp::MAX)
}

/// When it surely stood above 0: after it was set, until one may have counted it down to 0.
pub(super) fn above_0(ops: &[&Operation], settle: Timestamp) -> Vec<Claim> {
    let ends = changes(ops, Change::CountDown, 0, settle);
    let sets = changes(ops, Change::Set, 1, settle);
    let sure = sets.iter().filter(|set| set.answer.is_some());
    let eras = sure.map(|set| Claim {
        from: set.returned,
        to: first_after(&ends, set.called),
    });
    let mut eras: Vec<Claim> = eras.filter(|era| era.from < era.to).collect();
    eras.sort_by_key(|era| era.from);
    eras
}

/// When there surely was none: after a 0 was told, until one may have set it.
pub(super) fn at_0(ops: &[&Operation], settle: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let sets = changes(ops, Change::Set, 1, settle);
    let ends = changes(ops, Change::CountDown, 0, settle);
    let sure = ends.iter().filter(|end| end.answer.is_some());
    let gaps = sure.map(|end| (end.returned, first_after(&sets, end.called)));
    let mut gaps: Vec<_> = gaps.filter(|(from, to)| from < to).collect();
    // The first of those with one end is the longest.
    gaps.sort_unstable_by_key(|(from, to)| (*to, *from));
    gaps.dedup_by_key(|(_, to)| *to);
    gaps
}

/// A9: is a number told too often, or too seldom for those who never heard, of a latch that was set to `count` each time
/// and ends with `left`?
#[must_use]
pub fn wrong_sum(ops: &[&Operation], count: u64, left: u64) -> Option<String> {
    let told = |wanted, answer| {
        let same = |op: &&&Operation| op.change == Some((wanted, answer));
        ops.iter().filter(same).count()
    };
    let (set, perhaps) = (told(Change::Set, Some(1)), told(Change::Set, None));
    let (mut missing, unheard) = (0, told(Change::CountDown, None));
    for number in 1..count {
        let told = told(Change::CountDown, Some(number));
        if told > set + perhaps {
            let what =
                format!("{number} was told {told} times, for {set} settings, or {perhaps} more");
            return Some(what);
        }
        let passed = set - usize::from(number < left).min(set);
        missing += passed.saturating_sub(told);
    }
    (missing > unheard)
        .then(|| format!("{missing} counts missing, and {unheard} were never answered"))
}

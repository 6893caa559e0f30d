//! What the answers of a latch say about its count.
//!
//! All latches are set to the same count. The answer to a count-down is the new count, so from one setting to the next each
//! number is answered once, unless the answer was lost. Only 0 is answered more often: also while there is no latch.

use super::{Change, Claim, Operation, Timestamp};

/// A change of a latch: from its call to the time by which it was carried out, if ever, and its answer.
struct Changed {
    called: Timestamp,
    until: Timestamp,
    returned: Timestamp,
    answer: Option<u64>,
}

/// The changes that had this effect, or may have had it.
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

/// When the first change that may have come after this time was called.
fn first_after(changes: &[Changed], time: Timestamp) -> Timestamp {
    let later = changes.iter().filter(|change| change.until >= time);
    later
        .map(|change| change.called)
        .min()
        .unwrap_or(Timestamp::MAX)
}

/// When the count was surely above 0: after it was set, until a change may have counted it down to 0.
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

/// When the count was surely 0: after a 0 was answered, until a change may have set it.
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

/// A9: how the answers of a latch are wrong, if they are. It was set to `count` each time and ends with `left`. A number that
/// was answered too often is wrong, and so are more missing answers than were lost.
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

//! The queue by its calls, also random ones.

use std::time::Duration;

use proptest::prelude::*;
#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::config::{
    HAND_OVER_GRANTS, HAND_OVER_GRANTS_ALONE, HAND_OVER_TIME, HAND_OVER_TIME_ALONE,
};

type Local = Queue<u32, u64>;

fn queue(waiters: u64) -> (Local, Vec<Ticket>) {
    let mut queue = Local::new();
    let tickets = (0..waiters).map(|n| queue.join(n, true, None)).collect();
    (queue, tickets)
}

#[test]
fn first_come_is_head_and_the_next_is_woken_when_it_leaves() {
    let (mut queue, tickets) = queue(3);
    assert!(queue.is_head(tickets[0]));
    assert_eq!(queue.leave(tickets[1], |_| true), QueueEffect::Nothing);
    assert_eq!(queue.leave(tickets[0], |_| true), QueueEffect::Wake(2));
    assert_eq!(queue.leave(tickets[2], |_| true), QueueEffect::Nothing);
    assert!(queue.is_empty());
}

#[test]
fn waiters_that_come_back_to_earlier_places_stand_before_the_head_and_between_others() {
    let (mut queue, tickets) = queue(3);
    for (at, next) in [(0, 1), (1, 2)] {
        let left = queue.leave(tickets[at], |_| true);
        assert_eq!(left, QueueEffect::Wake(next));
    }
    for at in [0, 1] {
        queue.join(at, true, Some(tickets[at as usize]));
    }
    assert!(queue.wakers().eq(&[0, 1, 2]) && queue.is_head(tickets[0]));
    assert!(tickets.iter().all(|ticket| queue.has(*ticket)));
    for (at, next) in [(0, 1), (1, 2)] {
        let left = queue.leave(tickets[at], |_| true);
        assert_eq!(left, QueueEffect::Wake(next));
    }
    assert_eq!(queue.len(), 1);
}

#[test]
fn one_that_lets_everybody_pass_stands_behind_all_that_come_later() {
    let mut queue = Local::new();
    let resting = [
        queue.join(0, false, Some(Ticket::last())),
        queue.join(1, false, Some(Ticket::last())),
    ];
    assert!(queue.is_head(resting[0]) && queue.is_head_at_rest());
    let later = queue.join(2, true, None);
    assert!(queue.is_head(later) && !queue.is_head_at_rest());
    assert!(queue.wakers().eq(&[2, 0, 1]));
    assert_eq!(
        queue.release(7, true, Tick::default()),
        QueueEffect::HandedOver(2)
    );
    // A hold is not handed over to one that rests.
    assert_eq!(
        queue.leave(later, |_| true),
        QueueEffect::ReleaseAndWake(7, 0)
    );
    assert!(queue.is_head_at_rest());
    assert_eq!(queue.next_after(resting[0]), Some(&1));
    assert_eq!(
        queue.release(8, true, Tick::default()),
        QueueEffect::Release(8)
    );
}

#[test]
fn line_that_was_let_go_is_empty_and_its_tickets_void() {
    let (mut queue, tickets) = queue(3);
    assert_eq!(queue.granted(tickets[0]), QueueEffect::Wake(1));
    assert!(!queue.has(tickets[0]) && queue.has(tickets[2]));
    assert_eq!(queue.dismiss(), [1, 2]);
    assert!(queue.is_empty() && !queue.has(tickets[2]));
    let newcomer = queue.join(3, false, None);
    assert_eq!(queue.leave(tickets[1], |_| true), QueueEffect::Nothing);
    assert!(queue.is_head(newcomer) && queue.has(newcomer));
}

#[test]
fn hold_passes_to_the_head_who_takes_it_once() {
    let (mut queue, tickets) = queue(2);
    assert_eq!(
        queue.release(7, true, Tick::default()),
        QueueEffect::HandedOver(0)
    );
    assert_eq!(queue.take(tickets[1]), None);
    assert_eq!(queue.take(tickets[0]), Some(7));
    assert_eq!(queue.take(tickets[0]), None);
    assert_eq!(queue.granted(tickets[0]), QueueEffect::Wake(1));
}

#[test]
fn head_that_leaves_with_a_hold_in_its_slot_passes_it_on_or_has_it_released() {
    let (mut queue, tickets) = queue(3);
    let _ = queue.release(7, true, Tick::default());
    assert_eq!(
        queue.leave(tickets[0], |_| true),
        QueueEffect::HandedOver(1)
    );
    assert_eq!(
        queue.leave(tickets[1], |_| false),
        QueueEffect::ReleaseAndWake(7, 2)
    );
    let _ = queue.release(8, true, Tick::default());
    assert_eq!(queue.leave(tickets[2], |_| true), QueueEffect::Release(8));
}

#[test]
fn hold_lies_in_the_slot_until_the_head_takes_it() {
    let (mut queue, tickets) = queue(1);
    assert!(!queue.is_empty() && !queue.has_offer());
    let _ = queue.release(7, true, Tick::default());
    assert!(queue.has_offer());
    assert_eq!(queue.take(tickets[0]), Some(7));
    assert!(!queue.has_offer());
}

#[test]
fn grant_that_goes_on_with_a_run_leaves_what_was_in_the_slot_to_be_released() {
    let (mut queue, _) = queue(2);
    let _ = queue.release(7, true, Tick::default());
    assert_eq!(queue.went_on(), Some(7));
    assert!(!queue.has_offer());
}

#[test]
fn tickets_of_a_waiter_are_found_wherever_they_stand() {
    let (queue, tickets) = queue(3);
    let wanted = BTreeSet::from([tickets[0], tickets[2], Ticket::new()]);
    assert_eq!(queue.those_of(&wanted), [tickets[0], tickets[2]]);
}

#[test]
fn hold_that_ends_after_the_run_was_ended_is_released() {
    let (mut queue, _) = queue(1);
    queue.run.end();
    assert_eq!(
        queue.release(7, true, Tick::default()),
        QueueEffect::Release(7)
    );
    assert_eq!(queue.began(Tick::default()), None);
    assert_eq!(
        queue.release(8, true, Tick::default()),
        QueueEffect::HandedOver(0)
    );
}

#[test]
fn waiter_with_a_lease_of_its_own_is_handed_nothing() {
    let (mut queue, tickets) = queue(1);
    let own_lease = queue.join(1, false, None);
    assert_eq!(
        queue.release(7, true, Tick::default()),
        QueueEffect::HandedOver(0)
    );
    assert_eq!(
        queue.leave(tickets[0], |_| true),
        QueueEffect::ReleaseAndWake(7, 1)
    );
    assert_eq!(
        queue.release(8, true, Tick::default()),
        QueueEffect::Release(8)
    );
    assert!(queue.is_head(own_lease));
}

#[test]
fn granted_by_the_server_with_a_hold_in_the_slot_leaves_that_one_to_be_released() {
    let (mut queue, tickets) = queue(2);
    let _ = queue.release(7, true, Tick::default());
    assert_eq!(queue.began(Tick::default()), Some(7));
    assert_eq!(queue.granted(tickets[0]), QueueEffect::Wake(1));
}

#[test]
fn run_ends_by_count_and_by_time_and_begins_anew_with_a_grant() {
    let (mut queue, _) = queue(1);
    for _ in 0..HAND_OVER_GRANTS {
        assert_eq!(
            queue.release(7, true, Tick::default()),
            QueueEffect::HandedOver(0)
        );
        queue.slot = None;
    }
    assert_eq!(
        queue.release(7, true, Tick::default()),
        QueueEffect::Release(7)
    );
    assert_eq!(queue.began(Tick::from_millis(5)), None);
    let late = Tick::from_millis(5).after(HAND_OVER_TIME);
    assert_eq!(queue.release(7, true, late), QueueEffect::Release(7));
    assert_eq!(
        queue.release(7, true, Tick::from_millis(6)),
        QueueEffect::HandedOver(0)
    );
}

#[test]
fn run_has_more_grants_while_no_other_client_listens_and_no_longer_time() {
    const MANY: usize = 10_000;
    let (mut queue, _) = queue(1);
    let grants = |queue: &mut Local, now| {
        let _ = queue.began(Tick::default());
        let handed_over = std::iter::repeat_with(|| {
            let effect = queue.release(7, true, now);
            queue.slot = None;
            effect
        });
        let one = QueueEffect::HandedOver(0);
        let handed_over = handed_over.take_while(|effect| *effect == one);
        handed_over.take(MANY).count()
    };
    let start = Tick::default();
    let soon = start.after(HAND_OVER_TIME_ALONE);
    let late = start.after(HAND_OVER_TIME);
    assert_eq!(grants(&mut queue, start), HAND_OVER_GRANTS as usize);
    queue.run.released(true);
    // For a while as many as there are, and then up to a number.
    assert_eq!(grants(&mut queue, start), MANY);
    assert_eq!(grants(&mut queue, soon), HAND_OVER_GRANTS_ALONE as usize);
    assert_eq!(queue.run.turn_of_others(), HAND_OVER_GRANTS + 1);
    assert_eq!(grants(&mut queue, late), 0);
    queue.run.released(false);
    assert_eq!(grants(&mut queue, start), HAND_OVER_GRANTS as usize);
}

#[test]
fn head_that_gives_no_sign_between_two_checks_is_absent_if_it_is_in_the_way() {
    let (mut queue, tickets) = queue(2);
    assert_eq!(queue.check_head(|_| false), HeadCheck::Ask(0));
    assert_eq!(queue.check_head(|_| true), HeadCheck::Ask(0));
    assert_eq!(
        queue.check_head(|_| false),
        HeadCheck::Absent(tickets[0], 0)
    );
    assert_eq!(queue.leave(tickets[0], |_| true), QueueEffect::Wake(1));
    // Nobody is behind the other one, until a hold lies in its slot.
    assert_eq!(queue.check_head(|_| false), HeadCheck::Fine);
    let _ = queue.release(7, true, Tick::default());
    assert_eq!(queue.check_head(|_| false), HeadCheck::Ask(1));
    assert_eq!(
        queue.check_head(|_| false),
        HeadCheck::Absent(tickets[1], 1)
    );
    assert_eq!(queue.leave(tickets[1], |_| true), QueueEffect::Release(7));
    assert_eq!(queue.check_head(|_| false), HeadCheck::Fine);
}

#[test]
fn hold_that_may_not_pass_on_is_released() {
    let (mut queue, _) = queue(1);
    assert_eq!(
        queue.release(7, false, Tick::default()),
        QueueEffect::Release(7)
    );
}

/// What this thread has had of the processor. A busy machine changes it little.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// The time of the processor in which this many waiters leave `lines` queues of equal length, in no order.
#[cfg(unix)]
fn time_to_leave(lines: usize, waiters: u64) -> Duration {
    let mut time = Duration::ZERO;
    for _ in 0..lines {
        let (mut queue, tickets) = queue(waiters / lines as u64);
        let start = processor_time();
        let (odd, even): (Vec<Ticket>, Vec<Ticket>) = tickets
            .into_iter()
            .partition(|ticket| ticket.0.get() % 2 == 1);
        for ticket in odd.into_iter().chain(even.into_iter().rev()) {
            let _ = queue.leave(ticket, |_| true);
        }
        time += processor_time() - start;
        assert!(queue.is_empty());
    }
    time
}

#[cfg(unix)]
#[test]
fn leaving_a_long_line_takes_no_longer_than_leaving_many_short_ones() {
    // The best of several, because other threads take the processor's caches.
    let best = |lines| (0..5).map(|_| time_to_leave(lines, 20_000)).min().unwrap();
    let short = best(100);
    let long = best(1);
    // If each of them looked at the whole line, the long line would take a hundred times as long.
    assert!(long < 15 * short, "{long:?} against {short:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Join(bool),
    Leave(usize, bool),
    Take,
    Grant,
    Release(bool),
}

fn step() -> impl Strategy<Value = Step> {
    (0..144_u8).prop_map(|n| match n / 12 {
        0..3 => Step::Join(n % 2 == 0),
        3..5 => Step::Leave(usize::from(n % 6), n % 12 < 6),
        5..8 => Step::Take,
        8 => Step::Grant,
        _ => Step::Release(n % 2 == 0),
    })
}

proptest! {
    // Some 100,000 waiters come and leave.
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Each hold is in one place, and the queue keeps its order. The head always knows its position: no waiter was
    /// before it when it joined, or it was woken, and no waiter that left has lost the wake-up.
    #[test]
    fn random_calls_keep_each_hold_in_one_place(steps in prop::collection::vec(step(), 1..200)) {
        let (mut queue, mut line) = queue(0);
        let mut guards = Vec::new();
        let mut sent = Vec::new();
        let mut made = 0_u32;
        let mut joined = 0;
        let mut head_told = None;
        for step in steps {
            let head = line.first().copied();
            let then = match step {
                Step::Join(takes_over) => {
                    joined += 1;
                    line.push(queue.join(joined, takes_over, None));
                    head_told = head_told.or(Some(joined));
                    QueueEffect::Nothing
                }
                Step::Leave(who, live) if !line.is_empty() => {
                    let gone = line.remove(who % line.len());
                    queue.leave(gone, |_| live)
                }
                Step::Take => match head.and_then(|head| Some((head, queue.take(head)?))) {
                    Some((head, hold)) => {
                        guards.push(hold);
                        line.retain(|ticket| *ticket != head);
                        queue.granted(head)
                    }
                    None => QueueEffect::Nothing,
                },
                Step::Grant => match head {
                    Some(head) => {
                        made += 1;
                        guards.push(made);
                        sent.extend(queue.began(Tick::default()));
                        line.retain(|ticket| *ticket != head);
                        queue.granted(head)
                    }
                    None => QueueEffect::Nothing,
                },
                Step::Release(live) => match guards.pop() {
                    Some(hold) => queue.release(hold, live, Tick::default()),
                    None => QueueEffect::Nothing,
                },
                Step::Leave(..) => QueueEffect::Nothing,
            };
            if let QueueEffect::HandedOver(_) = then {
                prop_assert!(queue.slot.is_some() && !line.is_empty());
            }
            if let QueueEffect::Wake(who) | QueueEffect::HandedOver(who) | QueueEffect::ReleaseAndWake(_, who) = then {
                head_told = Some(who);
            }
            if let QueueEffect::Release(hold) | QueueEffect::ReleaseAndWake(hold, _) = then {
                sent.push(hold);
            }
            if line.is_empty() {
                head_told = None;
            }
            prop_assert_eq!(queue.head().map(|head| head.wake), head_told);
            let mut places: Vec<u32> = guards.iter().chain(&sent).chain(&queue.slot).copied().collect();
            places.sort_unstable();
            prop_assert_eq!(places, (1..=made).collect::<Vec<_>>());
            prop_assert_eq!(queue.len(), line.len());
            prop_assert!(line.first().is_none_or(|head| queue.is_head(*head)));
            let head_takes_over = queue.head().is_some_and(|head| head.takes_over);
            prop_assert!(queue.slot.is_none() || head_takes_over);
        }
    }
}

//! State machine 2: the local waiters of one key, first come, first served, and the hold that is handed from one to the next.
//!
//! Plain data: no clock, no I/O, no `.await`. It is generic over the hold `H` and over `W`, which wakes a waiter. A
//! [`QueueEffect`] tells the caller what to wake and to send, after it has released the mutex around the queue.
//!
//! [`Queue::release`] decides whether a hold is handed over.
//!
//! # Invariants
//! 1. Only the head of the queue talks to the backend, and only the head's slot is ever filled.
//! 2. Each hold is in one place: with a guard, in the slot, or with the caller that has to release it.
//! 3. A waiter that leaves passes on the hold in its slot, or the position at the head.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Tick;
use crate::config::{HAND_OVER_GRANTS, HAND_OVER_GRANTS_ALONE, HAND_OVER_TIME};

/// A waiter's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// A ticket that is higher than every earlier one of any queue. A queue that was dismissed is forgotten, and its tickets
    /// must be void in the key's next queue as well.
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a queue takes its tickets under its own mutex, which keeps them in order there.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A ticket that is higher than all that [`new`](Ticket::new) makes, before or after: its waiter lets everybody pass.
    pub(crate) fn last() -> Self {
        Self(Self::new().0 | Self::LAST)
    }

    const LAST: u64 = 1 << 63;
}

/// What the caller has to do after a change.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum QueueEffect<H, W> {
    /// Nothing.
    Nothing,
    /// Wake the new head: it may talk to the backend now.
    Wake(W),
    /// Wake the head: a hold lies in its slot.
    HandedOver(W),
    /// Release this hold in the server: there is no waiter, other processes go first, or the hold cannot be handed
    /// over.
    Release(H),
    /// Release this hold in the server, and wake the new head.
    ReleaseAndWake(H, W),
}

#[derive(Debug)]
struct Waiter<W> {
    wake: W,
    takes_over: bool,
}

/// The waiters of one key.
#[derive(Debug)]
pub(crate) struct Queue<H, W> {
    /// In place, since most queues never have another waiter.
    first: Option<(Ticket, Waiter<W>)>,
    /// The other waiters by ticket, which is the order of their arrival. Any of them may leave at any time, also thousands at
    /// once. The map is empty while `first` is. Its tickets are higher than that of the first waiter.
    behind: BTreeMap<Ticket, Waiter<W>>,
    /// The hold that was handed to the head and not yet taken.
    slot: Option<H>,
    run: Run,
    /// The head that was asked for a sign of life.
    asked: Option<Ticket>,
}

/// What has to be done about the head of a queue, which may be a waiter that nobody polls any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeadCheck<W> {
    /// Nothing: it is in nobody's way.
    Fine,
    /// Ask it for a sign, and check again later.
    Ask(W),
    /// It has not answered: it loses its place.
    Absent(Ticket),
}

/// How long holds of this client have followed each other by hand-over.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The grants that followed the first one.
    grants: u32,
    since: Tick,
    is_over: bool,
    /// Whether no other client listened to the last release, before or in this run.
    is_alone: bool,
}

impl<H, W: Clone> Queue<H, W> {
    pub(crate) fn new() -> Self {
        Self {
            first: None,
            behind: BTreeMap::new(),
            slot: None,
            run: Run::default(),
            asked: None,
        }
    }

    /// Joins the queue. `takes_over`: a hold may be handed over to this waiter. `rank`: the place that it keeps, which may
    /// be before others, also before a head with a hold in its slot; otherwise it joins the end, before those that
    /// [let everybody pass](Ticket::last).
    pub(crate) fn join(&mut self, wake: W, takes_over: bool, rank: Option<Ticket>) -> Ticket {
        let ticket = rank.unwrap_or_else(Ticket::new);
        let mut later = (ticket, Waiter { wake, takes_over });
        match &mut self.first {
            None => {
                self.first = Some(later);
                return ticket;
            }
            Some(first) if ticket < first.0 => std::mem::swap(first, &mut later),
            Some(_) => {}
        }
        self.behind.insert(later.0, later.1);
        ticket
    }

    fn remove(&mut self, ticket: Ticket) {
        if self.is_head(ticket) {
            self.first = self.behind.pop_first();
        } else {
            self.behind.remove(&ticket);
        }
    }

    fn head(&self) -> Option<&Waiter<W>> {
        self.first.as_ref().map(|(_, waiter)| waiter)
    }

    pub(crate) fn is_head(&self, ticket: Ticket) -> bool {
        self.first.as_ref().is_some_and(|(head, _)| *head == ticket)
    }

    /// Whether all waiters let everybody pass; see [`Ticket::last`].
    pub(crate) fn is_head_at_rest(&self) -> bool {
        self.first
            .as_ref()
            .is_some_and(|(head, _)| head.0 & Ticket::LAST != 0)
    }

    /// What wakes the one behind this ticket.
    pub(crate) fn next_after(&self, ticket: Ticket) -> Option<&W> {
        let behind = self
            .behind
            .range((Bound::Excluded(ticket), Bound::Unbounded));
        behind.map(|(_, waiter)| &waiter.wake).next()
    }

    /// Whether the ticket is still in the queue. A ticket of a dismissed queue is not.
    pub(crate) fn has(&self, ticket: Ticket) -> bool {
        self.is_head(ticket) || self.behind.contains_key(&ticket)
    }

    /// What wakes each of the waiters.
    pub(crate) fn signals(&self) -> impl Iterator<Item = &W> {
        let waiters = self.head().into_iter().chain(self.behind.values());
        waiters.map(|waiter| &waiter.wake)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.behind.len()
    }

    /// Whether a hold lies in the slot of the head.
    pub(crate) fn has_offer(&self) -> bool {
        self.slot.is_some()
    }

    /// Takes the hold that was handed to the head, which stays in the queue until [`granted`](Queue::granted) or
    /// [`leave`](Queue::leave).
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<H> {
        if self.is_head(ticket) {
            self.slot.take()
        } else {
            None
        }
    }

    /// Begins a new run: the backend granted a hold at `now`, to the head or to an acquisition that did not queue.
    ///
    /// Returns a hold that was in the slot. It is out of date, because the grant shows that the server no longer has
    /// it.
    #[must_use]
    pub(crate) fn began(&mut self, now: Tick) -> Option<H> {
        self.run = Run {
            grants: 0,
            since: now,
            is_over: false,
            ..self.run
        };
        self.slot.take()
    }

    /// Removes a waiter that has its hold now. It was the head, or it has lost its place while its attempt was under way.
    /// The first in line waits for the end of this hold.
    pub(crate) fn granted(&mut self, ticket: Ticket) -> QueueEffect<H, W> {
        debug_assert!(
            self.slot.is_none(),
            "the head has taken what was in its slot"
        );
        self.remove(ticket);
        self.head().map_or(QueueEffect::Nothing, |head| {
            QueueEffect::Wake(head.wake.clone())
        })
    }

    /// Removes all waiters and returns the values that wake them. It is for kinds whose holds do not exclude each
    /// other, so that each waiter may ask the server on its own. The tickets are void after that.
    #[must_use]
    pub(crate) fn dismiss(&mut self) -> Vec<W> {
        let (first, behind) = (self.first.take(), std::mem::take(&mut self.behind));
        let first = first.map(|(_, waiter)| waiter);
        let waiters = first.into_iter().chain(behind.into_values());
        waiters.map(|waiter| waiter.wake).collect()
    }

    /// Ends a guard's hold: it is handed over to the head, or it has to be released in the server.
    ///
    /// It is handed over if it `may_pass_on` (it has no guard, is held, and is of a kind that hands over), if the head takes
    /// over, and if the run of hand-overs is neither too long nor too old.
    pub(crate) fn release(&mut self, hold: H, may_pass_on: bool, now: Tick) -> QueueEffect<H, W> {
        let run_goes_on = self.run_goes_on(now);
        let Some(head) = self.head() else {
            return QueueEffect::Release(hold);
        };
        if may_pass_on && head.takes_over && run_goes_on && self.slot.is_none() {
            let wake = head.wake.clone();
            self.count_grant();
            self.slot = Some(hold);
            return QueueEffect::HandedOver(wake);
        }
        QueueEffect::Release(hold)
    }

    /// Whether one more grant may follow without a turn of other processes.
    pub(crate) fn run_goes_on(&self, now: Tick) -> bool {
        let Run {
            grants,
            since,
            is_over,
            is_alone,
        } = self.run;
        let most = match is_alone {
            true => HAND_OVER_GRANTS_ALONE,
            false => HAND_OVER_GRANTS,
        };
        !is_over && grants < most && now.since(since) < HAND_OVER_TIME
    }

    /// How many grants another client gets after this run. It is not given more for a time in which it did not wait.
    pub(crate) fn turn_of_others(&self) -> u32 {
        (self.run.grants + 1).min(HAND_OVER_GRANTS + 1)
    }

    /// The server has answered a release. `is_alone`: no other client listened to its message.
    pub(crate) fn released(&mut self, is_alone: bool) {
        self.run.is_alone = is_alone;
    }

    /// Counts a grant that follows without a turn of other processes.
    pub(crate) fn count_grant(&mut self) {
        self.run.grants += 1;
    }

    /// Ends the run: after this holder, other processes get a turn.
    pub(crate) fn end_run(&mut self) {
        self.run.is_over = true;
    }

    /// The backend granted a hold to an attempt that was sent right behind a release of this client: the run goes on.
    ///
    /// Returns a hold that was in the slot, as [`began`](Queue::began) does.
    #[must_use]
    pub(crate) fn went_on(&mut self) -> Option<H> {
        self.slot.take()
    }

    /// Whether a head that is not polled would be in somebody's way.
    pub(crate) fn needs_its_head(&self) -> bool {
        !self.behind.is_empty() || self.slot.is_some()
    }

    /// Checks the head, at intervals. A head that was asked at the last check and is not present is absent.
    pub(crate) fn check_head(&mut self, is_present: impl FnOnce(&W) -> bool) -> HeadCheck<W> {
        let Some((ticket, head)) = self.first.as_ref().filter(|_| self.needs_its_head()) else {
            self.asked = None;
            return HeadCheck::Fine;
        };
        if self.asked == Some(*ticket) && !is_present(&head.wake) {
            return HeadCheck::Absent(*ticket);
        }
        self.asked = Some(*ticket);
        HeadCheck::Ask(head.wake.clone())
    }

    /// Which of these waiters are in this queue.
    pub(crate) fn those_of(&self, tickets: &BTreeSet<Ticket>) -> Vec<Ticket> {
        let first = self.first.iter().map(|(ticket, _)| ticket);
        let all = first.chain(self.behind.keys());
        all.filter(|ticket| tickets.contains(ticket))
            .copied()
            .collect()
    }

    /// Removes a waiter that gives up. If a hold is in its slot, `may_pass_on` decides whether the next waiter can have
    /// it.
    pub(crate) fn leave(
        &mut self,
        ticket: Ticket,
        may_pass_on: impl FnOnce(&H) -> bool,
    ) -> QueueEffect<H, W> {
        let was_head = self.is_head(ticket);
        self.remove(ticket);
        if !was_head {
            return QueueEffect::Nothing;
        }
        let next = self.head();
        let takes_over = next.is_some_and(|head| head.takes_over);
        let next = next.map(|head| head.wake.clone());
        match (self.slot.take(), next) {
            (Some(hold), Some(next)) if takes_over && may_pass_on(&hold) => {
                self.slot = Some(hold);
                QueueEffect::HandedOver(next)
            }
            (Some(hold), Some(next)) => QueueEffect::ReleaseAndWake(hold, next),
            (Some(hold), None) => QueueEffect::Release(hold),
            (None, Some(next)) => QueueEffect::Wake(next),
            (None, None) => QueueEffect::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

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
        assert!(queue.signals().eq(&[0, 1, 2]) && queue.is_head(tickets[0]));
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
        assert!(queue.signals().eq(&[2, 0, 1]));
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
        let (mut queue, _) = queue(1);
        let grants = |queue: &mut Local, now| {
            let _ = queue.began(Tick::default());
            let handed_over = std::iter::repeat_with(|| {
                let effect = queue.release(7, true, now);
                queue.slot = None;
                effect
            });
            let one = QueueEffect::HandedOver(0);
            handed_over.take_while(|effect| *effect == one).count()
        };
        let (start, late) = (Tick::default(), Tick::default().after(HAND_OVER_TIME));
        assert_eq!(grants(&mut queue, start), HAND_OVER_GRANTS as usize);
        queue.released(true);
        assert_eq!(grants(&mut queue, start), HAND_OVER_GRANTS_ALONE as usize);
        assert_eq!(queue.turn_of_others(), HAND_OVER_GRANTS + 1);
        assert_eq!(grants(&mut queue, late), 0);
        queue.released(false);
        assert_eq!(grants(&mut queue, start), HAND_OVER_GRANTS as usize);
    }

    #[test]
    fn head_that_gives_no_sign_between_two_checks_is_absent_if_it_is_in_the_way() {
        let (mut queue, tickets) = queue(2);
        assert_eq!(queue.check_head(|_| false), HeadCheck::Ask(0));
        assert_eq!(queue.check_head(|_| true), HeadCheck::Ask(0));
        assert_eq!(queue.check_head(|_| false), HeadCheck::Absent(tickets[0]));
        assert_eq!(queue.leave(tickets[0], |_| true), QueueEffect::Wake(1));
        // Nobody is behind the other one, until a hold lies in its slot.
        assert_eq!(queue.check_head(|_| false), HeadCheck::Fine);
        let _ = queue.release(7, true, Tick::default());
        assert_eq!(queue.check_head(|_| false), HeadCheck::Ask(1));
        assert_eq!(queue.check_head(|_| false), HeadCheck::Absent(tickets[1]));
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

    /// The time in which this many waiters leave `lines` queues of equal length, in no order.
    fn time_to_leave(lines: usize, waiters: u64) -> Duration {
        let mut time = Duration::ZERO;
        for _ in 0..lines {
            let (mut queue, tickets) = queue(waiters / lines as u64);
            let start = Instant::now();
            let (odd, even): (Vec<Ticket>, Vec<Ticket>) =
                tickets.into_iter().partition(|ticket| ticket.0 % 2 == 1);
            for ticket in odd.into_iter().chain(even.into_iter().rev()) {
                let _ = queue.leave(ticket, |_| true);
            }
            time += start.elapsed();
            assert!(queue.is_empty());
        }
        time
    }

    #[test]
    fn leaving_a_long_line_takes_no_longer_than_leaving_many_short_ones() {
        // The best of several, because a busy machine may stop any one of them.
        let best = |lines| (0..5).map(|_| time_to_leave(lines, 20_000)).min().unwrap();
        let (short, long) = (best(100), best(1));
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
            let (mut guards, mut sent, mut made) = (Vec::new(), Vec::new(), 0_u32);
            let (mut joined, mut head_told) = (0, None);
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
}

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
use std::num::NonZeroU64;
use std::ops::Bound;

use super::turns::GrantRun;
use crate::clock::Tick;
use crate::sync::atomic::{Ordering, StaticU64};

/// A waiter's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(NonZeroU64);

impl Ticket {
    /// A ticket that is higher than every earlier one of any queue. A queue that was dismissed is forgotten, and its tickets
    /// must be void in the key's next queue as well.
    fn new() -> Self {
        static NEXT: StaticU64 = StaticU64::new(0);
        // Relaxed: a queue takes its tickets under its own mutex, which keeps them in order there.
        let before = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::MIN.saturating_add(before))
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
    /// The other waiters by ticket, which is the order of their arrival. Each of them may leave at any time, and thousands may
    /// leave at once. The map is empty while `first` is. Its tickets are higher than that of the first waiter.
    behind: BTreeMap<Ticket, Waiter<W>>,
    /// The hold that was handed to the head and not yet taken.
    slot: Option<H>,
    pub(crate) run: GrantRun,
    /// The head that was asked for a sign of life.
    asked: Option<Ticket>,
}

/// What has to be done about the head of a queue, which may be a waiter that nobody polls any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeadCheck<W> {
    /// Nothing: it blocks nobody.
    Fine,
    /// Ask it for a sign, and check again later.
    Ask(W),
    /// It has not answered: it loses its place, and is woken so that it finds that out as soon as it is polled again.
    Absent(Ticket, W),
}

impl<H, W: Clone> Queue<H, W> {
    pub(crate) fn new() -> Self {
        Self {
            first: None,
            behind: BTreeMap::new(),
            slot: None,
            run: GrantRun::default(),
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
            // A hold in the slot is for the new head from now on.
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
            .is_some_and(|(head, _)| head.0.get() & Ticket::LAST != 0)
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
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &W> {
        let waiters = self.head().into_iter().chain(self.behind.values());
        waiters.map(|waiter| &waiter.wake)
    }

    /// Whether it has no waiter, and nothing has happened since its run [began](Queue::began).
    pub(crate) fn is_new(&self) -> bool {
        self.is_empty() && self.slot.is_none() && self.run.is_new()
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
        self.run.begin(now);
        self.slot.take()
    }

    /// Removes a waiter that has its hold now. It was the head, or it has lost its place while its attempt was under way.
    /// The first in line waits for the end of this hold.
    pub(crate) fn granted(&mut self, ticket: Ticket) -> QueueEffect<H, W> {
        self.remove(ticket);
        self.head().map_or(QueueEffect::Nothing, |head| {
            QueueEffect::Wake(head.wake.clone())
        })
    }

    /// Removes all waiters and returns the values that wake them. It is for kinds whose holds do not exclude each
    /// other, so that each waiter may ask the server on its own. The tickets are void after that.
    #[must_use]
    pub(crate) fn dismiss(&mut self) -> Vec<W> {
        let first = self.first.take();
        let behind = std::mem::take(&mut self.behind);
        let first = first.map(|(_, waiter)| waiter);
        let waiters = first.into_iter().chain(behind.into_values());
        waiters.map(|waiter| waiter.wake).collect()
    }

    /// Ends a guard's hold: it is handed over to the head, or it has to be released in the server.
    ///
    /// It is handed over if it `may_pass_on` (it has no guard, is held, and is of a kind that hands over), if the head takes
    /// over, and if the run of hand-overs is neither too long nor too old.
    pub(crate) fn release(&mut self, hold: H, may_pass_on: bool, now: Tick) -> QueueEffect<H, W> {
        let run_goes_on = self.run.goes_on(now);
        let Some(head) = self.head() else {
            return QueueEffect::Release(hold);
        };
        if may_pass_on && head.takes_over && run_goes_on && self.slot.is_none() {
            let wake = head.wake.clone();
            self.run.count_grant();
            self.slot = Some(hold);
            return QueueEffect::HandedOver(wake);
        }
        QueueEffect::Release(hold)
    }

    /// The backend granted a hold to an attempt that was sent right behind a release of this client: the run continues.
    ///
    /// Returns a hold that was in the slot, as [`began`](Queue::began) does.
    #[must_use]
    pub(crate) fn went_on(&mut self) -> Option<H> {
        self.slot.take()
    }

    /// Whether a head that is not polled would block somebody.
    pub(crate) fn needs_its_head(&self) -> bool {
        !self.behind.is_empty() || self.slot.is_some()
    }

    /// Checks the head, at intervals. A head that was asked at the last check and is not present is absent.
    pub(crate) fn check_head(&mut self, is_present: impl FnOnce(&W) -> bool) -> HeadCheck<W> {
        let Some((ticket, head)) = self.first.as_ref().filter(|_| self.needs_its_head()) else {
            // So that a head that blocks somebody later is asked before it counts as absent.
            self.asked = None;
            return HeadCheck::Fine;
        };
        if self.asked == Some(*ticket) && !is_present(&head.wake) {
            return HeadCheck::Absent(*ticket, head.wake.clone());
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
        // A rule of tests/model: waiter_that_leaves_passes_the_hold_on.
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
mod tests;

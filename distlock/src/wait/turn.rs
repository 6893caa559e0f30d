//! An acquisition's turn in the queue of its key. The waiter of one server and the rounds of a quorum both use it.

use std::sync::Arc;
use std::time::Duration;

use super::request::Request;
use crate::clock::Tick;
use crate::config::OWN_HOLDER_TRUST;
use crate::error::{Blocker, Error, HeldBy};
use crate::hold::{Hold, Lease};
use crate::local::{Joining, NextStep, OpenShare, QueueSlot, Registry, Ticket, WaiterSlot};

/// A waiter's turn. Dropping it leaves the queue.
pub(super) struct Turn<'a> {
    registry: &'a Arc<Registry>,
    request: &'a Request,
    /// The index of the key in whose queue it waits.
    pub(super) at: usize,
    pub(super) slot: QueueSlot<'a>,
    /// The last known reason why the acquisition has to wait.
    pub(super) blocking: Blocking,
    /// Whether it was ever in the queue behind others, or behind a holder of its own client.
    pub(super) was_blocked: bool,
    /// Whether nothing was awaited since the request was made.
    pub(super) is_new: bool,
    /// Until this time it expects that the holder of its own client hands over or frees the lock.
    trust_until: Option<Tick>,
    /// The owner in the way, if the acquisition is in no queue of its client.
    unqueued_holder: Option<Box<HeldBy>>,
    /// Counts the acquisition as a waiter, from the moment when it first had to wait.
    waiter_slot: Option<WaiterSlot>,
}

/// What a waiter that is first in line does.
pub(super) enum MyTurn {
    /// It has a hold that was handed over.
    HandedOver(OpenShare),
    /// It asks the server, from `at` on. `yield_first`: other processes heard of the last release and go first.
    Attempt { yield_first: bool, at: Tick },
}

/// Why a waiter leaves the line before its turn.
pub(super) enum NoTurn {
    /// The deadline has passed.
    TimedOut,
    /// The waiter before it has found that the server does not answer.
    GivenUp,
    Failed(Error),
}

impl From<Error> for NoTurn {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The reason why an acquisition has to wait, as far as this client knows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blocking {
    /// Nothing is known: the server has not answered yet.
    Nobody,
    /// Other waiters of this client. The number: how many answers they had by then, if nobody was known to hold the key.
    Queue(Option<u32>),
    /// A hold of this client that has no guard and is being released. It ends at this time at the latest.
    Releasing(Tick),
    /// An owner whose lease ends at this time, unless it is renewed; `None` if no end is known.
    Owner(Option<Tick>),
    /// The same, but that owner was granted the key while replicas confirmed no grant of this client. If it needs them as well,
    /// its grant is about to be withdrawn.
    OwnerInOutage(Option<Tick>),
    /// The semaphore has no permits yet.
    Unset,
}

impl Blocking {
    /// An owner that the server named, with what is left of its lease.
    pub(super) fn owner(ttl: Option<Duration>, now: Tick) -> Self {
        Self::Owner(ttl.map(|ttl| now.after(ttl)))
    }

    /// The same owner, of whose lease this is left.
    pub(super) fn with_time_left(self, ttl: Option<Duration>, now: Tick) -> Self {
        let until = ttl.map(|ttl| now.after(ttl));
        match self {
            Self::OwnerInOutage(_) => Self::OwnerInOutage(until),
            _ => Self::Owner(until),
        }
    }

    /// A hold of this client.
    pub(super) fn own_holder(hold: &Hold) -> Self {
        match hold.count() {
            0 => Self::Releasing(hold.lease(Lease::deadline)),
            _ => Self::Owner(Some(hold.lease(Lease::deadline))),
        }
    }
}

impl<'a> Turn<'a> {
    /// Takes a slot for the key with this index. `takes_over`: a hold may be handed over to it. `rank`: the place that it
    /// had in the queue of another key.
    pub(super) fn new(
        registry: &'a Arc<Registry>,
        request: &'a Request,
        at: usize,
        takes_over: bool,
        rank: Option<Ticket>,
        mut waiter_slot: Option<WaiterSlot>,
    ) -> Self {
        let joining = Joining {
            rank,
            ..request.joining(at, takes_over)
        };
        let slot = registry.join(joining);
        if let Some(waiter_slot) = &mut waiter_slot {
            waiter_slot.move_to(&joining.resource.key, slot.waker());
        }
        Self {
            registry,
            request,
            at,
            slot,
            blocking: Blocking::Nobody,
            was_blocked: false,
            is_new: false,
            trust_until: None,
            unqueued_holder: None,
            waiter_slot,
        }
    }

    /// What blocks the acquisition, for its error.
    pub(super) fn blocker(&self, now: Tick) -> Blocker {
        let left = |until: Option<Tick>| until.map(|until| until.left(now));
        match self.blocking {
            Blocking::Nobody => Blocker::Unanswered,
            Blocking::Queue(_) if self.is_unanswered() => Blocker::Unanswered,
            Blocking::Queue(_) => Blocker::Queue(left(self.slot.busy_until())),
            Blocking::Releasing(until) => Blocker::Owner(left(Some(until))),
            Blocking::Owner(until) | Blocking::OwnerInOutage(until) => Blocker::Owner(left(until)),
            Blocking::Unset => Blocker::PermitsNotSet,
        }
    }

    /// Whether it stands in line, and the server has answered nobody there since it came, when nobody was known to hold the key.
    pub(super) fn is_unanswered(&self) -> bool {
        let is_as_before = |before| self.slot.answers_without_a_holder() == Some(before);
        matches!(self.blocking, Blocking::Queue(Some(before)) if is_as_before(before))
    }

    /// The server has refused the acquisition, and has named this holder.
    pub(super) fn note_holder(&mut self, holder: Option<Box<HeldBy>>) {
        self.unqueued_holder = self.slot.note_holder(holder);
    }

    /// The owner in the way, as far as it is known.
    pub(super) fn holder(&self) -> Option<Box<HeldBy>> {
        match self.blocking {
            Blocking::Queue(_)
            | Blocking::Releasing(_)
            | Blocking::Owner(_)
            | Blocking::OwnerInOutage(_) => {
                let queued = self.slot.holder();
                queued.or_else(|| self.unqueued_holder.clone())
            }
            Blocking::Nobody | Blocking::Unset => None,
        }
    }

    /// Whether something is known to be in the way. Then a wait that ends is a timeout, even if the server does not answer.
    pub(super) fn is_known_blocked(&self, now: Tick) -> bool {
        match self.blocking {
            Blocking::Nobody | Blocking::OwnerInOutage(_) => false,
            Blocking::Queue(_) => self.slot.busy_until().is_some_and(|until| until > now),
            Blocking::Owner(_) | Blocking::Releasing(_) | Blocking::Unset => true,
        }
    }

    /// An owner is in the way, with this much left of its lease.
    pub(super) fn note_owner(&mut self, ttl: Option<Duration>) {
        let session = &self.registry.session;
        let owner = Blocking::owner(ttl, session.now());
        let key = &self.request.requested[self.at].resource.key;
        self.blocking = match owner {
            Blocking::Owner(until) if session.outages.was_unconfirmed(key) => {
                Blocking::OwnerInOutage(until)
            }
            owner => owner,
        };
    }

    /// Records for the waiters behind it that it was refused, and what it knows of the holder.
    pub(super) fn tell_line(&self) {
        match self.blocking {
            Blocking::Owner(until) => self.slot.note_busy_until(until),
            _ => self.slot.note_answer(true),
        }
    }

    /// Counts the acquisition as a waiter from now on, unless there are too many.
    pub(super) fn count_as_waiter(&mut self) -> Result<(), Error> {
        if self.waiter_slot.is_none() {
            let (registry, request, slot) = (self.registry, self.request, &self.slot);
            let wait = request.wait_for(self.at, &registry.session, slot);
            let requested = &request.requested[self.at];
            let counted = registry.count_as_waiter(
                wait,
                &requested.resource,
                requested.meter,
                request.max_waiters,
                || slot.is_first_of_several(),
            )?;
            self.waiter_slot = Some(counted);
        }
        Ok(())
    }

    /// Gives the waiter's count to its next turn, in the queue of another key.
    pub(super) fn take_waiter_slot(&mut self) -> Option<WaiterSlot> {
        self.waiter_slot.take()
    }

    /// Restarts the time for which it waits for the holder of its own client.
    pub(super) fn renew_trust(&mut self) {
        self.trust_until = None;
    }

    /// Whether this waiter, with this step before it, gives up as well: the waiter before it gave up at `line_given_up_at`, while
    /// this one stood in line, and nothing was answered since. One that still stands in line learns it later.
    fn is_given_up(
        &self,
        step: &NextStep,
        line_given_up_at: Option<Tick>,
        is_unanswered: impl Fn(Tick) -> bool,
    ) -> bool {
        let since = self.request.since;
        !matches!(step, NextStep::WaitInLine)
            && line_given_up_at.is_some_and(|at| since <= at && is_unanswered(at))
    }

    /// Other waiters of its client are before it.
    fn note_queue(&mut self) -> Result<(), Error> {
        if !matches!(self.blocking, Blocking::Queue(_)) {
            self.blocking = Blocking::Queue(self.slot.answers_without_a_holder());
        }
        self.was_blocked = true;
        self.count_as_waiter()
    }

    /// Whether its attempt may be sent right behind the release of a hold of its client. One server's release says nothing of
    /// the other keys of the request, or of the other servers of a quorum.
    fn may_follow(&self) -> bool {
        !self.request.has_several_keys() && self.request.hold.margin.is_zero()
    }

    /// A hold of its own client blocks it. A hold that is only being released does not count.
    fn note_own_holder(&mut self, own_holder: &Hold) {
        self.blocking = Blocking::own_holder(own_holder);
        self.was_blocked |= matches!(self.blocking, Blocking::Owner(_));
    }

    /// Until when it expects that the holder of its own client hands over or frees the lock. `None` if it asks the server now.
    fn trusts(&mut self, own_holder: &Hold, now: Tick) -> Option<Tick> {
        let session = &self.registry.session;
        // Counted from the first look, so that wake-ups do not prolong it.
        let trusted = *self.trust_until.get_or_insert(now.after(OWN_HOLDER_TRUST));
        // A release that a silent server has to confirm may take until the end of the lease.
        let is_stuck = own_holder.count() == 0
            && session
                .outages
                .is_silent(&self.request.requested[self.at].resource.key)
            && !self.request.has_several_keys();
        let follows = self.may_follow() && self.slot.may_follow(own_holder);
        if follows {
            // If the server refuses, this hold is not expected to end any more.
            self.trust_until = Some(now);
        }
        (!is_stuck && !follows && now < trusted).then_some(trusted)
    }

    /// Waits until the acquisition is first in line, and, if its own client holds the key, until that hold has ended or
    /// [`OWN_HOLDER_TRUST`] has passed.
    ///
    /// `is_unanswered` tells whether the server has answered no attempt since the given time.
    pub(super) async fn wait(
        &mut self,
        deadline: Tick,
        is_unanswered: impl Fn(Tick) -> bool,
    ) -> Result<MyTurn, NoTurn> {
        let session = &self.registry.session;
        loop {
            let (step, now) = self.next_step(deadline, &is_unanswered)?;
            match step {
                NextStep::HandedOver(share) => return Ok(MyTurn::HandedOver(share)),
                NextStep::Attempt { yield_first } => {
                    return Ok(MyTurn::Attempt {
                        yield_first,
                        at: now,
                    });
                }
                NextStep::WaitInLine => {
                    self.note_queue()?;
                    crate::sync::select! {
                        () = self.slot.woken() => {}
                        () = session.clock.sleep_until(deadline) => {}
                    }
                }
                NextStep::Behind(own_holder) => {
                    let Some(trusted) = self.trusts(&own_holder, now) else {
                        self.slot.goes_to_server();
                        return Ok(MyTurn::Attempt {
                            yield_first: false,
                            at: now,
                        });
                    };
                    self.count_as_waiter()?;
                    self.note_own_holder(&own_holder);
                    crate::sync::select! {
                        // In this order: a waiter that is woken gets the hold that was handed over, and need not ask the server.
                        biased;
                        () = self.slot.woken() => {}
                        () = own_holder.over.changed() => {}
                        () = session.clock.sleep_until(trusted.min(deadline)) => {}
                    }
                }
            }
        }
    }

    /// What it does next, and what the clock shows, which is not read for a hold that was handed over.
    fn next_step(
        &mut self,
        deadline: Tick,
        is_unanswered: impl Fn(Tick) -> bool,
    ) -> Result<(NextStep, Tick), NoTurn> {
        let session = &self.registry.session;
        // Before the step: a closed client does not take over a hold.
        if session.closed.is_set() {
            return Err(self.request.closed().into());
        }
        let is_new = std::mem::take(&mut self.is_new);
        let (step, line_given_up_at) = if is_new {
            self.slot.first_step()
        } else {
            self.slot.next_step()
        };
        // Before the deadline is checked: a hold that was handed over at the last moment counts.
        if let NextStep::HandedOver(_) = step {
            return Ok((step, self.request.since));
        }
        let now = if is_new {
            self.request.since
        } else {
            session.now()
        };
        if now >= deadline {
            return Err(NoTurn::TimedOut);
        }
        if self.is_given_up(&step, line_given_up_at, is_unanswered) {
            return Err(NoTurn::GivenUp);
        }
        Ok((step, now))
    }
}

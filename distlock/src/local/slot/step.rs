//! One waiter's slot in the queue of its key, and what it has to do next.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::clock::Tick;
use crate::hold::{Hold, HoldSettings};
use crate::local::entry::Entry;
use crate::local::queue::Ticket;
use crate::local::registry::Registry;
use crate::local::share::OpenShare;
use crate::local::turns::RoundRobin;
use crate::local::waker::{SlotWaker, Woken};
use crate::resource::key::Resource;
use crate::resource::kind::Line;

/// How an acquisition waits in the queue of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) resource: &'a Resource,
    /// When the caller began to wait.
    pub(crate) since: Tick,
    /// Whether a hold may be handed over to it as it is.
    pub(crate) takes_over: bool,
    /// What it asks of a hold that is handed over.
    pub(crate) settings: &'a HoldSettings,
    /// Whether an enclosing scope admits it beside the scope's own hold.
    pub(crate) is_let_in: bool,
    /// The place that it had in the queue of another key, which it keeps here.
    pub(crate) rank: Option<Ticket>,
    /// Whether a hold that is handed over stays in its slot until it is [taken](QueueSlot::take_offer).
    pub(crate) collects: bool,
}

/// A waiter's slot in the queue of its key. Dropping it leaves the queue and passes on what the slot contained.
#[derive(Debug)]
pub(crate) struct QueueSlot<'a> {
    pub(super) registry: &'a Arc<Registry>,
    pub(super) joining: Joining<'a>,
    /// The position in the queue, if the waiter is in it.
    pub(super) ticket: Option<Ticket>,
    pub(super) waker: Arc<SlotWaker>,
    /// Which message of the key's channel that of its release will be, if the waiter listens.
    pub(super) own_message: Option<NonZeroU32>,
    /// Whether its attempt follows right behind the release of a hold of its client.
    pub(super) follows: bool,
    /// Whether the waiter joins the queue after it was refused.
    pub(super) queues: bool,
    /// Whether nothing was known of the key when it joined the queue.
    is_of_new_entry: bool,
}

/// What a waiter has to do next.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Wait: others are before it in the queue.
    WaitInLine,
    /// Nothing: it has the hold that was handed over.
    HandedOver(OpenShare),
    /// Wait: it is first in line, behind this hold of its own client.
    Behind(Arc<Hold>),
    /// Ask the server: it is first in line. `yield_first`: other processes heard of the last release and go first.
    Attempt { yield_first: bool },
}

impl Registry {
    /// Makes a slot for an acquisition. If the acquisition has to queue before its first attempt, the slot is at the
    /// end of the key's queue.
    pub(crate) fn join<'a>(self: &'a Arc<Self>, joining: Joining<'a>) -> QueueSlot<'a> {
        let line = joining.resource.kind.line();
        let mut slot = QueueSlot::new(self, joining, Arc::default());
        let queues_now = slot.queues && (line == Line::Local || self.has_waiters(joining.resource));
        if queues_now {
            let mut yielded = self.yielded.lock();
            let others = yielded.take(joining.resource, joining.since);
            drop(yielded);
            slot.join_queue(others);
        }
        slot
    }
}

impl<'a> QueueSlot<'a> {
    /// A slot that is not in the queue yet.
    pub(super) fn new(
        registry: &'a Arc<Registry>,
        joining: Joining<'a>,
        waker: Arc<SlotWaker>,
    ) -> Self {
        let kind = joining.resource.kind;
        registry.used_kinds.note(kind);
        Self {
            registry,
            // An acquisition that a scope admits must not wait behind waiters that the scope's hold excludes.
            queues: kind.line() != Line::Server && !joining.is_let_in,
            joining,
            ticket: None,
            waker,
            own_message: None,
            follows: false,
            is_of_new_entry: false,
        }
    }

    /// What wakes it, which also finds it in the queue.
    pub(crate) fn waker(&self) -> &Arc<SlotWaker> {
        &self.waker
    }

    /// Completes when the next step may have changed.
    pub(crate) fn woken(&self) -> Woken<'_> {
        self.waker.woken()
    }

    /// Answers the questions whether this waiter is still polled, while it talks to the server. Never completes.
    pub(crate) fn answer_checks(&self) -> impl Future<Output = Infallible> + use<> {
        // A clone: the future runs beside the attempt, which borrows the slot.
        Arc::clone(&self.waker).answer()
    }

    /// Joins the queue: at its end, or where it stood before. `others`: the other clients that just heard that this client
    /// released the key.
    pub(super) fn join_queue(&mut self, others: Option<RoundRobin>) {
        let (unwanted, needs_checks) = {
            let mut entries = self.registry.entries.lock();
            let mut is_new = false;
            let entry = entries
                .entry(self.joining.resource.clone())
                .or_insert_with(|| {
                    is_new = true;
                    Entry::default()
                });
            let waiters = entry.waiters_mut();
            if let Some(others) = others {
                waiters.yield_to(others);
            }
            self.is_of_new_entry = is_new && !waiters.yield_first;
            let waker = Arc::clone(&self.waker);
            // Taken: a waiter that loses its place because it was not polled joins at the end.
            let rank = self.joining.rank.take();
            let ticket = waiters.queue.join(waker, self.joining.takes_over, rank);
            self.ticket = Some(ticket);
            let needs_checks = self
                .registry
                .checked
                .check_later(waiters, self.joining.resource);
            // A hold that was handed to a waiter behind its place.
            let unwanted = if self.joining.takes_over {
                None
            } else {
                waiters.queue.take(ticket)
            };
            (unwanted, needs_checks)
        };
        // Outside of the mutex, since both may wake a task.
        if needs_checks {
            self.registry.session.watchdog.check_waiters_soon();
        }
        if let Some(hold) = unwanted {
            self.registry.give_back(&hold);
        }
    }

    /// Joins the queue after a refusal. Returns whether the waiter may listen to the server now: it is the first in
    /// line, or it is not in a local queue.
    pub(crate) fn listens_after_refusal(&mut self) -> bool {
        if self.queues && self.ticket.is_none() {
            self.join_queue(None);
        }
        self.ticket.is_none()
            || self.with_entry(|entry, ticket| entry.waiters_mut().queue.is_head(ticket))
                == Some(true)
    }

    /// A message has arrived. If this client has a hold of the key, that hold did not cause the message.
    pub(crate) fn verify_holder(&self) {
        let holder = |entry: &mut Entry, _| {
            let holder = entry.holder.as_ref();
            holder.map(|holder| Arc::clone(&holder.hold))
        };
        if let Some(hold) = self.with_entry(holder).flatten() {
            self.registry.session.verify(&hold);
        }
    }

    /// Whether it is the first in line, with others behind it.
    pub(crate) fn is_first_of_several(&self) -> bool {
        let is_first = |entry: &mut Entry, ticket| {
            let queue = &entry.waiters_mut().queue;
            queue.is_head(ticket) && queue.len() > 1
        };
        self.with_entry(is_first) == Some(true)
    }

    /// The next step, and when a head of its queue last gave up because the server does not answer.
    pub(crate) fn next_step(&mut self) -> (NextStep, Option<Tick>) {
        self.follows = false;
        let (step, given_up_at) = self.step();
        self.waker
            .note_step(matches!(step, NextStep::Attempt { .. }));
        (step, given_up_at)
    }

    /// The step of a waiter that has awaited nothing since it joined, which may be known from then.
    pub(crate) fn first_step(&mut self) -> (NextStep, Option<Tick>) {
        if !self.is_of_new_entry {
            return self.next_step();
        }
        self.waker.note_step(true);
        (NextStep::Attempt { yield_first: false }, None)
    }

    /// It asks the server although a holder of its own client is in the way. In an outage the answer may take long, and it
    /// is still polled meanwhile.
    pub(crate) fn goes_to_server(&self) {
        self.waker.note_step(true);
    }

    /// Whether an attempt may follow right behind the release of this hold, which was sent and is not answered yet.
    ///
    /// Other processes have no turn in between, so such grants count like hand-overs.
    pub(crate) fn may_follow(&mut self, hold: &Hold) -> bool {
        // A rule of tests/model: attempt_behind_a_release_counts_as_a_grant.
        let session = &self.registry.session;
        if !hold
            .release_sent_over
            .is_present(|| session.backend.epoch(&self.joining.resource.key))
        {
            return false;
        }
        let now = session.now();
        let follows = self.with_entry(|entry, _| {
            let run = &mut entry.waiters_mut().queue.run;
            let follows = run.goes_on(now);
            if follows {
                run.count_grant();
            }
            follows
        });
        self.follows = follows == Some(true);
        self.follows
    }

    fn step(&mut self) -> (NextStep, Option<Tick>) {
        let mut given_up_at = None;
        let step = self.with_entry(|entry, ticket| {
            given_up_at = entry.waiters_mut().given_up_at.unless_never();
            self.step_in_queue(entry, ticket)
        });
        // Outside of the mutex, which the next lines lock again.
        let step = match step.flatten() {
            Some((_, Some(hold))) => match self.take_over(&hold) {
                Some(share) => NextStep::HandedOver(share),
                // Too little of the lease was left. The waiter is still the head, and asks the server.
                None => NextStep::Attempt { yield_first: false },
            },
            Some((step, None)) => step,
            None if self.ticket.is_some() && self.joining.resource.kind.line() == Line::Local => {
                // It was not polled for too long, and has lost its place.
                self.join_queue(None);
                return self.step();
            }
            None => {
                // It is in no queue, or all waiters of it were dismissed, or a reader has lost its place: it asks alone.
                self.ticket = None;
                given_up_at = None;
                NextStep::Attempt { yield_first: false }
            }
        };
        (step, given_up_at)
    }

    /// The next step of a waiter in the queue, and the hold that it may take over instead. `None` if it has lost its place.
    fn step_in_queue(
        &self,
        entry: &mut Entry,
        ticket: Ticket,
    ) -> Option<(NextStep, Option<Arc<Hold>>)> {
        let collects = self.joining.collects;
        let queue = &mut entry.waiters_mut().queue;
        if !queue.is_head(ticket) {
            let is_queued = queue.has(ticket);
            return is_queued.then_some((NextStep::WaitInLine, None));
        }
        // The offer stays in the slot until the waiter takes it, and means that it is its turn.
        if collects && queue.has_offer() {
            return Some((NextStep::Attempt { yield_first: false }, None));
        }
        let mut handed_over = queue.take(ticket);
        if self.joining.takes_over && !collects && handed_over.is_none() {
            handed_over = entry.take_back(|| self.registry.session.now());
        }
        let step = match &entry.holder {
            Some(holder) if !holder.hold.over.is_set() => {
                NextStep::Behind(Arc::clone(&holder.hold))
            }
            _ => NextStep::Attempt {
                // Taken: other processes go first once for each release that they heard of.
                yield_first: std::mem::take(&mut entry.waiters_mut().yield_first),
            },
        };
        Some((step, handed_over))
    }

    /// Runs a function on the key's entry, if the waiter has a ticket.
    pub(super) fn with_entry<T>(&self, with: impl FnOnce(&mut Entry, Ticket) -> T) -> Option<T> {
        let mut entries = self.registry.entries.lock();
        let entry = entries.get_mut(self.joining.resource)?;
        Some(with(entry, self.ticket?))
    }
}

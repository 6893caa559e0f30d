//! One waiter's place in the queue of its key, and what it is to do when its turn may have come.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::queue::Ticket;
use super::registry::{Entry, Registry};
use crate::clock::Tick;
use crate::hold::{Hold, HoldRef};
use crate::key::Resource;
use crate::kind::Line;
use crate::wait::{Request, RequestedKey};

/// A waiter's place in the queue of its key. Dropped, it leaves, and passes on what it had.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    registry: Arc<Registry>,
    pub(super) resource: Resource,
    /// Where it stands in the queue, if it does.
    ticket: Option<Ticket>,
    wake: Arc<Notify>,
    takes_over: bool,
    /// How long it may keep what it takes over.
    max_hold: Option<Duration>,
    /// It is to stand in the queue once it was refused.
    pub(super) lines_up: bool,
}

/// What a waiter is to do next.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Others stand before it.
    WaitInLine,
    /// It has the hold that was handed over.
    HandedOver(Arc<HoldRef>),
    /// It is first in line, behind this hold of its own client.
    Behind(Arc<Hold>),
    /// It is first in line, and may ask the server; after other processes, where they heard of the last release.
    Attempt { yield_first: bool },
}

impl QueueSlot {
    /// A place that stands in no line yet.
    pub(super) fn new(
        registry: &Arc<Registry>,
        request: &Request,
        at: usize,
        takes_over: bool,
    ) -> Self {
        let RequestedKey {
            resource, inside, ..
        } = &request.requested[at];
        Self {
            registry: Arc::clone(registry),
            resource: resource.clone(),
            ticket: None,
            wake: Arc::new(Notify::new()),
            takes_over: takes_over && request.lease.is_none() && request.hands_on,
            max_hold: request.max_hold,
            // What the scope around lets in must not wait behind those whom it keeps out.
            lines_up: resource.kind.line() != Line::Server && inside.is_none(),
        }
    }

    /// Completes when it may be this waiter's turn.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes the last place in the queue.
    pub(super) fn join_queue(&mut self, yield_first: bool) {
        let mut entries = self.registry.entries.lock();
        let entry = entries
            .entry(self.resource.clone())
            .or_insert_with(Entry::new);
        entry.yield_first |= yield_first;
        self.ticket = Some(entry.queue.join(Arc::clone(&self.wake), self.takes_over));
    }

    /// It was refused. Is it first in line now, or does it stand in none?
    pub(crate) fn stand_in_line(&mut self) -> bool {
        if self.lines_up && self.ticket.is_none() {
            self.join_queue(false);
        }
        self.ticket.is_none()
            || self.look(|entry, ticket| entry.queue.is_head(ticket)) == Some(true)
    }

    /// Is it first in line, with others behind it?
    pub(crate) fn is_first_of_several(&self) -> bool {
        self.look(|entry, ticket| entry.queue.is_head(ticket) && entry.queue.len() > 1)
            == Some(true)
    }

    pub(crate) fn next_step(&mut self) -> NextStep {
        let step = self.look(|entry, ticket| {
            if !entry.queue.is_head(ticket) {
                return entry
                    .queue
                    .has(ticket)
                    .then_some((NextStep::WaitInLine, None));
            }
            let handed = entry.queue.take(ticket);
            let step = match &entry.holder {
                Some(holder) if !holder.hold.is_over() => {
                    NextStep::Behind(Arc::clone(&holder.hold))
                }
                _ => NextStep::Attempt {
                    yield_first: std::mem::take(&mut entry.yield_first),
                },
            };
            Some((step, handed))
        });
        match step.flatten() {
            Some((_, Some(handed))) => self.take(&handed),
            Some((step, None)) => step,
            None => {
                // It stands in no line, or no more: the whole line was let go.
                self.ticket = None;
                NextStep::Attempt { yield_first: false }
            }
        }
    }

    /// Takes over what was handed to it, if that is still good.
    fn take(&mut self, handed: &Arc<Hold>) -> NextStep {
        let now = self.registry.session.now();
        let Some(hold_ref) = handed.succeed(now, self.max_hold) else {
            self.registry.give_back(handed);
            return NextStep::Attempt { yield_first: false };
        };
        self.leave_with(handed, None);
        // The count may have to be told, and another guard has another bound.
        self.registry.session.look_at(handed);
        NextStep::HandedOver(hold_ref)
    }

    /// The server granted a hold to this waiter.
    pub(crate) fn granted(&mut self, hold: &Arc<Hold>) {
        if self.ticket.is_none() {
            return self.registry.granted(hold);
        }
        self.registry.session.watch(hold);
        self.leave_with(hold, Some(self.registry.session.now()));
    }

    /// Leaves the queue as the holder; `began` where the server granted the hold then.
    fn leave_with(&mut self, hold: &Arc<Hold>, began: Option<Tick>) {
        let then = self.look(|entry, ticket| {
            let left_over = began.and_then(|now| entry.queue.began(now));
            if hold.resource.kind.line() != Line::Shared {
                entry.set_holder(hold);
            }
            let then = entry.queue.granted(ticket);
            // One after the other they would be served slower than others come, and the line would never end.
            let let_go = if hold.resource.kind.is_shared() {
                entry.queue.let_go()
            } else {
                Vec::new()
            };
            (left_over, then, let_go)
        });
        self.ticket = None;
        self.registry.forget_if_idle(&self.resource);
        let Some((left_over, then, let_go)) = then else {
            return;
        };
        for waiter in let_go {
            waiter.notify_one();
        }
        if let Some(left_over) = left_over {
            self.registry.give_back(&left_over);
        }
        self.registry.follow(then);
    }

    fn look<T>(&self, look: impl FnOnce(&mut Entry, Ticket) -> T) -> Option<T> {
        let mut entries = self.registry.entries.lock();
        let entry = entries.get_mut(&self.resource)?;
        Some(look(entry, self.ticket?))
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let now = self.registry.session.now();
        let then = {
            let mut entries = self.registry.entries.lock();
            let Some(entry) = entries.get_mut(&self.resource) else {
                return;
            };
            let then = entry.queue.leave(ticket, |hold| hold.may_pass_on(now));
            if entry.is_idle() {
                entries.remove(&self.resource);
            }
            then
        };
        self.registry.follow(then);
    }
}

//! The slots of a waiter that needs several keys at once: one for each key, all with the same ticket, and what each is worth.

use std::sync::Arc;

use super::step::{Joining, QueueSlot};
use crate::hold::Hold;
use crate::local::entry::Entry;
use crate::local::queue::Ticket;
use crate::local::registry::Registry;
use crate::local::share::OpenShare;
use crate::local::waker::SlotWaker;

/// What a slot is worth now.
#[derive(Debug)]
pub(crate) enum SlotState {
    /// It was not polled for too long, and is in the queue no more.
    Lost,
    /// Others are before it in the queue.
    InLine,
    /// It is first in line, behind this hold of its own client.
    Behind(Arc<Hold>),
    /// It is first in line, and a hold lies in its slot.
    Offered,
    /// It is first in line, and only the server knows whether the key is free. `yields`: other processes go first.
    Free { yields: bool },
}

impl Registry {
    /// The positions of one waiter at the end of the queues of several keys. All other waiters go first, including later ones. A
    /// change of any of them wakes it.
    pub(crate) fn slots_at_the_end<'a>(
        self: &'a Arc<Self>,
        keys: impl Iterator<Item = Joining<'a>>,
    ) -> Vec<QueueSlot<'a>> {
        let waker = Arc::<SlotWaker>::default();
        let rank = Some(Ticket::last());
        let slot = |key| {
            let joining = Joining { rank, ..key };
            let mut slot = QueueSlot::new(self, joining, Arc::clone(&waker));
            slot.join_queue(None);
            slot
        };
        keys.map(slot).collect()
    }
}

impl Entry {
    /// What the slot of the first in line is worth.
    fn state_of_head(&self) -> SlotState {
        let waiters = self.waiters();
        if waiters.is_some_and(|waiters| waiters.queue.has_offer()) {
            return SlotState::Offered;
        }
        match &self.holder {
            Some(holder) if !holder.hold.over.is_set() => {
                SlotState::Behind(Arc::clone(&holder.hold))
            }
            _ => SlotState::Free {
                yields: waiters.is_some_and(|waiters| waiters.yield_first),
            },
        }
    }
}

impl<'a> QueueSlot<'a> {
    /// The slot of the same waiter in the queue of another key, before all that came later. It is woken as this one is.
    pub(crate) fn slot_beside(&self, joining: Joining<'a>) -> Self {
        let rank = self.ticket;
        let joining = Joining { rank, ..joining };
        let mut slot = Self::new(self.registry, joining, Arc::clone(&self.waker));
        slot.join_queue(None);
        slot
    }

    /// What the slot is worth. Changes nothing.
    pub(crate) fn state(&self) -> SlotState {
        let state = self.with_entry(|entry, ticket| {
            let queue = &entry.waiters_mut().queue;
            if queue.is_head(ticket) {
                entry.state_of_head()
            } else if queue.has(ticket) {
                SlotState::InLine
            } else {
                SlotState::Lost
            }
        });
        state.unwrap_or(SlotState::Lost)
    }

    /// What the slot at the end of the queue is worth to a waiter that rests. Others that rest are not in its way. Shows that
    /// the waiter is polled, and comes back if it has lost its place because it was not.
    pub(crate) fn state_at_rest(&mut self) -> SlotState {
        self.waker.note_step(false);
        if self.with_entry(|entry, ticket| entry.waiters_mut().queue.has(ticket)) != Some(true) {
            self.joining.rank = self.ticket.take();
            self.join_queue(None);
        }
        let seen = self.with_entry(|entry, ticket| {
            let queue = &entry.waiters_mut().queue;
            if !queue.is_head_at_rest() {
                return (SlotState::InLine, None);
            }
            // Only the head is woken when the last one before them has left.
            let next = queue.next_after(ticket).cloned();
            (entry.state_of_head(), next)
        });
        let (state, next) = seen.unwrap_or((SlotState::InLine, None));
        if let Some(next) = next {
            next.wake();
        }
        state
    }

    /// Takes over the hold in its slot, if there is one with enough of its lease left.
    pub(crate) fn take_offer(&mut self) -> Option<OpenShare> {
        let hold = self.with_entry(|entry, ticket| entry.waiters_mut().queue.take(ticket))??;
        self.take_over(&hold)
    }

    /// Has the hold in its slot released in the server, and keeps the place.
    pub(crate) fn refuse_offer(&self) {
        let hold = self.with_entry(|entry, ticket| entry.waiters_mut().queue.take(ticket));
        if let Some(hold) = hold.flatten() {
            self.registry.give_back(&hold);
        }
    }

    /// Its place, which a slot in the queue of another key can keep.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

//! The places of a waiter that needs several keys at once: one slot for each key, all with the same ticket.

use std::sync::Arc;

use super::queue::Ticket;
use super::slot::{Joining, QueueSlot};
use crate::hold::{Hold, HoldRef};

/// What a place is worth now.
#[derive(Debug)]
pub(crate) enum PlaceState {
    /// Others are before it in the queue.
    InLine,
    /// It is first in line, behind this hold of its own client.
    Behind(Arc<Hold>),
    /// It is first in line, and a hold lies in its slot.
    Offered,
    /// It is first in line, and only the server knows whether the key is free. `yields`: other processes go first.
    Free { yields: bool },
}

impl QueueSlot {
    /// The place of the same waiter in the queue of another key, before all that came later. It is woken as this one is.
    pub(crate) fn place_beside(&self, joining: Joining<'_>) -> Self {
        let mut place = self.beside(joining);
        place.join_queue(None);
        place
    }

    /// What the place is worth. Changes nothing.
    pub(crate) fn state(&self) -> PlaceState {
        let state = self.look(|entry, ticket| {
            if !entry.queue.is_head(ticket) {
                return PlaceState::InLine;
            }
            if entry.queue.has_offer() {
                return PlaceState::Offered;
            }
            match &entry.holder {
                Some(holder) if !holder.hold.is_over() => {
                    PlaceState::Behind(Arc::clone(&holder.hold))
                }
                _ => PlaceState::Free {
                    yields: entry.yield_first,
                },
            }
        });
        state.unwrap_or(PlaceState::InLine)
    }

    /// Takes over the hold in its slot, if there is one with enough of its lease left.
    pub(crate) fn take_offer(&mut self) -> Option<Arc<HoldRef>> {
        let hold = self.look(|entry, ticket| entry.queue.take(ticket))??;
        self.take_over(&hold)
    }

    /// Has the hold in its slot released in the server, and keeps the place.
    pub(crate) fn refuse_offer(&self) {
        let hold = self.look(|entry, ticket| entry.queue.take(ticket));
        if let Some(hold) = hold.flatten() {
            self.give_back(&hold);
        }
    }

    /// Its place, which a slot in the queue of another key can keep.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

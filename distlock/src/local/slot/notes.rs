//! What the waiters of one key know of it together: who holds it and until when, how many other clients are ahead, and that the
//! server does not answer. It is kept with the key's queue, so each waiter finds what the ones before it have learnt.

use super::step::QueueSlot;
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::hold::Lease;
use crate::local::entry::Entry;
use crate::local::turns::RoundRobin;

impl QueueSlot<'_> {
    /// How many turns of other clients come first, as far as the queue knows.
    pub(crate) fn round_robin(&self) -> RoundRobin {
        let known = self.with_entry(|entry, _| Some(entry.waiters()?.round_robin));
        known.flatten().unwrap_or_default()
    }

    /// Counts turns of other clients.
    pub(crate) fn with_round_robin(&self, count: impl FnOnce(&mut RoundRobin)) {
        self.with_entry(|entry, _| count(&mut entry.waiters_mut().round_robin));
    }

    /// When the key is left free for those that poll. `first`: when, if no release had a waiter behind it yet.
    pub(crate) fn left_free_at(&self, first: Tick) -> Tick {
        let known = self.with_entry(|entry, _| {
            let at = &mut entry.waiters_mut().left_free_at;
            *at = at.unless_never().unwrap_or(first);
            *at
        });
        known.unwrap_or(first)
    }

    /// Sets when the key is left free next for those that poll.
    pub(crate) fn leave_free_at(&self, at: Tick) {
        self.with_entry(|entry, _| entry.waiters_mut().left_free_at = at);
    }

    /// Another client has a key whose waiters poll. It is left free next at this time. A hold of this client says nothing.
    pub(crate) fn taken_before(&self, at: Tick) {
        self.with_entry(|entry, _| {
            if entry.holder.is_none() {
                entry.waiters_mut().left_free_at = at;
            }
        });
    }

    /// The server does not answer, and the waiter gives up. So do those that stand in line behind it now.
    pub(crate) fn give_up_line(&self, now: Tick) {
        self.with_entry(|entry, ticket| {
            let waiters = entry.waiters_mut();
            if waiters.queue.is_head(ticket) {
                waiters.given_up_at = now;
            }
        });
    }

    /// The server has refused the waiter: another owner holds the key until then, if an end is known.
    pub(crate) fn note_busy_until(&self, until: Option<Tick>) {
        let until = until.unwrap_or(Tick::NEVER);
        self.with_entry(|entry, _| {
            let waiters = entry.waiters_mut();
            waiters.busy_until = until;
            waiters.note_answer(true);
        });
    }

    /// The server has answered the waiter, which `is_refused`, and has told nothing of a lease.
    pub(crate) fn note_answer(&self, is_refused: bool) {
        self.with_entry(|entry, _| entry.waiters_mut().note_answer(is_refused));
    }

    /// The server has granted the waiter the key, but the grant does not stand.
    pub(crate) fn note_free(&self) {
        self.with_entry(|entry, _| {
            let waiters = entry.waiters_mut();
            waiters.busy_until = Tick::NEVER;
            waiters.note_answer(false);
        });
    }

    /// How often the server has answered the waiters of the key. `None` if somebody is known to hold it.
    pub(crate) fn answers_without_a_holder(&self) -> Option<u32> {
        let answers = self.with_entry(|entry, _| {
            let is_held = entry.holder.is_some();
            let waiters = entry
                .waiters()
                .filter(|waiters| !is_held && !waiters.is_refused);
            waiters.map(|waiters| waiters.answers)
        });
        answers.flatten()
    }

    /// When the lease of the key's holder ends, as far as the queue knows.
    pub(crate) fn busy_until(&self) -> Option<Tick> {
        let known = |entry: &mut Entry, _| match &entry.holder {
            Some(holder) => Some(holder.hold.lease(Lease::deadline)),
            None => entry.waiters()?.busy_until.unless_never(),
        };
        self.with_entry(known).flatten()
    }

    /// The server has refused the waiter, and has named this holder. Returns it if the waiter is in no queue of its client.
    pub(crate) fn note_holder(&self, mut holder: Option<Box<HeldBy>>) -> Option<Box<HeldBy>> {
        let note = |entry: &mut Entry, _| {
            std::mem::replace(&mut entry.waiters_mut().busy_by, holder.take())
        };
        // The former holder is dropped outside of the mutex. Without an entry nothing was taken out of `holder`.
        drop(self.with_entry(note));
        holder
    }

    /// The holder of the key, as far as the queue knows.
    pub(crate) fn holder(&self) -> Option<Box<HeldBy>> {
        let known = |entry: &mut Entry, _| match &entry.holder {
            Some(holder) => Some(Box::new(HeldBy::new(holder.hold.owner().text(), 0))),
            None => entry.waiters()?.busy_by.clone(),
        };
        self.with_entry(known).flatten()
    }
}

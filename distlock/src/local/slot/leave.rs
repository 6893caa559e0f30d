//! How a waiter leaves the queue of its key: with a hold that the server granted or that was handed over, or without one.

use std::num::NonZeroU32;
use std::sync::Arc;

use scopeguard::defer;

use super::step::QueueSlot;
use crate::clock::Tick;
use crate::hold::{Hold, HoldRef};
use crate::local::entry::{self, Entry};
use crate::local::queue::{QueueEffect, Ticket};
use crate::local::share::OpenShare;
use crate::local::waker::SlotWaker;
use crate::resource::kind::Line;
use crate::sync::foreign;

/// What has changed in the entry of a key when a waiter left its queue as the holder. It is carried out outside of the mutex.
struct LeftAsHolder {
    /// The holder before it, which the server does not have any more.
    former: Option<Arc<Hold>>,
    /// The hold that was in the slot, which nobody takes.
    left_over: Option<Arc<Hold>>,
    effect: QueueEffect<Arc<Hold>, Arc<SlotWaker>>,
    /// The waiters that may ask the server on their own from now on.
    dismissed: Vec<Arc<SlotWaker>>,
}

impl QueueSlot<'_> {
    /// Takes over a hold that was handed to it. If not enough of the lease is left, the hold is released.
    pub(super) fn take_over(&mut self, hold: &Arc<Hold>) -> Option<OpenShare> {
        let Some(hold_ref) = HoldRef::succeed(hold, self.joining.settings) else {
            self.registry.give_back(hold);
            return None;
        };
        // Made first: its drop ends the hold, whatever happens from now on.
        let share = OpenShare::new(self.registry, hold_ref);
        self.leave_with(hold, None);
        // The server may have to hear of the count, and this guard may have another limit.
        self.registry.session.schedule_check(hold);
        Some(share)
    }

    /// The server granted a hold to this waiter. `heard`: how many messages of the key's channel have arrived, if it listens.
    pub(crate) fn granted(&mut self, hold: &Arc<Hold>, heard: Option<i64>) {
        let number = heard.and_then(|heard| u32::try_from(heard + 1).ok());
        self.own_message = number.and_then(NonZeroU32::new);
        if self.ticket.is_none() {
            return self.registry.granted(hold);
        }
        self.registry.session.watch(hold);
        if hold.resource.kind.line() == Line::Shared {
            let watchdog = &self.registry.session.watchdog;
            self.registry.shared_holds.note(hold, watchdog);
        }
        self.leave_with(hold, Some(hold.latest_guard().since));
    }

    /// Leaves the queue as the holder. `granted_at`: when the server granted the hold, if it was not handed over.
    fn leave_with(&mut self, hold: &Arc<Hold>, granted_at: Option<Tick>) {
        let left =
            self.with_entry(|entry, ticket| self.become_holder(entry, ticket, hold, granted_at));
        self.ticket = None;
        // Holds that exclude each other are the holders of their entries.
        if left.is_none() || hold.resource.kind.line() == Line::Shared {
            self.registry.forget_if_idle(self.joining.resource);
        }
        let Some(left) = left else {
            // It had lost its place, and nobody else is there.
            if granted_at.is_some() {
                // Not watched again: it may have been lost meanwhile, and would be declared lost twice.
                self.registry.set_holder(hold);
            }
            return;
        };
        let LeftAsHolder {
            former,
            left_over,
            effect,
            dismissed,
        } = left;
        // Each of them also if one before it panics: these wake tasks.
        defer! { self.registry.follow(effect); }
        defer! {
            if let Some(left_over) = &left_over {
                self.registry.give_back(left_over);
            }
        }
        defer! { foreign::each(dismissed, |waiter| waiter.wake()); }
        if let Some(former) = &former {
            self.registry.session.verify(former);
        }
    }

    /// Makes the waiter the holder of the key's entry, and removes it from the queue. The caller carries out what follows from it.
    fn become_holder(
        &self,
        entry: &mut Entry,
        ticket: Ticket,
        hold: &Arc<Hold>,
        granted_at: Option<Tick>,
    ) -> LeftAsHolder {
        let kind = hold.resource.kind;
        let own_message = match granted_at {
            Some(_) => self.own_message,
            // Handed over: the number is that of the same hold.
            None => entry.waiters_mut().round_robin.own_message(),
        };
        let queue = &mut entry.waiters_mut().queue;
        let left_over = match granted_at {
            // It is out of date.
            Some(_) if self.follows => queue.went_on(),
            Some(now) => queue.began(now),
            // Another acquisition was granted the key after this waiter took its hold out of the slot, and has handed that hold over.
            None => queue.take(ticket),
        };
        let former = match kind.line() {
            Line::Shared => None,
            Line::Local | Line::Server => entry.set_holder(hold, own_message),
        };
        let queue = &mut entry.waiters_mut().queue;
        let effect = queue.granted(ticket);
        // All waiting readers may ask now. One after the other, they would be granted more slowly than new readers
        // arrive.
        let dismissed = if kind.is_shared() {
            queue.dismiss()
        } else {
            Vec::new()
        };
        entry.forget_waiters();
        LeftAsHolder {
            former,
            left_over,
            effect,
            dismissed,
        }
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let now = self.registry.session.now();
        let effect = {
            let mut entries = self.registry.entries.lock();
            let Some(entry) = entries.get_mut(self.joining.resource) else {
                return;
            };
            let queue = &mut entry.waiters_mut().queue;
            let effect = queue.leave(ticket, |hold| hold.may_pass_on(now));
            if entry.is_idle() {
                entry::remove(&mut entries, self.joining.resource);
            } else {
                entry.forget_waiters();
            }
            effect
        };
        // Outside of the mutex: a waker may run any code, also code that uses this queue.
        self.registry.follow(effect);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use futures_util::FutureExt;
    use tokio::time::{Duration, sleep};

    use crate::hold::HoldSettings;
    use crate::local::Joining;
    use crate::local::waits::tests::resource;
    use crate::{Client, MemoryServer};

    /// A thread that takes a hold over locks the queue twice. The other one does all the rest in between.
    #[tokio::test(start_paused = true)]
    async fn hold_that_is_handed_over_while_an_earlier_one_is_taken_over_is_given_back() {
        let server = MemoryServer::new();
        let client = || Client::builder().in_memory(&server).unwrap();
        let (client, other) = (client(), client());
        let registry = &client.registry();
        let first = client.lock("k").acquire().await.unwrap();
        let settings = HoldSettings {
            lease: None,
            max_hold: None,
            margin: Duration::ZERO,
            call_site: Location::caller(),
        };
        let resource = resource("k");
        let mut slot = registry.join(Joining {
            resource: &resource,
            since: registry.session.now(),
            takes_over: true,
            settings: &settings,
            is_let_in: false,
            rank: None,
            collects: false,
        });
        first.release().await.unwrap();
        assert!(other.lock("k").force_release().await.unwrap());

        let taken = slot.with_entry(|entry, ticket| entry.waiters_mut().queue.take(ticket));
        let taken = taken.flatten().unwrap();
        let granted = client.lock("k").try_acquire().now_or_never().unwrap();
        let granted = granted.unwrap().unwrap();
        granted.release().now_or_never().unwrap().unwrap();
        let share = slot.take_over(&taken);
        assert!(share.is_some());

        drop((share, slot));
        sleep(Duration::from_secs(1)).await;
        assert!(!other.lock("k").is_locked().await.unwrap());
        assert!(registry.entries.lock().is_empty() && registry.session.watchdog.holds().is_empty());
    }
}

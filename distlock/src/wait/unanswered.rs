//! What a waiter does when its attempts are not answered, and the error of a wait that ends.

use super::waiter::Waiter;
use crate::backend::Fault;
use crate::clock::Tick;
use crate::error::Error;
use crate::session::Retry;

impl Waiter<'_> {
    /// Handles an attempt that was sent at `sent` and failed: pauses before the next one, or returns the error if
    /// attempts have failed for too long.
    pub(super) async fn failed(&mut self, sent: Tick, fault: Fault) -> Result<(), Error> {
        let key = &self.requested().resource.key;
        if fault.is_final() {
            return Err(fault.into_error(key, self.request.waited(self.session())));
        }
        let now = self.session().now();
        let session = self.session();
        let first = || Box::new(Retry::new(session, sent));
        let unanswered = self.unanswered.get_or_insert_with(first);
        let pause = unanswered.failed(fault.clone());
        let give_up = self.give_up_at();
        if now >= give_up {
            self.turn.slot.give_up_line(now);
            let since = self.unanswered_since().unwrap_or(sent);
            return Err(fault.into_error(key, now.since(since)));
        }
        let until = now.after(pause).min(give_up).min(self.request.deadline());
        let slot = &self.turn.slot;
        let pause = async {
            crate::sync::select! {
                () = slot.woken() => {}
                () = session.clock.sleep_until(until) => {}
            }
        };
        if self.attempts.wait_in_doubt(pause).await {
            self.renew_attempts();
        }
        Ok(())
    }

    /// When unanswered attempts have gone on for too long. The first one is bounded by the backend.
    pub(super) fn give_up_at(&self) -> Tick {
        let limit = self.session().config.unavailable_after;
        let since = self.unanswered_since();
        since.map_or(Tick::NEVER, |since| since.after(limit))
    }

    /// Since when the server does not answer, if the last attempt was not answered. This part of the wait may have begun
    /// with an attempt of another waiter.
    fn unanswered_since(&self) -> Option<Tick> {
        let own = self.unanswered.as_ref()?.since;
        let key = &self.requested().resource.key;
        let of_client = self.session().outages.current(key);
        let seen = of_client.map(|attempts| attempts.since.max(self.request.since));
        Some(seen.map_or(own, |seen| seen.min(own)))
    }

    /// The error for a waiter that stood in line behind one that has found that the server does not answer.
    pub(super) fn given_up(&self) -> Error {
        let key = &self.requested().resource.key;
        let now = self.session().now();
        match self.session().outages.current(key) {
            Some(attempts) => attempts.fault().into_error(key, now.since(attempts.since)),
            // An answer has arrived at this moment.
            None => self.timed_out(),
        }
    }

    /// The error for a wait that is over. If the last attempts were not answered, the error is their fault and not a
    /// timeout. The same holds if nothing is known to hold the key, and the server is known not to answer.
    pub(super) fn timed_out(&self) -> Error {
        let key = &self.requested().resource.key;
        let own = self.unanswered.as_ref().and_then(|own| own.last().cloned());
        let now = self.session().now();
        let fault = own.or_else(|| {
            if self.turn.is_known_blocked(now) {
                None
            } else {
                self.session().outages.known(key)
            }
        });
        match fault {
            Some(fault) => fault.into_error(key, self.request.waited(self.session())),
            None => {
                let blocker = self.turn.blocker(now);
                let holder = self.turn.holder();
                self.request.timed_out(self.session(), key, blocker, holder)
            }
        }
    }
}

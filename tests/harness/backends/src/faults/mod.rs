//! A decorator that delays, loses and repeats the commands that pass through it.
//!
//! Every fault counts its hits, so that a test can tell a fault that was survived from one that never happened.

mod faulty;
mod subscriptions;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::test_util::{Backend, Clock};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::faulty::Faulty;
use self::subscriptions::Subscriptions;

/// A verb of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The attempts of acquisitions.
    Attempt,
    /// Confirmations of grants by replicas. Without a fault, those that the backend wants.
    Confirm,
    /// Batches of renewals.
    Renew,
    /// Releases, in the foreground and in the background, and withdrawals of attempts in doubt.
    Release,
    /// Force-releases.
    ForceRelease,
    /// Inspections of a key.
    Inspect,
    /// Looks at the keys of waiters, in batches.
    Look,
    /// Changes of a semaphore or a latch, and questions about them.
    Adjust,
    /// Questions whether all messages have arrived. Only [`Fault::Never`] can be planned for these: nobody answers, and no time ends
    /// it.
    Hear,
    /// Subscriptions. No fault can be planned for these; see [`Faults::mute`] and [`Faults::subscribe_after`].
    Subscribe,
}

/// What is injected into a call of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not executed, and fails with an unknown outcome.
    FailBefore,
    /// The call is executed, and fails with an unknown outcome.
    FailAfter,
    /// The call is executed after this time.
    Delay(Duration),
    /// The call is executed, and its answer arrives after this time.
    DelayReply(Duration),
    /// The call is executed after this time and then fails with an unknown outcome, as if it had waited before it was
    /// sent, and its answer had been lost.
    FailLate(Duration),
    /// The call fails with an unknown outcome at once, and is executed after this time, as if its connection had
    /// broken. Later commands count as sent over another connection.
    Late(Duration),
    /// The call is not executed, and fails with an unknown outcome after the response timeout.
    Never,
    /// The call fails with an unknown outcome after the response timeout, and is executed when the server
    /// [goes on](Faults::go_on), as if it had lain in the socket of a connection that the client has given up.
    Hung,
    /// The call is executed, and its answer cannot be understood.
    Garbled,
    /// The call is executed twice, and returns the second answer.
    Double,
    /// A subscription was dropped, or did not become active, because of [`Faults::mute`].
    Muted,
}

/// The faults between one or more clients and their backends.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<HashMap<Op, Rules>>>,
    on_hit: Arc<Mutex<Option<OnHit>>>,
    subscriptions: Arc<Subscriptions>,
    /// How many connections have broken, by [`Fault::Late`] or [`Faults::reconnect`]; they count in the epoch.
    broken: Arc<watch::Sender<u64>>,
    /// How often a server that hung has gone on.
    gone_on: Arc<watch::Sender<u64>>,
    /// Whether each key has its own slot.
    has_slots: Arc<AtomicBool>,
}

type OnHit = Arc<dyn Fn(Op, Fault) + Send + Sync>;

/// What is planned for one verb, and what has happened to it.
#[derive(Default)]
struct Rules {
    /// For the next calls, in order; `None` for a call without a fault.
    next: VecDeque<Option<Fault>>,
    /// For every call after those.
    always: Option<Fault>,
    calls: usize,
    hits: usize,
}

impl Rules {
    fn clear(&mut self) {
        self.next.clear();
        self.always = None;
    }
}

impl Faults {
    /// Creates a set without any fault.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans a fault for the next call of `op` that nothing is planned for.
    pub fn next(&self, op: Op, fault: Fault) {
        self.rules
            .lock()
            .entry(op)
            .or_default()
            .next
            .push_back(Some(fault));
    }

    /// Plans that the next call of `op` that nothing is planned for has no fault.
    pub fn pass(&self, op: Op) {
        self.rules
            .lock()
            .entry(op)
            .or_default()
            .next
            .push_back(None);
    }

    /// Injects this fault into every call of `op` that nothing is planned for, until [`clear`](Faults::clear) or
    /// [`clear_all`](Faults::clear_all).
    pub fn always(&self, op: Op, fault: Fault) {
        self.rules.lock().entry(op).or_default().always = Some(fault);
    }

    /// Removes the planned faults of `op`.
    pub fn clear(&self, op: Op) {
        self.rules.lock().entry(op).or_default().clear();
    }

    /// Removes all planned faults. The counts of calls and hits stay.
    pub fn clear_all(&self) {
        self.rules.lock().values_mut().for_each(Rules::clear);
    }

    /// The number of calls of `op`, with and without faults.
    pub fn calls(&self, op: Op) -> usize {
        self.rules.lock().get(&op).map_or(0, |rules| rules.calls)
    }

    /// The number of all calls.
    pub fn all_calls(&self) -> usize {
        self.rules.lock().values().map(|rules| rules.calls).sum()
    }

    /// The number of calls of `op` that a fault was injected into.
    pub fn hits(&self, op: Op) -> usize {
        self.rules.lock().get(&op).map_or(0, |rules| rules.hits)
    }

    /// Calls `callback` for each hit, so that a test can record it. Replaces an earlier callback.
    pub fn on_hit(&self, callback: impl Fn(Op, Fault) + Send + Sync + 'static) {
        *self.on_hit.lock() = Some(Arc::new(callback));
    }

    /// Drops all subscriptions and loses every message until [`unmute`](Faults::unmute), as if the connection were lost
    /// and could not be restored. Returns the number of dropped subscriptions. Each of them, and each subscription that
    /// is made meanwhile, is a hit of [`Op::Subscribe`].
    pub fn mute(&self) -> usize {
        let dropped = self.subscriptions.set_muted(true);
        for _ in 0..dropped {
            self.hit(Op::Subscribe, Fault::Muted);
        }
        dropped
    }

    /// Makes all subscriptions active again, which changes their versions, as after a reconnect.
    pub fn unmute(&self) {
        let _none_dropped = self.subscriptions.set_muted(false);
    }

    /// Loses every message about this key until [`tell_again`](Faults::tell_again). Its subscriptions stay active, so
    /// nobody notices: the key changes without a message.
    pub fn silence(&self, key: &str) {
        self.subscriptions.set_silent(key, true);
    }

    /// Ends [`silence`](Faults::silence).
    pub fn tell_again(&self, key: &str) {
        self.subscriptions.set_silent(key, false);
    }

    /// Replaces the connection for commands, as if the server had closed it and accepted the next one at once.
    pub fn reconnect(&self) {
        self.broken.send_modify(|broken| *broken += 1);
    }

    /// Has the server execute the calls that met [`Fault::Hung`], and replaces the connection for commands.
    pub fn go_on(&self) {
        self.gone_on.send_modify(|times| *times += 1);
        self.reconnect();
    }

    /// Gives each key its own slot, as if the server were a cluster. A command that names several of them fails.
    pub fn split_slots(&self) {
        self.has_slots.store(true, Ordering::Relaxed);
    }

    /// Makes each new subscription inactive for this time, as if its confirmation took that long. Each is a hit of
    /// [`Op::Subscribe`].
    pub fn subscribe_after(&self, delay: Duration) {
        self.subscriptions.set_delay(delay);
    }

    pub(crate) fn around(
        &self,
        inner: Arc<dyn Backend>,
        clock: Clock,
        response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        Arc::new(Faulty {
            inner,
            clock,
            response_timeout,
            faults: self.clone(),
        })
    }

    /// Whether a fault is planned for the next call of `op`.
    fn is_planned(&self, op: Op) -> bool {
        let rules = self.rules.lock();
        rules.get(&op).is_some_and(|rules| {
            rules
                .next
                .front()
                .copied()
                .unwrap_or(rules.always)
                .is_some()
        })
    }

    fn take(&self, op: Op) -> Option<Fault> {
        let fault = {
            let mut rules = self.rules.lock();
            let rules = rules.entry(op).or_default();
            rules.calls += 1;
            rules.next.pop_front().unwrap_or(rules.always)
        };
        if let Some(fault) = fault {
            self.hit(op, fault);
        }
        fault
    }

    fn hit(&self, op: Op, fault: Fault) {
        self.rules.lock().entry(op).or_default().hits += 1;
        // Cloned: the callback runs without the mutex, and may use these faults itself.
        let callback = self.on_hit.lock().clone();
        if let Some(callback) = callback {
            callback(op, fault);
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_all_removes_what_is_planned_and_keeps_the_counts() {
        let faults = Faults::new();
        faults.always(Op::Attempt, Fault::Never);
        faults.next(Op::Release, Fault::Double);
        assert_eq!(faults.take(Op::Attempt), Some(Fault::Never));
        faults.clear_all();
        assert_eq!(faults.take(Op::Attempt), None);
        assert_eq!(faults.take(Op::Release), None);
        let counted = (faults.calls(Op::Attempt), faults.hits(Op::Attempt));
        assert_eq!(counted, (2, 1));
    }
}

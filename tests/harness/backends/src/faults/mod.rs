//! A decorator that delays, loses and repeats the commands that pass through it.
//!
//! Every fault counts its hits, so that a test can tell a fault that was survived from one that never happened.

mod subscriptions;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::test_util::{
    Attempt, Attempted, Backend, Change, Clock, ConnectionSeen, Disconnection,
    Fault as BackendFault, Forced, Home, Inspected, Key, Kind, LatchSeen, NamedClient, Peeked,
    Released, Renewal, Renewed, Reply, Resource, ScanPosition, Scanned, Seen, Subscription, Sweep,
    Target, cause,
};
use distlock::{KeyReport, Owner};
use parking_lot::Mutex;
use tokio::sync::watch;

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
    /// Whether each key has a slot of its own.
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

    /// Gives each key a slot of its own, as if the server were a cluster. A command that names several of them fails.
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

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Backend>,
    clock: Clock,
    response_timeout: Duration,
    faults: Faults,
}

impl Faulty {
    /// Makes a call with the fault that is planned for `op`. Answers within the response timeout, as every backend
    /// does.
    async fn through<T: Send + 'static>(
        &self,
        op: Op,
        call: impl Fn(Arc<dyn Backend>) -> Reply<'static, T> + Send + Sync + 'static,
    ) -> Result<T, BackendFault> {
        tokio::select! {
            biased;
            reply = self.inject(op, call) => reply,
            () = self.sleep(self.response_timeout) => {
                Err(BackendFault::Unknown(cause("no answer to a command with an injected fault")))
            }
        }
    }

    /// Makes a call with the fault that is planned for `op`, for as long as that takes.
    async fn inject<T: Send + 'static>(
        &self,
        op: Op,
        call: impl Fn(Arc<dyn Backend>) -> Reply<'static, T> + Send + Sync + 'static,
    ) -> Result<T, BackendFault> {
        let inner = || Arc::clone(&self.inner);
        let unknown = || BackendFault::Unknown(cause("an injected fault"));
        match self.faults.take(op) {
            None => call(inner()).await,
            Some(Fault::FailBefore) => Err(unknown()),
            Some(Fault::FailAfter) => {
                let _lost = call(inner()).await;
                Err(unknown())
            }
            Some(Fault::FailLate(by)) => {
                self.sleep(by).await;
                let _lost = call(inner()).await;
                Err(unknown())
            }
            Some(Fault::Delay(by)) => {
                self.sleep(by).await;
                call(inner()).await
            }
            Some(Fault::DelayReply(by)) => {
                let reply = call(inner()).await;
                self.sleep(by).await;
                reply
            }
            Some(Fault::Late(by)) => {
                // Before the caller learns of it: a withdrawal that it sends next must not count as ordered behind
                // this.
                self.faults.reconnect();
                let (inner, clock) = (inner(), self.clock.clone());
                tokio::spawn(async move {
                    clock.sleep_until(clock.now().after(by)).await;
                    drop(call(inner).await);
                });
                Err(unknown())
            }
            Some(Fault::Hung) => {
                let (inner, mut gone_on) = (inner(), self.faults.gone_on.subscribe());
                tokio::spawn(async move {
                    if gone_on.changed().await.is_ok() {
                        drop(call(inner).await);
                    }
                });
                std::future::pending().await
            }
            Some(Fault::Never | Fault::Muted) => std::future::pending().await,
            Some(Fault::Garbled) => {
                let _odd = call(inner()).await;
                Err(BackendFault::Protocol(cause("an injected answer")))
            }
            Some(Fault::Double) => {
                drop(call(inner()).await);
                call(inner()).await
            }
        }
    }

    /// Refuses a command that names keys of several slots.
    fn check_slots<'a>(
        &self,
        mut targets: impl Iterator<Item = &'a Target>,
    ) -> Result<(), BackendFault> {
        let mut slots = targets
            .by_ref()
            .map(|target| self.home(&target.resource.key).slot);
        let first = slots.next();
        if slots.all(|slot| Some(slot) == first) {
            Ok(())
        } else {
            Err(BackendFault::Protocol(cause("keys of several slots")))
        }
    }

    async fn sleep(&self, by: Duration) {
        self.clock.sleep_until(self.clock.now().after(by)).await;
    }
}

/// The slot of a key. Names of one letter are in the order of their slots.
fn slot_of(key: &Key) -> u16 {
    let add = |slot: u16, byte: u8| slot.wrapping_mul(31).wrapping_add(byte.into());
    format!("{key:?}").bytes().fold(0, add) % 16_384
}

impl Backend for Faulty {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        let attempt = attempt.clone();
        Box::pin(self.through(Op::Attempt, move |inner| {
            let attempt = attempt.clone();
            Box::pin(async move { inner.attempt(&attempt).await })
        }))
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)> {
        if let Err(fault) = self.check_slots(attempts.iter().map(|attempt| &attempt.target)) {
            return Box::pin(async move { Err(fault) });
        }
        let attempts = attempts.to_vec();
        Box::pin(self.through(Op::Attempt, move |inner| {
            let attempts = attempts.clone();
            Box::pin(async move { inner.attempt_all(&attempts).await })
        }))
    }

    fn confirm<'a>(&'a self, granted: &'a [Attempt]) -> Option<Reply<'a, ()>> {
        if !self.faults.is_planned(Op::Confirm) {
            return self.inner.confirm(granted);
        }
        let granted = granted.to_vec();
        Some(Box::pin(self.through(Op::Confirm, move |inner| {
            let granted = granted.clone();
            Box::pin(async move {
                match inner.confirm(&granted) {
                    Some(confirming) => confirming.await,
                    None => Ok(()),
                }
            })
        })))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a> {
        let sent = batch.to_vec();
        let renewed = self.through(Op::Renew, move |inner| {
            let sent = sent.clone();
            Box::pin(async move { Ok(inner.renew(&sent).await) })
        });
        Box::pin(async move {
            match renewed.await {
                Ok(renewed) => renewed,
                Err(fault) => vec![Err(fault); batch.len()],
            }
        })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let target = target.clone();
        Box::pin(self.through(Op::Release, move |inner| {
            let target = target.clone();
            Box::pin(async move { inner.release(&target).await })
        }))
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        if let Err(fault) = self.check_slots(targets.iter()) {
            return Box::pin(async move { Err(fault) });
        }
        let targets = targets.to_vec();
        Box::pin(self.through(Op::Release, move |inner| {
            let targets = targets.clone();
            Box::pin(async move { inner.release_all(&targets).await })
        }))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let target = target.clone();
        Box::pin(self.through(Op::Release, move |inner| {
            let target = target.clone();
            Box::pin(async move { inner.withdraw(&target).await })
        }))
    }

    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced> {
        let (resource, seen) = (resource.clone(), seen.cloned());
        Box::pin(self.through(Op::ForceRelease, move |inner| {
            let (resource, seen) = (resource.clone(), seen.clone());
            Box::pin(async move { inner.force_release(&resource, seen.as_ref()).await })
        }))
    }

    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        let resource = resource.clone();
        Box::pin(self.through(Op::Inspect, move |inner| {
            let resource = resource.clone();
            Box::pin(async move { inner.inspect(&resource).await })
        }))
    }

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport> {
        let key = key.clone();
        Box::pin(self.through(Op::Inspect, move |inner| {
            let key = key.clone();
            Box::pin(async move { inner.examine(&key).await })
        }))
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        (pattern, sweep): (&'a str, Sweep),
        most: u32,
    ) -> Reply<'a, Scanned> {
        let (position, pattern) = (position.clone(), pattern.to_owned());
        Box::pin(self.through(Op::Inspect, move |inner| {
            let (position, pattern) = (position.clone(), pattern.clone());
            Box::pin(async move { inner.scan(&position, (&pattern, sweep), most).await })
        }))
    }

    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        let key = key.clone();
        Box::pin(self.through(Op::Inspect, move |inner| {
            let key = key.clone();
            Box::pin(async move { inner.named_clients(&key).await })
        }))
    }

    fn ping(&self) -> Reply<'_, ()> {
        Box::pin(self.through(Op::Inspect, |inner| {
            Box::pin(async move { inner.ping().await })
        }))
    }

    fn counts_all_listeners(&self) -> bool {
        self.inner.counts_all_listeners()
    }

    fn longest_disconnection(&self) -> Option<Disconnection> {
        self.inner.longest_disconnection()
    }

    fn servers(&self) -> String {
        self.inner.servers()
    }

    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>> {
        if let Err(fault) = self.check_slots(batch.iter()) {
            return Box::pin(async move { Err(fault) });
        }
        let batch = batch.to_vec();
        Box::pin(self.through(Op::Look, move |inner| {
            let batch = batch.clone();
            Box::pin(async move { inner.peek(&batch).await })
        }))
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        let key = key.clone();
        Box::pin(self.through(Op::Adjust, move |inner| {
            let key = key.clone();
            Box::pin(async move { inner.adjust(&key, request, change).await })
        }))
    }

    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen> {
        let key = key.clone();
        Box::pin(self.through(Op::Adjust, move |inner| {
            let key = key.clone();
            Box::pin(async move { inner.latch(&key).await })
        }))
    }

    fn has_heard_all<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            !self.faults.subscriptions.is_muted() && self.inner.has_heard_all(target).await
        })
    }

    fn answered(&self, key: &Key, request: Owner) {
        self.inner.answered(key, request);
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        let faults = &self.faults;
        faults.rules.lock().entry(Op::Subscribe).or_default().calls += 1;
        let delay = faults.subscriptions.delay();
        if faults.subscriptions.is_muted() {
            faults.hit(Op::Subscribe, Fault::Muted);
        } else if !delay.is_zero() {
            faults.hit(Op::Subscribe, Fault::Delay(delay));
        }
        let inner = self.inner.subscribe(target);
        let key = &target.resource.key;
        faults.subscriptions.around(key, inner, self.clock.clone())
    }

    fn refuses(&self, kind: Kind, key: &Key) -> Option<&'static str> {
        self.inner.refuses(kind, key)
    }

    fn home(&self, key: &Key) -> Home {
        let home = self.inner.home(key);
        if self.faults.has_slots.load(Ordering::Relaxed) {
            Home {
                slot: slot_of(key),
                ..home
            }
        } else {
            home
        }
    }

    fn epoch(&self, key: &Key) -> u64 {
        self.inner.epoch(key) + *self.faults.broken.borrow()
    }

    fn epoch_changes(&self) -> u64 {
        self.inner.epoch_changes() + *self.faults.broken.borrow()
    }

    fn epoch_changes_after(&self, changes: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(async move {
            let mut broken = self.faults.broken.subscribe();
            loop {
                let (inner, here) = (self.inner.epoch_changes(), *broken.borrow_and_update());
                if inner + here != changes {
                    return inner + here;
                }
                tokio::select! {
                    _ = self.inner.epoch_changes_after(inner) => {}
                    _ = broken.changed() => {}
                }
            }
        })
    }

    fn has_connection(&self) -> bool {
        true
    }

    fn channels(&self) -> usize {
        self.inner.channels()
    }

    fn connections(&self) -> Vec<ConnectionSeen> {
        self.inner.connections()
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

//! A backend around another that delays, loses and doubles what passes through it.
//!
//! Every fault counts its hits, so that a test can tell a fault that was survived from one that never happened.

mod subscriptions;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::test_util::{
    Attempt, Attempted, Backend, Change, Clock, Fault as BackendFault, Inspected, Released,
    Renewal, Reply, Resource, Subscription, Target, cause,
};
use parking_lot::Mutex;

use self::subscriptions::Subscriptions;

/// A verb of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Attempts of acquisitions.
    Attempt,
    /// Batches of renewals.
    Renew,
    /// Releases, in the foreground and in the background, and the clean-up of attempts in doubt.
    Release,
    /// Force-releases.
    ForceRelease,
    /// Looks at a key.
    Inspect,
    /// Changes of a semaphore or a latch.
    Adjust,
    /// Subscriptions. Nothing is planned for these: see [`Faults::mute`] and [`Faults::subscribe_after`].
    Subscribe,
}

/// What happens to a call of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out, and its outcome is unknown to the caller.
    FailBefore,
    /// It is carried out, and its outcome is unknown to the caller.
    FailAfter,
    /// It is carried out after this time.
    Delay(Duration),
    /// It is carried out, and its answer comes after this time.
    DelayReply(Duration),
    /// Its outcome is unknown to the caller at once, and it is carried out after this time: its connection broke, and
    /// later commands go over another.
    Late(Duration),
    /// Nothing is carried out and nobody answers: its outcome is unknown after the response timeout.
    Never,
    /// It is carried out twice, and the second answer counts.
    Double,
    /// A subscription that fell, or was made in vain, since nothing is heard.
    Muted,
}

/// The faults between one or more clients and their backends.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<HashMap<Op, Rules>>>,
    on_hit: Arc<Mutex<Option<OnHit>>>,
    subscriptions: Arc<Subscriptions>,
}

type OnHit = Arc<dyn Fn(Op, Fault) + Send + Sync>;

#[derive(Default)]
struct Rules {
    next: VecDeque<Option<Fault>>,
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
    /// No faults so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next call of `op` that has no fault planned meets this one.
    pub fn next(&self, op: Op, fault: Fault) {
        self.rules
            .lock()
            .entry(op)
            .or_default()
            .next
            .push_back(Some(fault));
    }

    /// The next call of `op` that has no fault planned passes.
    pub fn pass(&self, op: Op) {
        self.rules
            .lock()
            .entry(op)
            .or_default()
            .next
            .push_back(None);
    }

    /// Every call of `op` meets this fault, until [`clear`](Faults::clear) or
    /// [`clear_all`](Faults::clear_all).
    pub fn always(&self, op: Op, fault: Fault) {
        self.rules.lock().entry(op).or_default().always = Some(fault);
    }

    /// Takes back what was planned for `op`.
    pub fn clear(&self, op: Op) {
        self.rules.lock().entry(op).or_default().clear();
    }

    /// Takes back all that was planned.
    pub fn clear_all(&self) {
        self.rules.lock().values_mut().for_each(Rules::clear);
    }

    /// How many calls of `op` there were, with a fault or without.
    pub fn calls(&self, op: Op) -> usize {
        self.rules.lock().get(&op).map_or(0, |rules| rules.calls)
    }

    /// How many calls of `op` met a fault.
    pub fn hits(&self, op: Op) -> usize {
        self.rules.lock().get(&op).map_or(0, |rules| rules.hits)
    }

    /// Calls `told` whenever a fault hits: for a history. The last one that was set counts.
    pub fn on_hit(&self, told: impl Fn(Op, Fault) + Send + Sync + 'static) {
        *self.on_hit.lock() = Some(Arc::new(told));
    }

    /// Until [`unmute`](Faults::unmute) no subscription stands and every message is lost, as when a connection breaks and
    /// cannot be made again. Answers how many fell; those and each one made meanwhile are hits of [`Op::Subscribe`].
    pub fn mute(&self) -> usize {
        let fell = self.subscriptions.set_muted(true);
        for _ in 0..fell {
            self.hit(Op::Subscribe, Fault::Muted);
        }
        fell
    }

    /// All subscriptions stand again, with news, as after a reconnect.
    pub fn unmute(&self) {
        let _none_fell = self.subscriptions.set_muted(false);
    }

    /// Each subscription made from now on does not stand and hears nothing for this time, as while its confirmation is
    /// on the way: a hit of [`Op::Subscribe`].
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
            broken: AtomicU64::new(0),
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
        let told = self.on_hit.lock().clone();
        if let Some(told) = told {
            told(op, fault);
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
    /// How often a connection broke.
    broken: AtomicU64,
}

impl Faulty {
    /// Makes the call that `call` describes, as the fault planned for `op` has it; within the response timeout, as
    /// every backend answers.
    async fn through<T: Send + 'static>(
        &self,
        op: Op,
        call: impl Fn(Arc<dyn Backend>) -> Reply<'static, T> + Send + Sync + 'static,
    ) -> Result<T, BackendFault> {
        tokio::select! {
            biased;
            reply = self.met(op, call) => reply,
            () = self.sleep(self.response_timeout) => {
                Err(BackendFault::Unknown(cause("no answer to a command that met a fault")))
            }
        }
    }

    async fn met<T: Send + 'static>(
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
                let _unheard = call(inner()).await;
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
                self.broken.fetch_add(1, Ordering::AcqRel);
                let (inner, clock) = (inner(), self.clock.clone());
                tokio::spawn(async move {
                    clock.sleep_until(clock.now().after(by)).await;
                    drop(call(inner).await);
                });
                Err(unknown())
            }
            Some(Fault::Never | Fault::Muted) => std::future::pending().await,
            Some(Fault::Double) => {
                drop(call(inner()).await);
                call(inner()).await
            }
        }
    }

    async fn sleep(&self, by: Duration) {
        self.clock.sleep_until(self.clock.now().after(by)).await;
    }
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
        let attempts = attempts.to_vec();
        Box::pin(self.through(Op::Attempt, move |inner| {
            let attempts = attempts.clone();
            Box::pin(async move { inner.attempt_all(&attempts).await })
        }))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        let batch = batch.to_vec();
        Box::pin(self.through(Op::Renew, move |inner| {
            let batch = batch.clone();
            Box::pin(async move { inner.renew(&batch).await })
        }))
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let target = target.clone();
        Box::pin(self.through(Op::Release, move |inner| {
            let target = target.clone();
            Box::pin(async move { inner.release(&target).await })
        }))
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
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

    fn force_release<'a>(&'a self, resource: &'a Resource) -> Reply<'a, bool> {
        let resource = resource.clone();
        Box::pin(self.through(Op::ForceRelease, move |inner| {
            let resource = resource.clone();
            Box::pin(async move { inner.force_release(&resource).await })
        }))
    }

    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        let resource = resource.clone();
        Box::pin(self.through(Op::Inspect, move |inner| {
            let resource = resource.clone();
            Box::pin(async move { inner.inspect(&resource).await })
        }))
    }

    fn adjust<'a>(&'a self, target: &'a Target, change: Change) -> Reply<'a, i64> {
        let target = target.clone();
        Box::pin(self.through(Op::Adjust, move |inner| {
            let target = target.clone();
            Box::pin(async move { inner.adjust(&target, change).await })
        }))
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
        faults.subscriptions.around(inner, self.clock.clone())
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch() + self.broken.load(Ordering::Acquire)
    }

    fn channels(&self) -> usize {
        self.inner.channels()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_all_takes_back_what_is_planned_and_not_what_was_counted() {
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

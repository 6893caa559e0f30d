//! The backend that carries out what is planned in [`Faults`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock::test_util::{
    Attempt, Attempted, AttemptedAll, Backend, Change, Clock, ConnectionSeen, Connections,
    Disconnection, Fault as BackendFault, Forced, Home, Inspected, Key, Kind, LatchSeen,
    NamedClient, Peeked, Released, Renewal, Renewed, Reply, Reports, Resource, ScanFilter,
    ScanPosition, Scanned, Seen, Subscription, Target, cause,
};
use distlock::{KeyReport, Owner};

use super::{Fault, Faults, Op};

#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) inner: Arc<dyn Backend>,
    pub(super) clock: Clock,
    pub(super) response_timeout: Duration,
    pub(super) faults: Faults,
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
        Reply::new(self.through(Op::Attempt, move |inner| {
            let attempt = attempt.clone();
            Reply::new(async move { inner.attempt(&attempt).await })
        }))
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, AttemptedAll> {
        if let Err(fault) = self.check_slots(attempts.iter().map(|attempt| &attempt.target)) {
            return Reply::new(async move { Err(fault) });
        }
        let attempts = attempts.to_vec();
        Reply::new(self.through(Op::Attempt, move |inner| {
            let attempts = attempts.clone();
            Reply::new(async move { inner.attempt_all(&attempts).await })
        }))
    }

    fn confirm<'a>(&'a self, granted: &'a [Attempt]) -> Option<Reply<'a, ()>> {
        if !self.faults.is_planned(Op::Confirm) {
            return self.inner.confirm(granted);
        }
        let granted = granted.to_vec();
        Some(Reply::new(self.through(Op::Confirm, move |inner| {
            let granted = granted.clone();
            Reply::new(async move {
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
            Reply::new(async move { Ok(inner.renew(&sent).await) })
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
        Reply::new(self.through(Op::Release, move |inner| {
            let target = target.clone();
            Reply::new(async move { inner.release(&target).await })
        }))
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        if let Err(fault) = self.check_slots(targets.iter()) {
            return Reply::new(async move { Err(fault) });
        }
        let targets = targets.to_vec();
        Reply::new(self.through(Op::Release, move |inner| {
            let targets = targets.clone();
            Reply::new(async move { inner.release_all(&targets).await })
        }))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let target = target.clone();
        Reply::new(self.through(Op::Release, move |inner| {
            let target = target.clone();
            Reply::new(async move { inner.withdraw(&target).await })
        }))
    }

    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced> {
        let (resource, seen) = (resource.clone(), seen.cloned());
        Reply::new(self.through(Op::ForceRelease, move |inner| {
            let (resource, seen) = (resource.clone(), seen.clone());
            Reply::new(async move { inner.force_release(&resource, seen.as_ref()).await })
        }))
    }

    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>> {
        if let Err(fault) = self.check_slots(batch.iter()) {
            return Reply::new(async move { Err(fault) });
        }
        let batch = batch.to_vec();
        Reply::new(self.through(Op::Look, move |inner| {
            let batch = batch.clone();
            Reply::new(async move { inner.peek(&batch).await })
        }))
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        let key = key.clone();
        Reply::new(self.through(Op::Adjust, move |inner| {
            let key = key.clone();
            Reply::new(async move { inner.adjust(&key, request, change).await })
        }))
    }

    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen> {
        let key = key.clone();
        Reply::new(self.through(Op::Adjust, move |inner| {
            let key = key.clone();
            Reply::new(async move { inner.latch(&key).await })
        }))
    }

    fn answered(&self, key: &Key, request: Owner) {
        self.inner.answered(key, request);
    }

    fn refuses(&self, kind: Kind, key: &Key) -> Option<&'static str> {
        self.inner.refuses(kind, key)
    }
}

impl Reports for Faulty {
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        let resource = resource.clone();
        Reply::new(self.through(Op::Inspect, move |inner| {
            let resource = resource.clone();
            Reply::new(async move { inner.inspect(&resource).await })
        }))
    }

    fn listeners<'a>(&'a self, key: &'a Key) -> Reply<'a, u64> {
        let key = key.clone();
        Reply::new(self.through(Op::Inspect, move |inner| {
            let key = key.clone();
            Reply::new(async move { inner.listeners(&key).await })
        }))
    }

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport> {
        let key = key.clone();
        Reply::new(self.through(Op::Inspect, move |inner| {
            let key = key.clone();
            Reply::new(async move { inner.examine(&key).await })
        }))
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        wanted: ScanFilter<'a>,
        most: u32,
    ) -> Reply<'a, Scanned> {
        let (position, sweep) = (position.clone(), wanted.sweep);
        let pattern = wanted.pattern.to_owned();
        Reply::new(self.through(Op::Inspect, move |inner| {
            let (position, pattern) = (position.clone(), pattern.clone());
            Reply::new(async move {
                let pattern = &pattern;
                let wanted = ScanFilter { pattern, sweep };
                inner.scan(&position, wanted, most).await
            })
        }))
    }

    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        let key = key.clone();
        Reply::new(self.through(Op::Inspect, move |inner| {
            let key = key.clone();
            Reply::new(async move { inner.named_clients(&key).await })
        }))
    }
}

impl Connections for Faulty {
    fn ping(&self) -> Reply<'_, ()> {
        Reply::new(self.through(Op::Inspect, |inner| {
            Reply::new(async move { inner.ping().await })
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

    fn has_heard_all<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            if self.faults.take(Op::Hear) == Some(Fault::Never) {
                std::future::pending::<()>().await;
            }
            !self.faults.subscriptions.is_muted() && self.inner.has_heard_all(target).await
        })
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

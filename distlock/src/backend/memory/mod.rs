//! The lock server inside this process: the reference for the Redis scripts, and the embedded default.
//!
//! All data is behind one mutex. Time is tokio's clock, so tests may pause it. Each verb first removes what has expired
//! and then runs on what is left; subscribers are notified after the mutex is released.

mod call;
mod channels;
mod examine;
mod families;
mod peek;
pub(crate) mod server;
mod store;
#[cfg(feature = "testing")]
mod testing;
mod tokens;

#[cfg(feature = "testing")]
use std::future::ready;
#[cfg(feature = "testing")]
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::time::Duration;

use uuid::Uuid;

use self::call::Call;
use self::families::{fair, latch, lock, number, permit, rw, semaphore};
pub use self::server::MemoryServer;
use self::store::{State, Store};
#[cfg(feature = "testing")]
use self::testing::faults::Planned;
#[cfg(feature = "testing")]
pub use self::testing::observe::Waiter;
#[cfg(feature = "testing")]
use super::Disconnection;
#[cfg(feature = "testing")]
use super::ShownWait;
use super::family::{HoldFamily, no_lease};
use super::reports::KeyReport;
use super::{
    Attempt, Attempted, AttemptedAll, Backend, Change, Connections, Fault, Forced, Inspected,
    LatchSeen, NamedClient, Peeked, Released, Renewal, Renewed, Reply, Reports, ScanFilter,
    ScanPosition, Scanned, Seen, Subscription, Target, renewed_together,
};
use crate::clock::Tick;
use crate::config::Config;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Family;
use crate::resource::owner::Owner;
use crate::sync::atomic::Ordering;
use crate::sync::foreign;

impl MemoryServer {
    pub(crate) fn connect(&self, config: &Config, id: Uuid) -> MemoryBackend {
        let named = NamedClient {
            id,
            name: config.name.text().into_owned(),
            address: examine::HERE.to_owned(),
        };
        self.store.state.lock().clients.push(named);
        MemoryBackend {
            id,
            store: Arc::clone(&self.store),
            call: Call {
                // Relaxed: the number only has to differ from every other client's.
                client: self.store.clients.fetch_add(1, Ordering::Relaxed),
                now: Tick::default(),
                remembered: config.remembered(),
                owners_remembered: config.owners_remembered(),
                opening_remembered: config.opening_remembered(),
            },
            #[cfg(feature = "testing")]
            response_timeout: config.response_timeout,
        }
    }
}

/// One client's connection to a [`MemoryServer`].
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    id: Uuid,
    store: Arc<Store>,
    /// What each call has in common.
    call: Call,
    #[cfg(feature = "testing")]
    response_timeout: Duration,
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.clients.retain(|client| client.id != self.id);
    }
}

impl MemoryBackend {
    /// Runs a verb on the state, without what has expired, and then notifies the subscribers that it published to.
    fn run<'a, T: Send + 'a>(
        &self,
        verb: impl FnOnce(&mut State, Call) -> Result<T, Fault>,
    ) -> Reply<'a, T> {
        #[cfg(feature = "testing")]
        let planned = match self.store.faults.next() {
            Ok(planned) => planned,
            Err(fault) => return Reply::at_once(Err(fault)),
        };
        let now = self.store.clock.now();
        let call = Call { now, ..self.call };
        let (answer, published) = {
            let mut state = self.store.state.lock();
            state.sweep(now);
            let answer = verb(&mut state, call);
            (answer, std::mem::take(&mut state.published))
        };
        // Asked first: nearly always nobody listens.
        if !published.is_empty() {
            // After the mutex is released: a woken subscriber may call the next verb at once.
            foreign::each(published, |subscribers| {
                subscribers.send_modify(|signal| {
                    signal.version += 1;
                    signal.messages += 1;
                });
            });
        }
        #[cfg(feature = "testing")]
        self.store.observed.changed();
        #[cfg(feature = "testing")]
        if planned == Some(Planned::Lost) {
            return self.no_answer(now);
        }
        Reply::at_once(answer)
    }

    /// The run of the server. Only a test can have it begin another one.
    fn server_run(&self) -> Arc<str> {
        #[cfg(feature = "testing")]
        return Arc::from(self.store.faults.runs().to_string());
        #[cfg(not(feature = "testing"))]
        Arc::from("")
    }

    /// The answer to a command that was sent at `now`, as a client sees it whose wait for the answer fails.
    #[cfg(feature = "testing")]
    fn no_answer<'a, T: Send + 'a>(&self, now: Tick) -> Reply<'a, T> {
        let clock = self.store.clock.clone();
        let timeout = self.response_timeout;
        Reply::new(async move {
            clock.sleep_until(now.after(timeout)).await;
            let text = format!("no answer within {}", crate::error::show(timeout));
            Err(Fault::Unknown(super::cause(text)))
        })
    }
}

impl Backend for MemoryBackend {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        self.run(|state, call| match attempt.target.hold_family()? {
            HoldFamily::Lock => lock::attempt(state, attempt, call.now),
            HoldFamily::Fair => fair::attempt(state, attempt, call),
            HoldFamily::ReadWrite => rw::attempt(state, attempt, call),
            HoldFamily::Semaphore => semaphore::attempt(state, attempt, call),
            HoldFamily::Permit => permit::attempt(state, attempt, call),
        })
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, AttemptedAll> {
        self.run(|state, call| lock::attempt_all(state, attempts, call.now))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a> {
        let renewed = self.run(|state, call| {
            let one = |renewal: &Renewal| {
                Ok(match renewal.target.hold_family()? {
                    HoldFamily::Lock | HoldFamily::Fair => lock::renew(state, renewal, call.now),
                    HoldFamily::ReadWrite => rw::renew(state, renewal, call.now),
                    HoldFamily::Permit => permit::renew(state, renewal, call.now),
                    HoldFamily::Semaphore => {
                        return Err(no_lease(renewal.target.resource.kind));
                    }
                })
            };
            batch.iter().map(one).collect()
        });
        Box::pin(async { renewed_together(renewed.await, batch) })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        self.run(|state, call| match target.hold_family()? {
            HoldFamily::Lock => lock::release(state, target, call),
            HoldFamily::Fair => fair::release(state, target, call),
            HoldFamily::ReadWrite => rw::release(state, target, call),
            HoldFamily::Semaphore => semaphore::release(state, target, call),
            HoldFamily::Permit => permit::release(state, target, call),
        })
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        self.run(|state, call| lock::release_all(state, targets, call))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match target.resource.kind.family() {
            Family::Permit => self.run(|state, call| permit::withdraw(state, target, call)),
            Family::Semaphore => self.run(|state, call| semaphore::withdraw(state, target, call)),
            _ => self.release(target),
        }
    }

    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced> {
        self.run(|state, call| match resource.kind.family() {
            _ if resource.kind.is_fair() => fair::force_release(state, &resource.key, seen, call),
            Family::Lock => lock::force_release(state, &resource.key, seen, call),
            Family::ReadWrite => rw::force_release(state, resource, seen, call),
            Family::Semaphore => semaphore::force_release(state, &resource.key, seen),
            Family::Permit => permit::force_release(state, &resource.key, seen, call.now),
            Family::Latch => latch::force_release(state, &resource.key, seen, call),
        })
    }

    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>> {
        self.run(|state, call| {
            let look = |target| peek::peek(state, target, call.now);
            Ok(batch.iter().map(look).collect())
        })
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        self.run(|state, call| match change {
            Change::Semaphore(change) => semaphore::adjust(state, key, request, change, call),
            Change::Permit(change) => permit::adjust(state, key, request, change, call),
            Change::Latch(change) => latch::adjust(state, key, request, change, call),
        })
    }

    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen> {
        self.run(|state, call| {
            let seen = latch::seen(state, key, call.now)?;
            Ok(LatchSeen {
                run: Some(self.server_run()),
                ..seen
            })
        })
    }

    fn answered(&self, key: &Key, request: Owner) {
        let mut state = self.store.state.lock();
        number::answered(&mut state, key, request);
    }

    #[cfg(feature = "testing")]
    fn show_wait(
        &self,
        key: &Key,
        client: Uuid,
        call_site: Option<&'static Location<'static>>,
    ) -> Option<Box<dyn ShownWait>> {
        let waiter = Waiter {
            client_id: client,
            call_site,
        };
        Some(testing::observe::show(&self.store, key, waiter))
    }
}

impl Reports for MemoryBackend {
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        self.run(|state, call| match resource.kind.family() {
            Family::Lock => lock::inspect(state, &resource.key, call.now),
            Family::ReadWrite => rw::inspect(state, resource, call.now),
            Family::Semaphore | Family::Latch => number::inspect(state, &resource.key, call.now),
            Family::Permit => permit::inspect(state, &resource.key, call.now),
        })
    }

    fn listeners<'a>(&'a self, key: &'a Key) -> Reply<'a, u64> {
        self.run(|state, _| Ok(state.subscribers(Family::Lock, key.name())))
    }

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport> {
        self.run(|state, call| Ok(examine::examine(state, key, call.now)))
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        wanted: ScanFilter<'a>,
        most: u32,
    ) -> Reply<'a, Scanned> {
        self.run(|state, _| Ok(examine::scan(state, position, wanted, most)))
    }

    fn named_clients<'a>(&'a self, _: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        self.run(|state, _| Ok(state.clients.clone()))
    }
}

impl Connections for MemoryBackend {
    fn ping(&self) -> Reply<'_, ()> {
        self.run(|_, _| Ok(()))
    }

    #[cfg(feature = "testing")]
    fn longest_disconnection(&self) -> Option<Disconnection> {
        let (since, fault) = self.store.faults.down()?;
        Some(Disconnection {
            server: self.servers(),
            lasted: self.store.clock.now().since(since),
            fault,
        })
    }

    fn servers(&self) -> String {
        examine::HERE.to_owned()
    }

    #[cfg(feature = "testing")]
    fn has_heard_all<'a>(
        &'a self,
        _target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(ready(self.store.is_up()))
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        channels::subscribe(&self.store, self.call.client, target)
    }

    #[cfg(not(feature = "testing"))]
    fn epoch(&self, _: &Key) -> u64 {
        // There is no connection that could be replaced.
        0
    }

    #[cfg(not(feature = "testing"))]
    fn epoch_changes(&self) -> u64 {
        0
    }

    #[cfg(not(feature = "testing"))]
    fn epoch_changes_after(&self, _: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    #[cfg(feature = "testing")]
    fn epoch(&self, _: &Key) -> u64 {
        self.store.faults.epoch()
    }

    #[cfg(feature = "testing")]
    fn epoch_changes(&self) -> u64 {
        self.store.faults.epoch()
    }

    #[cfg(feature = "testing")]
    fn epoch_changes_after(&self, changes: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(self.store.faults.epoch_after(changes))
    }

    fn has_connection(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::client::Client;

    /// How often a task runs `work` until it first lets another task of its thread run; at most `most` times.
    async fn runs_without_a_break<F>(most: usize, work: impl Fn() -> F + Send + 'static) -> usize
    where
        F: Future + Send,
    {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let task = tokio::spawn(async move {
            for _ in 0..most {
                work().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        tokio::task::yield_now().await;
        task.abort();
        runs.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn task_that_never_waits_lets_the_other_tasks_of_its_thread_run() {
        const MOST: usize = 2_000;
        let lock = Client::in_memory().lock("k");
        let acquiring = lock.clone();
        let acquired = runs_without_a_break(MOST, move || {
            let acquire = acquiring.acquire();
            async { acquire.await.unwrap().release().await.unwrap() }
        });
        let acquired = acquired.await;
        let dropping = lock.clone();
        let dropped = runs_without_a_break(MOST, move || {
            let attempt = dropping.clone();
            async move { drop(attempt.try_acquire().await) }
        });
        let dropped = dropped.await;
        let inspecting = lock.clone();
        let inspected = runs_without_a_break(MOST, move || {
            let lock = inspecting.clone();
            async move { lock.is_locked().await }
        });
        let inspected = inspected.await;
        for runs in [acquired, dropped, inspected] {
            assert!((1..MOST).contains(&runs), "{runs} without a break");
        }
    }
}

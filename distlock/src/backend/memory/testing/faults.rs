//! What a test can do to a server in this process: take it down, fail or lose commands, and have it forget data.

use std::collections::VecDeque;

use crate::backend::memory::server::MemoryServer;
use crate::backend::memory::store::{Name, State};

use crate::backend::{Fault, Signal, cause};
use crate::clock::Tick;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::watch;
use crate::sync::{Mutex, foreign};

/// What is planned for the next commands.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    plan: Mutex<Plan>,
    /// How often the server was brought up again: the number of the connection that its clients have.
    epoch: AtomicU64,
    brought_up: watch::Sender<()>,
    /// How often data was forgotten while the server was down, as by a restart without it.
    runs: AtomicU64,
}

#[derive(Debug, Default)]
struct Plan {
    down_since: Option<Tick>,
    next: VecDeque<Planned>,
}

/// What happens to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// It is not carried out.
    Failed,
    /// It is carried out, and its answer is lost.
    Lost,
}

impl Faults {
    /// What happens to the command that arrives now.
    ///
    /// # Errors
    /// The fault of a command that is not carried out.
    pub(crate) fn next(&self) -> Result<Option<Planned>, Fault> {
        let mut plan = self.plan.lock();
        if plan.down_since.is_some() {
            return Err(taken_down());
        }
        match plan.next.pop_front() {
            Some(Planned::Failed) => Err(Fault::NotNow(cause(
                "the memory server was told to fail this command",
            ))),
            planned => Ok(planned),
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.plan.lock().down_since.is_some()
    }

    /// Since when the server is down, and what its clients are told; `None` if it is up.
    pub(crate) fn down(&self) -> Option<(Tick, Fault)> {
        let since = self.plan.lock().down_since?;
        Some((since, taken_down()))
    }

    pub(crate) fn epoch(&self) -> u64 {
        // Acquire: who sees the new number finds the server up.
        self.epoch.load(Ordering::Acquire)
    }

    /// The number of the run of the server.
    pub(crate) fn runs(&self) -> u64 {
        // Acquire: pairs with the Release in `forgot`.
        self.runs.load(Ordering::Acquire)
    }

    /// Data was removed. While the server is down that is a restart without the data.
    fn forgot(&self) {
        if self.is_down() {
            // Release: pairs with the load in `runs`. A client that sees the new run finds the data gone.
            self.runs.fetch_add(1, Ordering::Release);
        }
    }

    /// Completes when the number of the connection is not `epoch` any more.
    pub(crate) async fn epoch_after(&self, epoch: u64) -> u64 {
        let mut brought_up = self.brought_up.subscribe();
        loop {
            let current = self.epoch();
            if current != epoch {
                return current;
            }
            // The sender is a field of `self`, so it is there.
            let _open = brought_up.changed().await;
        }
    }

    fn plan_next(&self, planned: Planned, commands: u32) {
        let mut plan = self.plan.lock();
        plan.next.extend((0..commands).map(|_| planned));
    }
}

/// What a command meets while the server is down.
fn taken_down() -> Fault {
    Fault::NotNow(cause("the memory server was taken down"))
}

impl MemoryServer {
    /// Takes the server down: no command is carried out, and no message arrives, until it is
    /// [brought up](MemoryServer::bring_up) again. For tests.
    ///
    /// Clients experience it as a server that cannot be reached. An acquisition fails with
    /// [`Error::Unavailable`](crate::Error::Unavailable): at once if it makes one attempt, otherwise after
    /// [`unavailable_after`](crate::Builder::unavailable_after), 5 s by default. Holds are lost when their leases end. The
    /// server keeps its data, and leases in it end as time passes.
    ///
    /// A server that is down already stays down.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// server.take_down();
    /// assert!(client.lock("order:42").acquire().await.unwrap_err().is_unavailable());
    /// server.bring_up();
    /// assert!(client.lock("order:42").acquire().await.is_ok());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn take_down(&self) {
        let now = self.store.clock.now();
        let was_up = {
            let mut plan = self.store.faults.plan.lock();
            let was_up = plan.down_since.is_none();
            plan.down_since.get_or_insert(now);
            was_up
        };
        if was_up {
            self.set_subscriptions_active(false);
        }
    }

    /// Brings a server up that was [taken down](MemoryServer::take_down), with the data that it had. For tests.
    ///
    /// Clients experience it as a new connection: they renew their holds and waiters attempt again, at once or within a
    /// second. To test a server that restarts without its data, let it [forget](MemoryServer::forget_all) everything
    /// before.
    ///
    /// # Examples
    /// See [`take_down`](MemoryServer::take_down).
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn bring_up(&self) {
        let faults = &self.store.faults;
        let was_down = faults.plan.lock().down_since.take();
        if was_down.is_some() {
            // Release, and before the message: a client that is woken sees the new number.
            faults.epoch.fetch_add(1, Ordering::Release);
            foreign::send_modify(&faults.brought_up, |()| ());
            self.set_subscriptions_active(true);
        }
    }

    /// Fails the next commands of all clients: they are not carried out, and the clients learn that. For tests.
    ///
    /// Acquisitions that wait try again, and so do renewals and releases. An acquisition that makes one attempt fails
    /// with [`Error::Unavailable`](crate::Error::Unavailable).
    ///
    /// A command is one round trip, for whatever number of keys. Commands that a client sends in the background, such as
    /// renewals and the release of a dropped guard, count as well. Several calls add up, in their order. Commands that a
    /// server refuses because it is down do not count.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// server.fail_next(1);
    /// assert!(client.lock("order:42").try_acquire().await.unwrap_err().is_unavailable());
    /// assert!(client.lock("order:42").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn fail_next(&self, commands: u32) {
        self.store.faults.plan_next(Planned::Failed, commands);
    }

    /// Loses the answers to the next commands of all clients: they are carried out, and the clients hear nothing until
    /// their [`response_timeout`](crate::Builder::response_timeout) has passed. For tests.
    ///
    /// The clients send such a command again, which takes effect only once. An acquisition that makes one attempt fails
    /// with [`Error::Unavailable`](crate::Error::Unavailable), and what it was granted is released in the background.
    ///
    /// Commands are counted as for [`fail_next`](MemoryServer::fail_next).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// server.lose_next(1);
    /// let guard = client.lock("order:42").acquire().await?; // at the second attempt
    /// assert_eq!(client.lock("order:42").hold_count().await?, 1);
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn lose_next(&self, commands: u32) {
        self.store.faults.plan_next(Planned::Lost, commands);
    }

    /// Removes all data from the server, without a message, as a `FLUSHALL` does. For tests.
    ///
    /// A holder finds the loss at its next renewal, after a third of its lease, or at the release. Waiters look at their
    /// keys every 5 s.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let guard = client.lock("order:42").acquire().await?;
    /// server.forget_all();
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn forget_all(&self) {
        let mut state = self.store.state.lock();
        // Subscriptions and clients are connections and no data, no two openings of a latch have one number, and the time does not
        // go back.
        let former = std::mem::take(&mut *state);
        *state = State {
            channels: former.channels,
            clients: former.clients,
            openings: former.openings,
            tokens: former.tokens.without_data(),
            ..State::default()
        };
        drop(state);
        self.store.faults.forgot();
        self.store.observed.changed();
    }

    /// Removes what the server has under one key, without a message, as a `DEL` of the key and of the keys that belong to it
    /// does. For tests.
    ///
    /// Its lock, read/write lock, semaphore or latch is gone, with its waiters and its last fencing token. `key` is the
    /// name in the server, which begins with the client's [prefix](crate::Builder::key_prefix) if there is one. Holders
    /// and waiters find it as after [`forget_all`](MemoryServer::forget_all).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let (lost, kept) = (client.lock("a").acquire().await?, client.lock("b").acquire().await?);
    /// server.forget("a");
    /// assert!(lost.release().await.unwrap_err().is_lost());
    /// kept.release().await
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn forget(&self, key: &str) {
        self.store.state.lock().forget(key);
        self.store.faults.forgot();
        self.store.observed.changed();
    }

    fn set_subscriptions_active(&self, active: bool) {
        let signals: Vec<_> = {
            let state = self.store.state.lock();
            let channels = state.channels.values();
            channels.map(|channel| channel.signal.clone()).collect()
        };
        // After the mutex is released: a woken subscriber may call a verb at once.
        for signal in signals {
            signal.send_modify(|signal: &mut Signal| {
                signal.active = active;
                signal.version += 1;
            });
        }
    }
}

impl State {
    fn forget(&mut self, key: &str) {
        // What is stored beside a key begins with its name in braces, as over Redis.
        let beside = format!("{{{key}}}:");
        let own = self.values.iter().filter(|(name, entry)| {
            // A lock may have a key that begins with another one as its hash tag.
            ***name == *key || name.starts_with(&beside) && entry.value.is_beside_a_key()
        });
        let own: Vec<_> = own.map(|(name, _)| Name::clone(name)).collect();
        for name in &own {
            self.remove(name);
        }
        self.queues.remove(key);
        self.tokens.lose(key);
    }
}

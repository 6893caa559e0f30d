//! The client: what it is, what it holds and waits for, and how it ends.

pub(crate) mod builder;
#[cfg(feature = "redis")]
mod connect;
mod constructors;
mod detached;
mod facts;
pub(crate) mod force;
pub(crate) mod health;
mod in_memory;
pub(crate) mod inherit;
pub(crate) mod inspect;
pub(crate) mod installed;
pub(crate) mod leader;
mod no_feature;
pub(crate) mod quorum;
pub(crate) mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::Backend;
use crate::client::builder::Builder;
use crate::clock::Clock;
use crate::config::{Config, HOLDS_LOGGED_BY_CLOSE};
use crate::error::Error;
use crate::local::snapshot::Snapshot;
use crate::local::{Lives, Registry};
use crate::resource::identity::Identity;
use crate::session::Session;
use crate::telemetry;

/// A client of one lock server.
///
/// A client is cheap to clone, and all clones are the same client, so it needs no `Arc` around it. It uses one connection for commands
/// to each server that has its keys. From its first wait there on, it uses a second one for messages. A watchdog task renews its leases, and another task sends the releases of dropped
/// guards. These tasks end when the last clone of the client and its last lock and guard are dropped. Releases that are pending
/// at that moment are retried for at most one lease.
///
/// # Runtimes
/// A client needs a tokio runtime, and may outlive one. Its tasks and connections move to the runtime of the newest
/// call, or are started again by the next call. Between the end of a runtime and that call, nobody renews the leases. The runtime needs its timers, and for a real server its I/O: one that is made by hand
/// calls `enable_all()`, and otherwise these tasks panic, and nothing renews the leases. If a runtime exists but is no longer driven, the tasks in it stop and
/// holds end with their leases: do not use a client from a runtime that is only driven now and then.
///
/// # Copies of a process
/// In a copy of the process (`fork`), the client becomes another client: it takes a new id when the copy first uses it, and makes
/// new connections. It sends nothing for the holds of the original, and neither uses nor closes the original's connections. In
/// the copy, the holds of the original are [lost](crate::Loss::NewIdentity), and acquisitions that waited start again if the copy
/// polls them. A lock server [in memory](Client::in_memory) is copied as well. The two servers know nothing of each other, so the
/// two processes do not exclude each other. In the copy's server, the original's holds end with their leases. A copy that no `fork` of the C library made, but a bare system call,
/// learns it when it is about to send something, which then fails.
///
/// Tokio does not support a fork while a runtime runs. Fork outside of any runtime, either before other threads exist or while no
/// other thread uses the client. Make a new runtime in the copy. Neither use nor drop the former runtime in the copy
/// ([`std::mem::forget`] it): both processes share the events of its sockets, and each would take events of the other. For
/// machines that are restored from a snapshot, see [`renew_identity`](Client::renew_identity).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Client;
///
/// let client = Client::in_memory();
/// // let client = Client::connect("redis://127.0.0.1:6379").await?;
/// let guard = client.lock("order:42").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias("RedissonClient", "LockManager"))]
#[derive(Clone)]
pub struct Client {
    lives: Arc<Lives>,
}

impl Client {
    /// Returns a builder, to create a client with other settings.
    ///
    /// # Examples
    /// See [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What the client knows in this process.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.lives.current()
    }

    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.lives.current().session)
    }

    /// The settings, which are the same under each identity.
    fn with_config<T>(&self, with: impl FnOnce(&Config) -> T) -> T {
        with(&self.lives.peek().session.config)
    }

    /// Returns the id of this client: a random UUID, with which the names of all its owners begin. A copy of the process
    /// returns another one, and so does the client after [`renew_identity`](Client::renew_identity).
    ///
    /// # Examples
    /// ```
    /// let (one, two) = (distlock::Client::in_memory(), distlock::Client::in_memory());
    /// assert_ne!(one.id(), two.id());
    /// ```
    pub fn id(&self) -> Uuid {
        self.session().id
    }

    /// Gives this client and all its clones another [id](Client::id), and connections of its own.
    ///
    /// Call it after a snapshot of a machine was restored, before any other use of the client. Two machines that were restored
    /// from one snapshot have the same clients with the same ids. Without this call, the server would grant both of them the same
    /// keys. A copy of a process (`fork`) needs no call; see [Copies of a process](Client#copies-of-a-process).
    ///
    /// The client sends no renewal and no release under the former id:
    /// * Earlier holds are [lost](crate::Loss::NewIdentity). In the server they end with their leases, unless another copy renews
    ///   them.
    /// * Acquisitions and waits for a latch that are under way start again, with their whole waiting time.
    /// * A change of a number that is under way, such as [`count_down`](crate::CountDownLatch::count_down), fails with
    ///   [`Error::Unavailable`] if it was not answered. The server may have executed it.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] or [`Error::InvalidUrl`]: the client cannot be made again with its settings.
    /// [`Error::TimePaused`]: tokio's time is paused now. The former id is given up in any case. The client is closed until a
    /// later operation succeeds in making the client again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let (former, guard) = (client.id(), client.lock("order:42").acquire().await?);
    /// client.renew_identity()?;
    /// assert_ne!(client.id(), former);
    /// // The hold is that of the machine of which this one is a copy.
    /// assert!(!guard.is_held());
    /// assert!(client.lock("order:42").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn renew_identity(&self) -> Result<(), Error> {
        self.lives.renew()
    }

    /// Returns what this client holds and waits for at this moment, with the lines of code that acquired; which of its
    /// acquisitions wait for each other; and its latest losses.
    ///
    /// The method asks no server, and blocks only while it copies the data. It therefore works while the server does not answer.
    /// Holds and waits are read one after the other: an acquisition that is granted in between may be in both lists or in
    /// neither. The snapshot has nothing of other processes.
    ///
    /// Waits for a [latch](crate::CountDownLatch), and for another branch of the same scope, are not listed. A
    /// [Redlock](crate::Quorum) that waits is listed by the client of its first server, and its holds by the clients of their
    /// servers.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let waiting = tokio::spawn(client.lock("order:42").acquire().into_future());
    /// tokio::task::yield_now().await;
    ///
    /// let now = client.snapshot();
    /// assert_eq!((now.holds[0].key.as_str(), now.waits[0].key.as_str()), ("order:42", "order:42"));
    /// println!("{} is held since {:?}, by {}", now.holds[0].key, now.holds[0].held_for, now.holds[0].call_site);
    /// # waiting.abort();
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        self.lives.current().snapshot()
    }

    /// Returns `true` once [`close`](Client::close) was called, on this client or on a clone of it. It also returns `true` while a
    /// client that has given up its id [cannot be made again](Client::renew_identity).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert!(!client.is_closed());
    /// client.close(std::time::Duration::from_secs(5)).await?;
    /// assert!(client.is_closed());
    /// # Ok(()) }
    /// ```
    pub fn is_closed(&self) -> bool {
        self.session().closed.is_set()
    }

    /// Refuses further acquisitions, and waits until this client holds nothing any more: all its guards have ended, and the
    /// server has confirmed each release.
    ///
    /// Call it before the program ends. A lock that is held when the program ends, or whose guard is dropped right before
    /// the end, may otherwise stay locked until its lease expires.
    ///
    /// End the guards of the calling function first: a guard that lives in the code that awaits `close` cannot end meanwhile,
    /// so `close` waits for the whole `timeout`. A guard that has lost its hold has nothing to release, and is not waited for.
    ///
    /// Acquisitions that are waiting get [`Error::Closed`], and later ones as well. `close` does not wait until their tasks have seen
    /// the error: join these tasks before the runtime ends. Otherwise a lock that is granted at this moment may stay locked until its
    /// lease expires, and a place in the queue of a fair lock until its [`waiter_timeout`](Builder::waiter_timeout).
    ///
    /// The following continues as before:
    /// * Guards that still exist are renewed until they end, and can be released.
    /// * Code inside their scopes can still re-enter their holds, even if it waits for another branch of the scope.
    /// * A waiter of a [latch](crate::CountDownLatch) continues to wait. The numbers of latches and semaphores can be changed,
    ///   and permits can be given back.
    /// * Locks can be inspected and force-released.
    ///
    /// # Errors
    /// [`Error::ReleasesPending`]: when `timeout` was over, guards were alive, or the server had not confirmed all releases. The
    /// log names ten holds of such guards, the oldest ones, with the lines that acquired them. The guards continue as before, and
    /// the client keeps retrying the releases in the background. With [`Duration::MAX`] there is no limit.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed and the releases continue in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// drop(client.lock("order:42").acquire().await?);
    /// client.close(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "shutdown")]
    pub async fn close(&self, timeout: Duration) -> Result<(), Error> {
        let registry = self.lives.close();
        let session = &registry.session;
        let until = session.now().after(timeout);
        crate::sync::select! {
            // In this order: releases that are done count, even if the timeout is zero.
            biased;
            () = session.holds_nothing() => Ok(()),
            () = session.clock.sleep_until(until) => still_holds(&registry, timeout),
        }
    }
}

/// The result of a close that has waited for `after`. Logs the holds that have not ended.
fn still_holds(registry: &Registry, after: Duration) -> Result<(), Error> {
    let session = &registry.session;
    // A hold that was handed over to a waiter which is not polled has no guard, and is renewed until it is released for the waiter.
    let watched = session.watchdog.len();
    let Snapshot { holds, .. } = registry.snapshot();
    let releases = session.releaser.pending() + watched.saturating_sub(holds.len());
    if holds.is_empty() && releases == 0 {
        // The last one has ended meanwhile.
        return Ok(());
    }
    for hold in holds.iter().take(HOLDS_LOGGED_BY_CLOSE) {
        telemetry::held_after_close(
            hold.kind,
            &hold.key,
            hold.owner,
            hold.held_for,
            hold.call_site,
        );
    }
    Err(Error::ReleasesPending {
        holds: holds.len(),
        releases,
        after,
    })
}

/// A client's registry, with nothing in it.
fn new_registry(
    identity: Arc<Identity>,
    config: &Config,
    clock: Clock,
    backend: Arc<dyn Backend>,
) -> Arc<Registry> {
    Registry::new(Session::new(identity, config.clone(), clock, backend))
}

impl AsRef<Client> for Client {
    fn as_ref(&self) -> &Client {
        self
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

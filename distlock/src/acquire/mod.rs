//! How a lock is acquired: the builder. [`path`] leads from it to a guard.

pub(crate) mod attach;
mod beside;
pub(crate) mod handle;
pub(crate) mod handles;
mod lock_set;
mod multi;
mod observed;
pub(crate) mod on_lost;
pub(crate) mod path;
mod quorum;
mod reentry;
mod settings;

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

pub(crate) use self::lock_set::LockSet;
use self::settings::{AcquireSettings, Bounds};
use crate::error::Error;
use crate::guard::from_guard::{AcquiredGuard, FromGuard};
use crate::guard::run::{BoxedAcquisition, Run, TryRun};
use crate::guard::{Guard, Leased};
use crate::telemetry::LockType;

/// A builder for one acquisition of a lock, made by [`Lock::acquire`](crate::Lock::acquire).
///
/// Await it to get a [`Guard`], or pass the work to [`run`](Acquire::run) or [`try_run`](Acquire::try_run). The builder
/// owns everything it needs, so it can be stored, sent to another task or spawned. It is no future itself: `.await` makes
/// one, and so does `.into_future()`, which `join!`, `spawn`, `JoinSet`, `select_all` and `Box::pin` need, as in
/// `tokio::spawn(lock.acquire().into_future())`.
///
/// Without [`wait`](Acquire::wait) the acquisition uses the client's
/// [`default_wait`](crate::Builder::default_wait), which is unlimited unless it was set. Without
/// [`lease`](Acquire::lease) the watchdog renews the lease for as long as the guard lives.
///
/// `let _guard = lock.acquire();` without `.await` locks nothing, and neither does `let _guard = client.lock("order:42");`. The
/// compiler does not warn of a value that gets a name. Without the `let` it warns of both.
/// `let _ = lock.acquire().await?;` releases the lock at once, because `_` keeps no value. The lint
/// `clippy::let_underscore_must_use` finds every `let _` of this kind. It finds no name, such as `_guard`.
///
/// # Errors
/// * [`Error::Timeout`]: another owner held the lock until the wait was over. Or a wait of less than 500 ms was over before the server
///   had answered, see [`Blocker::Unanswered`](crate::Blocker::Unanswered).
/// * [`Error::Overloaded`]: another owner holds the lock, and the waiter limit is reached.
/// * [`Error::Unavailable`]: the server did not answer within the wait, or for
///   [`unavailable_after`](crate::Builder::unavailable_after). Or the grants of several keys, or of a Redlock's majority, came so late
///   that they were not held together.
/// * [`Error::Lost`]: the acquisition would have re-entered a hold that is lost, or the semaphore whose permits it waited
///   for is gone.
/// * [`Error::Deadlock`]: the acquisition would wait for a lock that the same scope holds, or wants one key as two kinds of lock.
/// * [`Error::InvalidKey`], [`Error::NoKeys`], [`Error::InvalidLease`], [`Error::InvalidWait`],
///   [`Error::InvalidPermits`], [`Error::InvalidConfig`], [`Error::Unsupported`]: the input was refused before anything
///   was sent.
/// * [`Error::Denied`], [`Error::WrongType`], [`Error::Protocol`]: the server refused the command.
/// * [`Error::UnsupportedServer`]: the client had to connect again, and can no longer use the server.
/// * [`Error::Closed`]: the client was closed.
///
/// # Cancel safety
/// Dropping the future gives up the place in the queue. A hold that was granted in the meantime goes to the next waiter
/// of this client, or is released in the background. A wake-up that was on its way goes to the next waiter.
///
/// A future that was polled once and is then neither dropped nor polled, such as one next to a `select!` loop, holds up others
/// for one to two seconds. Then it loses its place in the queue of its client, and what the server has granted to it is
/// released, even if nobody of its client waits. When it is polled again, it starts again, at the end of the queue. Its place
/// among the waiters of a fair lock in the server lasts for the [`waiter_timeout`](crate::Builder::waiter_timeout). This
/// needs a runtime whose tasks run. Inside a [`scope`](crate::Guard::scope) that has the key itself, such a future may keep other
/// branches of that scope waiting until it is polled or dropped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
///
/// let client = distlock::Client::in_memory();
/// let guard = client.lock("order:42").acquire().wait(Duration::from_secs(5)).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// Where a future is asked for:
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use futures_util::future::select_all;
/// use tokio::task::JoinSet;
///
/// let client = distlock::Client::in_memory();
/// let acquire = |order: u64| client.lock(format!("order:{order}")).acquire().into_future();
/// let (one, two) = tokio::join!(acquire(1), acquire(2));
/// let three = tokio::spawn(acquire(3)).await?;
/// let mut tasks = JoinSet::from_iter([acquire(4), acquire(5)]);
/// let four_or_five = tasks.join_next().await;
/// let (six_or_seven, _, _) = select_all([acquire(6), acquire(7)].map(Box::pin)).await;
/// # let all = (one?, two?, three?, four_or_five, six_or_seven?); drop(all);
/// # Ok(()) }
/// ```
#[must_use = "an acquisition does nothing unless it is awaited or run"]
pub struct Acquire<G = Guard> {
    locks: LockSet,
    settings: AcquireSettings,
    guard: PhantomData<fn() -> G>,
}

impl<G: FromGuard> Acquire<G> {
    #[track_caller]
    pub(crate) fn new(locks: LockSet) -> Self {
        Self {
            locks,
            settings: AcquireSettings::new(Location::caller()),
            guard: PhantomData,
        }
    }

    /// Acquires this many permits of a semaphore.
    pub(crate) fn permits(mut self, permits: u32) -> Self {
        if permits != 1 {
            self.bounds().permits = Some(permits);
        }
        self
    }

    fn bounds(&mut self) -> &mut Bounds {
        self.settings.bounds.get_or_insert_default()
    }

    /// Sets how long to wait, at most a year. With zero, the acquisition makes one full attempt and does not wait. With
    /// [`Duration::MAX`] it waits without limit, whatever the client's [`default_wait`](crate::Builder::default_wait) is.
    ///
    /// The time counts from the first poll and covers everything: connecting, queueing and the last attempt.
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidWait`] for any other time of more than 365 days.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let _held = lock.acquire().wait(Duration::from_secs(5)).await?;
    /// assert!(lock.acquire().wait(Duration::ZERO).await.unwrap_err().is_busy());
    /// # Ok(()) }
    /// ```
    #[doc(alias("timeout", "wait_time"))]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = Some(wait);
        self
    }

    /// Sets a waiter limit: how many acquisitions of this client may already be waiting for the key when this one has
    /// to wait. If there are that many, this one is refused at once. With 0 it does not wait, unless other acquisitions
    /// have already queued behind it.
    ///
    /// The limit bounds the number of tasks that wait for a key while it is held for a long time. The default is the
    /// client's [`max_waiters`](crate::Builder::max_waiters), which is unlimited unless it was set. For a multi-lock,
    /// the waiters of the key that another owner holds count. For a Redlock, those of the first server's client count.
    /// Waiting for another branch of the same scope does not count.
    ///
    /// # Errors
    /// When awaited, [`Error::Overloaded`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let held = lock.acquire().max_waiters(1).await?; // free, so it did not wait
    /// let waiting = tokio::spawn(lock.acquire().max_waiters(1).into_future());
    /// tokio::task::yield_now().await;
    /// assert!(lock.acquire().max_waiters(1).await.unwrap_err().is_overloaded());
    /// held.release().await?;
    /// waiting.await.unwrap()?.release().await
    /// # }
    /// ```
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.settings.max_waiters = Some(most);
        self
    }

    /// Sets where in the code the acquisition is reported to be made: in [snapshots](crate::Client::snapshot) and in the
    /// warnings of long waits. The default is the place of the call that made the builder.
    ///
    /// Use it in code that locks on behalf of others, such as middleware, so that its users find their own line.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::panic::Location;
    ///
    /// #[track_caller]
    /// fn exclusive(client: &distlock::Client, user: u64) -> distlock::Acquire {
    ///     client.lock(format!("user:{user}")).acquire().called_from(Location::caller())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let _guard = exclusive(&client, 42).await?;
    /// assert_eq!(client.snapshot().holds[0].call_site.line(), line!() - 1);
    /// # Ok(()) }
    /// ```
    pub fn called_from(mut self, call_site: &'static Location<'static>) -> Self {
        self.settings.call_site = call_site;
        self
    }

    /// Checks the settings without asking a server, and returns the error with which awaiting would refuse them.
    ///
    /// Use it in code that makes an acquisition long before it is awaited, such as middleware with settings, so that a mistake
    /// is found when the program starts. The layers of `distlock-tower` check their settings in this way.
    ///
    /// # Errors
    /// The [errors of acquiring](Acquire#errors) that say that the input was refused: [`Error::InvalidLease`],
    /// [`Error::InvalidWait`], [`Error::InvalidConfig`], [`Error::InvalidKey`], [`Error::InvalidPermits`], [`Error::NoKeys`] and
    /// [`Error::Unsupported`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let acquire = client.lock("order:42").acquire();
    /// assert!(acquire.check().is_ok());
    /// assert!(acquire.lease(Duration::ZERO).check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        match &self.locks {
            LockSet::One(handle) => self
                .settings
                .checked(handle, LockType::Single(handle.kind))
                .map(drop),
            LockSet::All(handles) => self
                .settings
                .checked_all(handles, LockType::Multi)
                .map(drop),
            LockSet::Quorum(handles) => self.settings.checked_quorum(handles).map(drop),
            LockSet::Refused(error) => Err((**error).clone()),
        }
    }

    /// Acquires the lock, runs `body` inside the critical section, and releases the lock.
    ///
    /// This is the usual way to use a lock. `body` is first polled when the lock is held, and it is dropped as soon as the
    /// hold is lost. The release is confirmed before the result is returned, unless the hold is
    /// [handed over](crate::Guard::release) to another task of this client. `body` may borrow from its surroundings and
    /// does not have to be `Send`. A thread of `spawn_blocking` and a task that `body` has spawned are not dropped with it: they
    /// [go on](crate::guide::ownership#spawned-tasks) without the lock.
    ///
    /// # Errors
    /// The errors of [acquiring](Acquire#errors), and [`Error::Lost`] if the hold was lost.
    /// [`Error::body_completed`] tells whether `body` ran to its end; [`on_lost`](Acquire::on_lost) gets its value then. If the
    /// server does not answer the release, a warning
    /// is logged and the result is returned: the lease frees the lock.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and then releases the lock in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let sum = client.lock("sum").acquire().run(async { 1 + 2 }).await?;
    /// assert_eq!(sum, 3);
    /// # Ok(()) }
    /// ```
    #[doc(alias("using", "with_lock"))]
    pub fn run<F: Future>(self, body: F) -> Run<F> {
        Run::new(self.acquiring(), body)
    }

    /// Does the same as [`run`](Acquire::run) for a body that returns a `Result`, with one `?` instead of two.
    ///
    /// If the body fails and the hold is found lost afterwards, the body's error is returned and the loss is logged.
    ///
    /// # Errors
    /// The errors of the body, and the errors of [`run`](Acquire::run), converted into the body's error type.
    ///
    /// # Cancel safety
    /// The same as [`run`](Acquire::run).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = distlock::Client::in_memory();
    /// let parsed = client
    ///     .lock("parse")
    ///     .acquire()
    ///     .try_run(async { Ok::<i32, Box<dyn std::error::Error>>("42".parse()?) })
    ///     .await?;
    /// assert_eq!(parsed, 42);
    /// # Ok(()) }
    /// ```
    pub fn try_run<T, E, F>(self, body: F) -> TryRun<F>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        TryRun::new(self.acquiring(), body)
    }

    /// Makes a single attempt. Returns `None` if another owner holds the lock.
    pub(crate) async fn try_now(self) -> Result<Option<G>, Error> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(G::from_guard(AcquiredGuard::new(guard)))),
            Err(busy) if busy.is_held_by_another() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn acquiring(self) -> BoxedAcquisition {
        Box::pin(async move { self.acquire().await })
    }
}

impl<G: Leased> Acquire<G> {
    /// Sets a fixed lease, from 1 ms to ten years. The watchdog does not renew it: the hold ends with the lease.
    ///
    /// Inside a scope that already holds the key, the lease limits only this guard and never shortens the hold. The lease of
    /// a Redlock is at least 10 ms. A read lock that Redisson also reads needs a lease of at most
    /// [their watchdog timeout](crate::guide::sharing_with_redisson#what-has-to-agree).
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidLease`] for a time out of these bounds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("report").acquire().lease(Duration::from_secs(10)).await?;
    /// tokio::time::sleep(Duration::from_secs(10)).await;
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    #[doc(alias("ttl", "lease_time"))]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// Limits how long the hold may last, from 1 ms to ten years. After that time the watchdog stops renewing it and the
    /// hold is lost.
    ///
    /// Use it for code that may hang: its scope is dropped with [`Error::Lost`] and the reason
    /// [`HeldTooLong`](crate::Loss::HeldTooLong), and the key is free for others. Blocking threads and spawned tasks
    /// [go on](crate::guide::ownership#spawned-tasks). Unlike with a
    /// [lease](Acquire::lease), the key is free after the watchdog's lease if the process dies, even if `max_hold` is
    /// much longer. If both are set, the shorter one applies. The default is the client's
    /// [`max_hold`](crate::Builder::max_hold), which is unlimited unless it was set. With [`Duration::MAX`] there is no
    /// limit, whatever the client's is.
    ///
    /// A re-entry has a separate limit and does not extend the limit of the enclosing hold.
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidConfig`] for any other time out of these bounds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let stuck = client.lock("report").acquire().max_hold(Duration::from_secs(600));
    /// let ended = stuck.run(std::future::pending::<()>()).await;
    /// assert!(ended.unwrap_err().is_lost()); // ten minutes later
    /// assert!(client.lock("report").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock_at_most_for")]
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.bounds().max_hold = Some(most);
        self
    }

    /// Keeps the key taken for at least this long, counted from the grant. If the lock is released earlier, the key stays
    /// taken until then, and reports list its last owner as released.
    ///
    /// Use it for jobs that must not run again too soon, although several machines start them at about the same time.
    /// Each machine tries once, and within this time the others find the key taken. Nothing renews the remaining time,
    /// and waiters are granted the lock when it is over. The key also stays taken if the job fails or is dropped in the middle, as
    /// by a shutdown. So a retry belongs inside the lock, and the job should end before the shutdown does. The setting corresponds to ShedLock's `lockAtLeastFor`.
    ///
    /// Reentrant, non-reentrant, spin and fenced locks support it, and so do multi-locks and Redlocks of those. The time is
    /// 1 ms to ten years, and at most the [lease](Acquire::lease) and [`max_hold`](Acquire::max_hold) if they are set.
    ///
    /// A process that dies does not release: its key is free when the watchdog's lease has ended. Set a lease as long as
    /// this time if the key has to stay taken in that case too.
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidConfig`] for a time out of these bounds, and [`Error::Unsupported`] for other
    /// kinds of locks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let job = client.lock("cleanup").acquire().wait(Duration::ZERO).hold_at_least(Duration::from_secs(60));
    /// assert_eq!(job.clone().run(async { "cleaned up" }).await?, "cleaned up");
    /// assert!(job.clone().run(async {}).await.unwrap_err().is_busy());
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// job.run(async {}).await
    /// # }
    /// ```
    #[doc(alias = "lock_at_least_for")]
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.bounds().hold_at_least = time;
        self
    }
}

impl<G> Clone for Acquire<G> {
    fn clone(&self) -> Self {
        Self {
            locks: self.locks.clone(),
            settings: self.settings.clone(),
            guard: PhantomData,
        }
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("locks", &self.locks)
            .field("wait", &self.settings.wait)
            .field("lease", &self.settings.lease)
            .finish_non_exhaustive()
    }
}

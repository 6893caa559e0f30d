//! How a lock is acquired: the builder, and the path from it to a guard.

pub(crate) mod handle;
mod multi;
mod reentry;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use self::handle::Handle;
use self::reentry::{Enclosing, check_open, find_enclosing};
use crate::config::{check_hold, check_lease, check_permits, check_wait};
use crate::error::Error;
use crate::guard::run::{Acquiring, Run, TryRun};
use crate::guard::{Guard, Leased};
use crate::key::Resource;
use crate::local::{HoldShare, Registry};
use crate::wait::{self, Request, RequestedKey, quorum};

/// An acquisition to be awaited; made by [`Lock::acquire`](crate::Lock::acquire).
///
/// Await it for a [`Guard`], or give it the work to do with [`run`](Acquire::run) or [`try_run`](Acquire::try_run). It
/// owns all it needs, so it can be kept, sent to another task or spawned.
///
/// Without [`wait`](Acquire::wait) it waits without limit, or as the client's
/// [`default_wait`](crate::Builder::default_wait) says. Without [`lease`](Acquire::lease) the watchdog renews the lease
/// for as long as the guard lives.
///
/// # Errors
/// * [`Error::Timeout`]: held by another until the wait was over.
/// * [`Error::Overloaded`]: held by another, and too many wait already.
/// * [`Error::Unavailable`]: nobody answered, for the length of the wait or for
///   [`unavailable_after`](crate::Builder::unavailable_after).
/// * [`Error::Lost`]: a re-entry found the hold around it gone.
/// * [`Error::InvalidKey`], [`Error::InvalidLease`], [`Error::InvalidWait`], [`Error::InvalidPermits`],
///   [`Error::InvalidConfig`], [`Error::Unsupported`]: refused before anything was sent.
/// * [`Error::Denied`], [`Error::WrongType`], [`Error::Closed`].
///
/// # Cancel safety
/// Dropping the future gives up the place in line; a hold that was granted meanwhile is released in the background, and
/// a wake-up that was on its way goes to the next in line.
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
#[must_use = "an acquisition does nothing unless it is awaited or run"]
pub struct Acquire<G = Guard> {
    what: LockSet,
    permits: u32,
    wait: Option<Duration>,
    lease: Option<Duration>,
    /// Boxed, for an acquisition is small and most have none.
    bounds: Option<Box<Bounds>>,
    guard: PhantomData<fn() -> G>,
}

/// What else an acquisition may say of itself.
#[derive(Clone, Debug, Default)]
struct Bounds {
    max_hold: Option<Duration>,
    hold_at_least: Duration,
    max_waiters: Option<u32>,
}

/// What is to be acquired.
#[derive(Clone, Debug)]
pub(crate) enum LockSet {
    One(Handle),
    /// All of these, or none.
    All(Arc<[Handle]>),
    /// A majority of these, each on a server of its own.
    Quorum(Arc<[Handle]>),
    /// Nothing that can be; why.
    Refused(Box<Error>),
}

impl<G: From<Guard> + 'static> Acquire<G> {
    pub(crate) fn new(what: LockSet) -> Self {
        Self {
            what,
            permits: 1,
            wait: None,
            lease: None,
            bounds: None,
            guard: PhantomData,
        }
    }

    /// How many permits of a semaphore.
    pub(crate) fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    fn bounds(&mut self) -> &mut Bounds {
        self.bounds.get_or_insert_default()
    }

    /// How long to wait at most. Zero means one full try, and no waiting.
    ///
    /// The time counts from the first poll and covers everything: connecting, queueing and the last attempt.
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
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How many others may wait for the key already, in this client, where this acquisition has to wait as well: with as
    /// many it is refused at once. 0: it never waits for another.
    ///
    /// Bounds a crowd before a key that is held for long. Without it as the client's
    /// [`max_waiters`](crate::Builder::max_waiters) says, and without that any number wait. Of several keys those count
    /// that wait for the one that is in the way, of several servers those of the first. Waiting for a sibling branch of
    /// the same scope does not count.
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
        self.bounds().max_waiters = Some(most);
        self
    }

    /// Acquires, runs `body` inside the critical section, and releases.
    ///
    /// The usual way to use a lock: `body` is dropped the moment the hold is lost, and the release is confirmed before
    /// the result is given. `body` is not polled before the lock is held; it may borrow, and need not be `Send`.
    ///
    /// # Errors
    /// Those of acquiring, and [`Error::Lost`], where [`body_completed`](Error::body_completed) tells whether `body` ran
    /// to its end. A release that nobody answered is logged, and the result given: the lease frees the lock.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` first and then releases in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let sum = client.lock("sum").acquire().run(async { 1 + 2 }).await?;
    /// assert_eq!(sum, 3);
    /// # Ok(()) }
    /// ```
    pub fn run<F: Future>(self, body: F) -> Run<F> {
        Run::new(self.acquiring(), body)
    }

    /// The same as [`run`](Acquire::run) for a body that returns a `Result`: one `?` instead of two.
    ///
    /// The body's own error wins over a loss that is found after it, which is then only logged.
    ///
    /// # Errors
    /// The body's, and those of [`run`](Acquire::run) turned into its type.
    ///
    /// # Cancel safety
    /// As [`run`](Acquire::run).
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

    /// Refuses bad input, before anything is sent. Of several keys each has an ask of its own.
    fn checked(&self, handle: &Handle) -> Result<(Arc<Registry>, Request), Error> {
        let key = handle.key()?.clone();
        check_permits(self.permits)?;
        if let Some(lease) = self.lease {
            check_lease(lease)?;
        }
        let config = &handle.session().config;
        let wait = self.wait.or(config.default_wait);
        if let Some(wait) = wait {
            check_wait(wait)?;
        }
        let none = Bounds::default();
        let bounds = self.bounds.as_deref().unwrap_or(&none);
        bounds.check(handle, key.text(), self.lease)?;
        let (waiters, total_waiters) = config.max_waiters;
        let requested = RequestedKey {
            resource: Resource {
                kind: handle.kind,
                key,
            },
            permits: self.permits,
            pause: handle.pause(),
            inside: None,
        };
        let request = Request {
            requested: smallvec![requested],
            since: handle.session().now(),
            wait,
            lease: self.lease,
            max_hold: bounds.max_hold.or(config.max_hold),
            hands_on: bounds.hold_at_least.is_zero(),
            max_waiters: (bounds.max_waiters.unwrap_or(waiters), total_waiters),
        };
        Ok((Arc::clone(&handle.registry), request))
    }

    async fn acquire(self) -> Result<Guard, Error> {
        let guard = match &self.what {
            LockSet::One(handle) => self.acquire_one(handle).await?,
            LockSet::All(handles) => Box::pin(self.acquire_all(handles)).await?,
            LockSet::Quorum(handles) => Box::pin(self.acquire_quorum(handles)).await?,
            LockSet::Refused(error) => return Err((**error).clone()),
        };
        // Not before all is granted: what was taken in vain must not stay taken.
        if let Some(bounds) = &self.bounds {
            guard.keep_for(bounds.hold_at_least);
        }
        Ok(guard)
    }

    async fn acquire_one(&self, handle: &Handle) -> Result<Guard, Error> {
        let (registry, mut request) = self.checked(handle)?;
        let gate = match find_enclosing(&registry, &mut request, 0).await? {
            Enclosing::Reenter(part) => return Ok(Guard::new(part)),
            Enclosing::Beside(permit) => Some(permit),
            Enclosing::None => None,
        };
        check_open(&registry, &request.requested[0].resource.key)?;
        let mut hold_refs = wait::acquire(&registry, &request).await?;
        Ok(Guard::new(HoldShare::new(
            registry,
            hold_refs.remove(0),
            gate,
        )))
    }

    async fn acquire_all(&self, handles: &[Handle]) -> Result<Guard, Error> {
        check_any(handles)?;
        let requests = handles.iter().map(|handle| self.checked(handle));
        let parts = multi::acquire(requests.collect::<Result<_, _>>()?).await?;
        let needs = parts.len();
        Ok(Guard::of(parts, needs))
    }

    async fn acquire_quorum(&self, handles: &[Handle]) -> Result<Guard, Error> {
        check_any(handles)?;
        let requests = handles.iter().map(|handle| self.checked(handle));
        let mut requests = requests.collect::<Result<Vec<_>, _>>()?;
        let needs = quorum::of(requests.len());
        let again = multi::enter_again(&mut requests).await?;
        if again.len() >= needs {
            return Ok(Guard::of(again, needs));
        }
        for (registry, request) in &requests {
            check_open(registry, &request.requested[0].resource.key)?;
        }
        Ok(Guard::of(quorum::acquire(requests, needs).await?, needs))
    }

    /// One try: `None` where another holds the lock.
    pub(crate) async fn try_now(self) -> Result<Option<G>, Error> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard.into())),
            Err(busy) if busy.is_busy() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn acquiring(self) -> Acquiring<Guard> {
        Acquiring::new(self.acquire())
    }
}

impl Bounds {
    fn check(&self, handle: &Handle, key: &str, lease: Option<Duration>) -> Result<(), Error> {
        if let Some(most) = self.max_hold {
            check_hold("max_hold", most)?;
        }
        if self.hold_at_least.is_zero() {
            return Ok(());
        }
        check_hold("hold_at_least", self.hold_at_least)?;
        let most = self.max_hold.or(handle.session().config.max_hold);
        if [lease, most]
            .into_iter()
            .flatten()
            .any(|end| end < self.hold_at_least)
        {
            // They end the hold, and the server's lease with it, whatever else was asked for.
            return Err(Error::invalid_config("hold_at_least", self.hold_at_least));
        }
        if !handle.kind.supports_hold_at_least() {
            return Err(Error::Unsupported {
                key: key.to_owned(),
                reason: "`hold_at_least` is for reentrant, non-reentrant, spin and fenced locks",
            });
        }
        Ok(())
    }
}

/// Refuses a lock of nothing, which anybody could have at any time.
fn check_any(handles: &[Handle]) -> Result<(), Error> {
    if handles.is_empty() {
        return Err(Error::NoKeys);
    }
    Ok(())
}

impl<G: Leased> Acquire<G> {
    /// A fixed lease from 1 ms to ten years: no watchdog, the hold ends when it is over.
    ///
    /// Within a scope that holds the key already it bounds this guard alone, and never shortens the hold.
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
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long the hold may last at most: then the watchdog renews it no longer, and it is lost.
    ///
    /// A bound for code that may hang: its scope is dropped with [`Error::Lost`], `reason`
    /// [`HeldTooLong`](crate::Loss::HeldTooLong), and the key is free for others. Unlike with a [lease](Acquire::lease), the
    /// key of a process that died is free after the watchdog's lease, however long this is. With a lease the shorter of the two
    /// counts. 1 ms to ten years; without limit unless set here or for the [client](crate::Builder::max_hold).
    ///
    /// A re-entry has a bound of its own and does not lengthen that of the hold around it.
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidConfig`] for a time out of its bounds.
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
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.bounds().max_hold = Some(most);
        self
    }

    /// For how long the key stays taken at least, counted from the grant: a release before that leaves it to nobody for
    /// the rest of the time.
    ///
    /// For jobs that must not run again too soon, however short they are and on however many machines their clocks fire:
    /// each tries once, and who comes within this time finds it done. Nobody renews that rest, and who waits is granted
    /// the lock when it is over. Of reentrant, non-reentrant, spin and fenced locks, and multi-locks and Redlocks of those.
    /// 1 ms to ten years, and no longer than a [lease](Acquire::lease) or [`max_hold`](Acquire::max_hold) where there is
    /// one. ShedLock's `lockAtLeastFor`.
    ///
    /// A process that dies releases nothing: its key is free when the watchdog's lease has ended. Where it is to stay
    /// taken after that too, give it a lease as long.
    ///
    /// # Errors
    /// When awaited, [`Error::InvalidConfig`] for a time out of its bounds, and [`Error::Unsupported`] for other locks.
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
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.bounds().hold_at_least = time;
        self
    }
}

impl<G: From<Guard> + 'static> IntoFuture for Acquire<G> {
    type Output = Result<G, Error>;
    type IntoFuture = Acquiring<G>;

    fn into_future(self) -> Acquiring<G> {
        Acquiring::new(async move { Ok(self.acquire().await?.into()) })
    }
}

impl<G> Clone for Acquire<G> {
    fn clone(&self) -> Self {
        Self {
            what: self.what.clone(),
            bounds: self.bounds.clone(),
            ..*self
        }
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("what", &self.what)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

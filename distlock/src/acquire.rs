//! How a lock is acquired: the builder, and the path from it to a guard.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use crate::config::{SPIN_PAUSE, check_lease, check_permits, check_wait};
use crate::error::Error;
use crate::guard::{Guard, Leased};
use crate::handle::Handle;
use crate::reentry::{Around, check_open, look_around};
use crate::run::{Acquiring, Run, TryRun};
use crate::together;
use crate::wait::{self, Ask, Part, Registry, Wanted, quorum};

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
/// * [`Error::Unavailable`]: nobody answered, for the length of the wait or for
///   [`unavailable_after`](crate::Builder::unavailable_after).
/// * [`Error::Lost`]: a re-entry found the hold around it gone.
/// * [`Error::InvalidKey`], [`Error::InvalidLease`], [`Error::InvalidWait`], [`Error::InvalidPermits`]: refused before
///   anything was sent.
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
    what: What,
    permits: u32,
    /// First and longest pause between two attempts, where they are not the usual ones. Shared, for an acquisition is
    /// small and most have none.
    pause: Option<Arc<(Duration, Duration)>>,
    wait: Option<Duration>,
    lease: Option<Duration>,
    guard: PhantomData<fn() -> G>,
}

/// What is to be acquired.
#[derive(Clone, Debug)]
pub(crate) enum What {
    One(Handle),
    /// All of these, or none.
    All(Arc<[Handle]>),
    /// A majority of these, each on a server of its own.
    Quorum(Arc<[Handle]>),
    /// Nothing that can be; why.
    Refused(Box<Error>),
}

impl<G: From<Guard> + 'static> Acquire<G> {
    pub(crate) fn new(what: What) -> Self {
        Self {
            what,
            permits: 1,
            pause: None,
            wait: None,
            lease: None,
            guard: PhantomData,
        }
    }

    /// How many permits of a semaphore.
    pub(crate) fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// First and longest pause between two attempts, where nobody listens for messages.
    pub(crate) fn pause(mut self, pause: (Duration, Duration)) -> Self {
        self.pause = Some(Arc::new(pause));
        self
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
    fn checked(&self, handle: &Handle) -> Result<(Arc<Registry>, Ask), Error> {
        let key = handle.key()?.clone();
        check_permits(self.permits)?;
        if let Some(lease) = self.lease {
            check_lease(lease)?;
        }
        let keeper = handle.keeper();
        let wait = self.wait.or(keeper.config.default_wait);
        if let Some(wait) = wait {
            check_wait(wait)?;
        }
        let wanted = Wanted {
            kind: handle.kind,
            key,
            permits: self.permits,
            inside: None,
        };
        let ask = Ask {
            wanted: smallvec![wanted],
            since: keeper.now(),
            wait,
            lease: self.lease,
            pause: self.pause.as_deref().copied().unwrap_or(SPIN_PAUSE),
        };
        Ok((Arc::clone(&handle.registry), ask))
    }

    async fn acquire(self) -> Result<Guard, Error> {
        match &self.what {
            What::One(handle) => self.acquire_one(handle).await,
            What::All(handles) => Box::pin(self.acquire_all(handles)).await,
            What::Quorum(handles) => Box::pin(self.acquire_quorum(handles)).await,
            What::Refused(error) => Err((**error).clone()),
        }
    }

    async fn acquire_one(&self, handle: &Handle) -> Result<Guard, Error> {
        let (registry, mut ask) = self.checked(handle)?;
        let gate = match look_around(&registry, &mut ask, 0).await? {
            Around::Again(part) => return Ok(Guard::new(part)),
            Around::Inside(place) => Some(place),
            Around::Nothing => None,
        };
        check_open(&registry, &ask.wanted[0].key)?;
        let mut tenures = wait::acquire(&registry, &ask).await?;
        Ok(Guard::new(Part::new(registry, tenures.remove(0), gate)))
    }

    async fn acquire_all(&self, handles: &[Handle]) -> Result<Guard, Error> {
        check_any(handles)?;
        let asks = handles.iter().map(|handle| self.checked(handle));
        let parts = together::acquire(asks.collect::<Result<_, _>>()?).await?;
        let needs = parts.len();
        Ok(Guard::of(parts, needs))
    }

    async fn acquire_quorum(&self, handles: &[Handle]) -> Result<Guard, Error> {
        check_any(handles)?;
        let asks = handles.iter().map(|handle| self.checked(handle));
        let mut asks = asks.collect::<Result<Vec<_>, _>>()?;
        let needs = quorum::of(asks.len());
        let again = together::enter_again(&mut asks).await?;
        if again.len() >= needs {
            return Ok(Guard::of(again, needs));
        }
        for (registry, ask) in &asks {
            check_open(registry, &ask.wanted[0].key)?;
        }
        Ok(Guard::of(quorum::acquire(asks).await?, needs))
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
            pause: self.pause.clone(),
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

//! How a lock is acquired: the builder, and the path from it to a guard.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{check_lease, check_wait};
use crate::error::{Blocker, Error};
use crate::guard::Guard;
use crate::hold::Nested;
use crate::hold::lease::Term;
use crate::key::Key;
use crate::kind::Kind;
use crate::run::{Acquiring, Run, TryRun};
use crate::scope::{Frame, Frames, frames};
use crate::wait::{self, Ask, Registry, Tried};

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
/// * [`Error::InvalidKey`], [`Error::InvalidLease`], [`Error::InvalidWait`]: refused before anything was sent.
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
#[derive(Clone)]
pub struct Acquire {
    registry: Arc<Registry>,
    kind: Kind,
    key: Result<Key, Error>,
    wait: Option<Duration>,
    lease: Option<Duration>,
}

impl Acquire {
    pub(crate) fn new(registry: Arc<Registry>, kind: Kind, key: Result<Key, Error>) -> Self {
        Self {
            registry,
            kind,
            key,
            wait: None,
            lease: None,
        }
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
        Run::new(self.into_future(), body)
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
        TryRun::new(self.into_future(), body)
    }

    /// Refuses bad input, before anything is sent.
    fn checked(self) -> Result<(Arc<Registry>, Ask), Error> {
        let key = self.key?;
        if let Some(lease) = self.lease {
            check_lease(lease)?;
        }
        let keeper = &self.registry.keeper;
        let wait = self.wait.or(keeper.config.default_wait);
        if let Some(wait) = wait {
            check_wait(wait)?;
        }
        let ask = Ask {
            kind: self.kind,
            key,
            since: keeper.now(),
            wait,
            lease: self.lease,
        };
        Ok((self.registry, ask))
    }

    async fn acquire(self) -> Result<Guard, Error> {
        let (registry, ask) = self.checked()?;
        if let Some(again) = enter_again(&registry, &ask).await? {
            return Ok(again);
        }
        check_open(&registry, &ask)?;
        let tenure = wait::acquire(&registry, &ask).await?;
        Ok(Guard::new(registry, tenure, None))
    }

    /// One try: `None` where another holds the lock.
    pub(crate) async fn try_now(self) -> Result<Option<Guard>, Error> {
        let (registry, ask) = self.wait(Duration::ZERO).checked()?;
        match enter_again(&registry, &ask).await {
            Ok(Some(again)) => return Ok(Some(again)),
            Ok(None) => {}
            Err(busy) if busy.is_busy() => return Ok(None),
            Err(error) => return Err(error),
        }
        check_open(&registry, &ask)?;
        match wait::try_once(&registry, &ask).await? {
            Tried::Granted(tenure) => Ok(Some(Guard::new(registry, tenure, None))),
            Tried::Held { .. } => Ok(None),
        }
    }
}

/// Refuses a closed client what it does not hold already: a scope that runs on may enter its own hold again.
fn check_open(registry: &Registry, ask: &Ask) -> Result<(), Error> {
    if registry.keeper.is_closed() {
        return Err(Error::Closed {
            key: ask.key.text().to_owned(),
        });
    }
    Ok(())
}

/// Enters the hold of an enclosing scope again, if one has the key. The frames are those of the first poll.
async fn enter_again(registry: &Arc<Registry>, ask: &Ask) -> Result<Option<Guard>, Error> {
    match frames() {
        None => Ok(None),
        // Boxed, for most acquisitions have nothing around them.
        around => Box::pin(enter_one_of(around, registry, ask)).await,
    }
}

async fn enter_one_of(
    around: Frames,
    registry: &Arc<Registry>,
    ask: &Ask,
) -> Result<Option<Guard>, Error> {
    let client = registry.keeper.id;
    while let Some(frame) = Frame::find(&around, client, ask.kind, &ask.key) {
        if let Some(guard) = pass_gate(registry, ask, &frame).await? {
            return Ok(Some(guard));
        }
        // It closed meanwhile: a frame further out may hold the key, or an ordinary acquisition is right.
    }
    Ok(None)
}

/// Waits for its turn among the branches of one scope, then takes part in the hold.
async fn pass_gate(
    registry: &Arc<Registry>,
    ask: &Ask,
    frame: &Frame,
) -> Result<Option<Guard>, Error> {
    let keeper = &registry.keeper;
    let tenure = frame.tenure();
    let gate = Arc::clone(tenure.gate()).acquire_owned();
    let deadline = ask.deadline();
    let place = tokio::select! {
        biased;
        place = gate => place.ok(),
        () = frame.closing() => None,
        () = keeper.clock.sleep_until(deadline) => return Err(ask.timed_out(keeper.now(), Blocker::Sibling)),
    };
    let Some(place) = place else { return Ok(None) };
    let now = keeper.now();
    let term = ask
        .lease
        .map_or(Term::Kept, |lease| Term::Until(now.after(lease)));
    match tenure.nest(frame.closed(), term, now) {
        Ok(nested) => {
            keeper.look_at(nested.hold());
            let gate = Some(Arc::new(place));
            Ok(Some(Guard::new(Arc::clone(registry), nested, gate)))
        }
        Err(Nested::Closed) => Ok(None),
        Err(Nested::Lost(loss)) => Err(Error::lost(ask.key.text(), loss)),
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Acquiring {
        Acquiring::new(self.acquire())
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.key)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

//! How a lock is acquired: the builder, and the path from it to a guard.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::config::{SPIN_PAUSE, check_lease, check_wait};
use crate::error::{Blocker, Error};
use crate::guard::Guard;
use crate::handle::Handle;
use crate::hold::Nested;
use crate::hold::lease::Term;
use crate::kind::Nesting;
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
pub struct Acquire<G = Guard> {
    handle: Handle,
    permits: u32,
    pause: (Duration, Duration),
    wait: Option<Duration>,
    lease: Option<Duration>,
    guard: PhantomData<fn() -> G>,
}

impl<G: From<Guard> + 'static> Acquire<G> {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            permits: 1,
            pause: SPIN_PAUSE,
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
        self.pause = pause;
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

    /// Refuses bad input, before anything is sent.
    fn checked(self) -> Result<(Arc<Registry>, Ask), Error> {
        let registry = self.handle.registry;
        let key = self.handle.key?;
        if let Some(lease) = self.lease {
            check_lease(lease)?;
        }
        let keeper = &registry.keeper;
        let wait = self.wait.or(keeper.config.default_wait);
        if let Some(wait) = wait {
            check_wait(wait)?;
        }
        let ask = Ask {
            kind: self.handle.kind,
            key,
            permits: self.permits,
            since: keeper.now(),
            wait,
            lease: self.lease,
            pause: self.pause,
            inside: None,
        };
        Ok((registry, ask))
    }

    async fn acquire(self) -> Result<Guard, Error> {
        let (registry, mut ask) = self.checked()?;
        let gate = match look_around(&registry, &mut ask).await? {
            Around::Again(guard) => return Ok(guard),
            Around::Inside(place) => Some(place),
            Around::Nothing => None,
        };
        check_open(&registry, &ask)?;
        let tenure = wait::acquire(&registry, &ask).await?;
        Ok(Guard::new(registry, tenure, gate))
    }

    /// One try: `None` where another holds the lock.
    pub(crate) async fn try_now(self) -> Result<Option<G>, Error> {
        let (registry, mut ask) = self.wait(Duration::ZERO).checked()?;
        let gate = match look_around(&registry, &mut ask).await {
            Ok(Around::Again(guard)) => return Ok(Some(guard.into())),
            Ok(Around::Inside(place)) => Some(place),
            Ok(Around::Nothing) => None,
            Err(busy) if busy.is_busy() => return Ok(None),
            Err(error) => return Err(error),
        };
        check_open(&registry, &ask)?;
        match wait::try_once(&registry, &ask).await? {
            Tried::Granted(tenure) => Ok(Some(Guard::new(registry, tenure, gate).into())),
            Tried::Held { .. } => Ok(None),
        }
    }

    fn acquiring(self) -> Acquiring<Guard> {
        Acquiring::new(self.acquire())
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

/// What the scopes around an acquisition mean for it.
enum Around {
    /// Nothing: it is an ordinary one.
    Nothing,
    /// It entered the hold of one of them again.
    Again(Guard),
    /// One of them lets it in beside its own hold, through this place at its gate.
    Inside(Arc<OwnedSemaphorePermit>),
}

/// Enters the hold of an enclosing scope, if one has the key. The frames are those of the first poll.
async fn look_around(registry: &Arc<Registry>, ask: &mut Ask) -> Result<Around, Error> {
    match frames() {
        None => Ok(Around::Nothing),
        // Boxed, for most acquisitions have nothing around them.
        around => Box::pin(look_through(around, registry, ask)).await,
    }
}

async fn look_through(
    around: Frames,
    registry: &Arc<Registry>,
    ask: &mut Ask,
) -> Result<Around, Error> {
    let client = registry.keeper.id;
    while let Some((frame, nesting)) = Frame::find(&around, client, ask.kind, &ask.key) {
        if let Nesting::Never(reason) = nesting {
            return Err(Error::Nested {
                key: ask.key.text().to_owned(),
                reason,
            });
        }
        // A frame that closed meanwhile: one further out may hold the key, or an ordinary acquisition is right.
        let Some(place) = pass_gate(registry, ask, &frame).await? else {
            continue;
        };
        let entered = match nesting {
            Nesting::Inside => enter_beside(registry, ask, &frame, place),
            _ => enter_again(registry, ask, &frame, place),
        };
        match entered {
            Ok(around) => return Ok(around),
            Err(Nested::Closed) => {}
            Err(Nested::Lost(loss)) => return Err(Error::lost(ask.key.text(), loss)),
        }
    }
    Ok(Around::Nothing)
}

/// Waits for its turn among the branches of one scope. `None` where the scope ends before.
async fn pass_gate(
    registry: &Arc<Registry>,
    ask: &Ask,
    frame: &Frame,
) -> Result<Option<OwnedSemaphorePermit>, Error> {
    let keeper = &registry.keeper;
    let (gate, places) = frame.tenure().gate(ask.kind.is_shared());
    tokio::select! {
        biased;
        place = gate.acquire_many_owned(places) => Ok(place.ok()),
        () = frame.closing() => Ok(None),
        () = keeper.clock.sleep_until(ask.deadline()) => Err(ask.timed_out(keeper.now(), Blocker::Sibling)),
    }
}

fn enter_again(
    registry: &Arc<Registry>,
    ask: &Ask,
    frame: &Frame,
    place: OwnedSemaphorePermit,
) -> Result<Around, Nested> {
    let keeper = &registry.keeper;
    let now = keeper.now();
    let term = ask
        .lease
        .map_or(Term::Kept, |lease| Term::Until(now.after(lease)));
    let nested = frame.tenure().nest(frame.closed(), term, now)?;
    keeper.look_at(nested.hold());
    let gate = Some(Arc::new(place));
    Ok(Around::Again(Guard::new(
        Arc::clone(registry),
        nested,
        gate,
    )))
}

fn enter_beside(
    registry: &Arc<Registry>,
    ask: &mut Ask,
    frame: &Frame,
    place: OwnedSemaphorePermit,
) -> Result<Around, Nested> {
    let tenure = frame.tenure();
    tenure.let_in(frame.closed(), registry.keeper.now())?;
    ask.inside = Some(tenure.hold().owner);
    Ok(Around::Inside(Arc::new(place)))
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
            handle: self.handle.clone(),
            ..*self
        }
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.handle.key)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

//! The guard: the value that ends a hold.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::OwnedSemaphorePermit;

use crate::backend::{Fault, Released, cause};
use crate::clock::Tick;
use crate::config::RETRY_PAUSE;
use crate::error::{Error, Loss};
use crate::hold::{Debt, Nested, Settled, Tenure};
use crate::kind::Nesting;
use crate::owner::Owner;
use crate::scope::{Scope, Section};
use crate::wait::{End, Registry};

/// A hold on a lock, for as long as it lives.
///
/// While a guard without a lease of its own lives, the watchdog renews the hold at every third of its lease. Ending:
///
/// * [`release`](Guard::release) ends it and confirms that: the usual way, also inside [`run`](crate::Acquire::run);
/// * dropping it releases in the background, without blocking and without telling how it went;
/// * with a [lease](crate::Acquire::lease) it ends by itself when that is over.
///
/// Bind it to a name: `let _guard = ..`. With `let _ = ..` it is dropped, and the lock released, at once.
///
/// A guard is a right, not a wall: a process that was stopped past its lease holds a guard that says
/// [`is_held`](Guard::is_held)` == false`, and a write that is already under way is stopped by nobody. Run what must
/// end with the hold inside [`scope`](Guard::scope).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// assert!(!client.lock("order:42").is_locked().await?);
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it: `let _guard = ..`"]
pub struct Guard {
    registry: Arc<Registry>,
    tenure: Arc<Tenure>,
    ended: bool,
    /// The place at the gate of the guard around this one, shared by those that entered again by hand.
    gate: Option<Arc<OwnedSemaphorePermit>>,
}

impl Guard {
    pub(crate) fn new(
        registry: Arc<Registry>,
        tenure: Arc<Tenure>,
        gate: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Self {
        Self {
            registry,
            tenure,
            ended: false,
            gate,
        }
    }

    /// The key that is held, without the client's prefix.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().key_prefix("shop:").in_memory(&distlock::MemoryServer::new())?;
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(guard.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn key(&self) -> &str {
        self.tenure.hold().key.text()
    }

    /// The identity under which the hold stands in the server.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// let holders = client.lock("order:42").holders().await?;
    /// assert_eq!(holders[0].owner, guard.owner().to_string());
    /// # Ok(()) }
    /// ```
    pub fn owner(&self) -> Owner {
        self.tenure.hold().owner
    }

    /// The fencing token of the grant, where the lock is a fenced one.
    pub(crate) fn token(&self) -> Option<u64> {
        self.tenure.hold().token
    }

    /// Is the key held, as far as this process can tell?
    ///
    /// A comparison of clocks, without I/O. `true` means that no other owner can have the key at this moment, unless
    /// somebody force-released it or the server lost its data; that is told by [`lost`](Guard::lost) after the next
    /// renewal.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.tenure.is_held(self.now())
    }

    /// Completes when the hold is known to be lost, or must be assumed so.
    ///
    /// At the latest when the lease ends by this process's clock without a confirmed renewal. The future is independent
    /// of the guard, and also completes when the guard is released or dropped.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("report").acquire().lease(Duration::from_secs(10)).await?;
    /// guard.lost().await; // ten seconds later
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.tenure).over(self.registry.keeper.clock.clone())
    }

    /// Enters the lock once more: Redisson's second `lock()` in one thread.
    ///
    /// The count is 2 then, and either guard may go first; the last one frees the lock. Without a round trip: it is
    /// granted in this process, and the server is told of the count in the background. The new guard has the same lease
    /// as this one.
    ///
    /// # Errors
    /// [`Error::Lost`] where the hold is gone, [`Error::Nested`] where the lock is not reentrant.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let first = lock.acquire().await?;
    /// let second = first.reenter()?;
    /// first.release().await?;
    /// assert!(lock.is_locked().await?);
    /// second.release().await?;
    /// assert!(!lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn reenter(&self) -> Result<Self, Error> {
        let kind = self.tenure.hold().kind;
        if let Nesting::Never(reason) = kind.within(kind) {
            let key = self.key().to_owned();
            return Err(Error::Nested { key, reason });
        }
        let open = AtomicBool::new(false);
        let term = self.tenure.term();
        match self.tenure.nest(&open, term, self.now()) {
            Ok(tenure) => {
                self.registry.keeper.look_at(tenure.hold());
                let gate = self.gate.clone();
                Ok(Self::new(Arc::clone(&self.registry), tenure, gate))
            }
            Err(Nested::Lost(loss)) => Err(Error::lost(self.key(), loss)),
            Err(Nested::Closed) => Err(Error::lost(self.key(), Loss::Expired)),
        }
    }

    /// Runs a future inside the critical section.
    ///
    /// * Acquiring this key again within it re-enters this hold; siblings do so one after the other.
    /// * The clock is compared before every poll of `body`; the moment the hold is lost, `body` is dropped and the
    ///   scope answers [`Error::Lost`].
    ///
    /// The guard is borrowed and goes on after the scope. Nothing is inherited by spawned tasks, unless by
    /// [`inherit`](crate::inherit).
    ///
    /// # Errors
    /// [`Error::Lost`], with `body` cut short.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`; the guard still holds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// guard.scope(async {
    ///     let again = lock.acquire().await?; // the same hold, entered again
    ///     again.release().await
    /// }).await??;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn scope<F: Future>(&self, body: F) -> Scope<'_, F> {
        Scope::new(self.section(), body)
    }

    /// The critical section as a value of its own, for authors of middleware who cannot borrow the guard.
    ///
    /// It does not keep the hold; whoever has the guard ends that.
    /// # Examples
    /// See [`Section`].
    pub fn section(&self) -> Section {
        Section::new(&self.registry.keeper, Arc::clone(&self.tenure))
    }

    /// Ends this guard's part, and confirms it.
    ///
    /// The last guard of a hold frees the lock and wakes who waits; a guard that was entered again, or nested, only
    /// takes the count down. Where another task of this client waits, the hold passes on to it without a round trip.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold was gone already, so others may have been inside the critical section.
    /// * [`Error::Unavailable`]: nobody answered; the release goes on in the background, and at the latest the lease
    ///   frees the lock.
    /// * [`Error::Denied`], [`Error::WrongType`]: the server refused.
    ///
    /// # Cancel safety
    /// The guard's part ends with the first poll. Dropping the future leaves the release to the background.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// lock.force_release().await?; // somebody else, meanwhile
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        let late = self.tenure.term().has_ended(self.now());
        let released = match self.end() {
            End::Done => Ok(()),
            End::Lost(loss) => Err(Error::lost(self.key(), loss)),
            End::Release(debt) => self.confirm(debt).await,
        };
        match released {
            Ok(()) if late => Err(Error::lost(self.key(), Loss::Expired)),
            other => other,
        }
    }

    fn end(&mut self) -> End {
        self.ended = true;
        self.registry.end(&self.tenure)
    }

    /// Sends the release until it is answered, for as long as a caller can be made to wait for it.
    async fn confirm(&self, debt: Debt) -> Result<(), Error> {
        let keeper = &self.registry.keeper;
        let target = debt.target().clone();
        let owed = keeper.owe(debt);
        let (since, deadline) = (self.now(), self.tenure.hold().deadline());
        let give_up = since.after(keeper.config.unavailable_after).min(deadline);
        let (mut first_try, mut doubtful, mut last) = (true, false, None);
        let longest = keeper.config.longest_pause();
        let mut pause = RETRY_PAUSE.0.min(longest);
        loop {
            // The first try is bounded by the backend; of later ones the caller has less time left.
            let latest = if first_try { Tick::NEVER } else { give_up };
            let answer = tokio::select! {
                biased;
                answer = keeper.backend.release(&target) => answer,
                // What was answered before says more than that this one was not.
                () = keeper.clock.sleep_until(latest) => {
                    Err(last.unwrap_or_else(|| Fault::Unknown(cause("no answer"))))
                }
            };
            let fault = match answer {
                Ok(released) => {
                    owed.settle(Settled::Answered(released), keeper.backend.epoch());
                    return self.judge(released, doubtful, deadline);
                }
                Err(fault) => fault,
            };
            let now = self.now();
            if fault.is_final() || now >= give_up {
                // Dropping `owed` leaves the rest to the releaser.
                return Err(fault.into_error(&target.key, now.since(since)));
            }
            first_try = false;
            doubtful |= matches!(fault, Fault::Unknown(_));
            last = Some(fault);
            keeper
                .clock
                .sleep_until(now.after(pause).min(give_up))
                .await;
            pause = (pause * 2).min(longest);
        }
    }

    /// 'Not ours' is a loss, unless an earlier try of this very release may have done its work unanswered.
    fn judge(&self, released: Released, doubtful: bool, deadline: Tick) -> Result<(), Error> {
        match released {
            Released::Freed { .. } => Ok(()),
            Released::NotOurs if doubtful && self.now() < deadline => Ok(()),
            Released::NotOurs => Err(Error::lost(self.key(), Loss::Gone)),
        }
    }

    /// Now, and when the key is no longer this guard's unless it is renewed before.
    #[cfg(feature = "test-util")]
    pub(crate) fn held_until(&self) -> (Tick, Tick) {
        let end = self.tenure.term().end();
        (self.now(), self.tenure.hold().deadline().min(end))
    }

    fn now(&self) -> Tick {
        self.registry.keeper.now()
    }
}

impl Drop for Guard {
    /// Takes the count down at once and leaves what has to be sent to the background.
    fn drop(&mut self) {
        if !self.ended
            && let End::Release(debt) = self.end()
        {
            self.registry.keeper.release_later(debt);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

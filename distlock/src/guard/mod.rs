//! The guard: the value that ends a hold.

pub(crate) mod run;
pub(crate) mod stream;

use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};

#[cfg(feature = "test-util")]
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{HoldView, Release, confirm_all};
use crate::local::{HoldShare, Remaining};
use crate::owner::Owner;
use crate::scope::{Scope, Section};

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
    parts: SmallVec<[HoldShare; 1]>,
    /// How many of the parts have to be held.
    needs: usize,
}

/// What stands for a hold that has a lease, so that it can be acquired with [one of its own](crate::Acquire::lease):
/// all guards, and not the permits of a plain semaphore. Not meant to be implemented elsewhere.
pub trait Leased: From<Guard> + 'static {}

impl Leased for Guard {}

impl Guard {
    pub(crate) fn new(part: HoldShare) -> Self {
        Self {
            parts: smallvec![part],
            needs: 1,
        }
    }

    /// A guard of several parts, of which `needs` have to be held.
    pub(crate) fn of(parts: SmallVec<[HoldShare; 1]>, needs: usize) -> Self {
        Self { parts, needs }
    }

    /// The one part of a guard that needs but one, the first of all others.
    fn first(&self) -> &HoldShare {
        &self.parts[0]
    }

    /// Its keys stay taken for so long from now on, whenever it ends.
    pub(crate) fn keep_for(&self, at_least: Duration) {
        for part in &self.parts {
            part.hold_ref().hold().keep_for(part.now(), at_least);
        }
    }

    fn view(&self) -> HoldView {
        match self.parts.as_slice() {
            [one] => HoldView::one(one.member()),
            all => HoldView::of(all.iter().map(HoldShare::member), self.needs),
        }
    }

    /// The key that is held, without the client's prefix; of a multi-lock the first.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().key_prefix("shop:").in_memory(&distlock::MemoryServer::new())?;
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(guard.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn key(&self) -> &str {
        self.first().key()
    }

    /// The keys that are held, without the client's prefix: one, or those of a multi-lock, each once and in order.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.multi_lock(["stock:7", "order:42"]).acquire().await?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["order:42", "stock:7"]);
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let mut keys: SmallVec<[&str; 1]> = self.parts.iter().map(HoldShare::key).collect();
        // A Redlock has one key on several servers.
        keys.dedup();
        keys.into_iter()
    }

    /// The identity under which the hold stands in the server; of several the first.
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
        self.first().hold_ref().hold().owner
    }

    /// The fencing token of the grant, where the lock is a fenced one: higher than that of each grant of its key before.
    ///
    /// A [`FencedLock`](crate::FencedLock) gives a guard that has one for certain.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, LockSource, Mode};
    ///
    /// let locks = LockSource::from(Client::in_memory());
    /// assert!(locks.acquire(Mode::Fenced, ["order:42"]).await?.token().is_some());
    /// assert!(locks.acquire(Mode::Reentrant, ["order:7"]).await?.token().is_none());
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> Option<u64> {
        self.first().hold_ref().hold().token
    }

    /// How many permits of a semaphore it stands for.
    pub(crate) fn permits(&self) -> u32 {
        self.first().hold_ref().hold().permits
    }

    /// Ends this guard's part, and gives no permits back.
    pub(crate) fn forget(mut self) {
        self.parts.drain(..).for_each(HoldShare::forget);
    }

    /// Ends this guard, and leaves in the server what it held: until the lease ends, and renewed by nobody.
    pub(crate) fn leave_to_its_lease(mut self) -> Result<(), Error> {
        self.parts
            .drain(..)
            .try_for_each(HoldShare::leave_to_its_lease)
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
        let held = self.parts.iter().filter(|part| part.is_held());
        held.count() >= self.needs
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
        self.view().over()
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
        let again: Result<SmallVec<_>, _> = match self.needs {
            needs if needs == self.parts.len() => {
                self.parts.iter().map(HoldShare::reenter).collect()
            }
            // Of a quorum, those that are still held.
            _ => Ok(self.parts.iter().flat_map(HoldShare::reenter).collect()),
        };
        let again = again?;
        if again.len() < self.needs {
            return Err(self.view().lost(Loss::Expired));
        }
        Ok(Self::of(again, self.needs))
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
        Section::new(self.view())
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
        let needs = self.needs;
        match self.parts.pop() {
            Some(one) if self.parts.is_empty() => match one.end() {
                Remaining::Nothing(result) => result,
                Remaining::Release(release) => release.confirm().await,
            },
            last => {
                self.parts.extend(last);
                let lost = self.view().loss();
                let left = self.parts.drain(..).map(HoldShare::end).collect();
                let released = Box::pin(release_several(left, needs)).await;
                lost.map_or(released, Err)
            }
        }
    }

    /// Now, and when the key is no longer this guard's unless it is renewed before, or was not; by one clock.
    #[cfg(feature = "test-util")]
    pub(crate) fn held_until(&self) -> (Tick, Tick) {
        (self.first().now(), self.view().deadline())
    }
}

/// Ends several parts at once, those of one client that can travel together in one command. As soon as enough of a
/// quorum are confirmed, the rest goes to the background.
async fn release_several(left: Vec<Remaining>, needs: usize) -> Result<(), Error> {
    let mut results: Vec<Result<(), Error>> = Vec::with_capacity(left.len());
    let (all, mut groups): (_, Vec<SmallVec<[Release; 1]>>) = (left.len(), Vec::new());
    for left in left {
        match left {
            Remaining::Nothing(result) => results.push(result),
            Remaining::Release(release) => {
                match groups.iter_mut().find(|group| group[0].goes_with(&release)) {
                    Some(group) => group.push(release),
                    None => groups.push(smallvec![release]),
                }
            }
        }
    }
    let enough = |results: &[Result<(), Error>]| {
        let confirmed = results.iter().filter(|result| result.is_ok());
        needs < all && confirmed.count() >= needs
    };
    let mut answers: FuturesUnordered<_> = groups.into_iter().map(confirm_all).collect();
    while !enough(&results)
        && let Some(more) = answers.next().await
    {
        results.extend(more);
    }
    if enough(&results) {
        return Ok(());
    }
    results.into_iter().collect()
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

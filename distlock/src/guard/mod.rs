//! The guard: the value that ends a hold.

mod critical_section;
pub(crate) mod detached;
pub(crate) mod expirable_permit;
mod extend;
pub(crate) mod fenced;
pub(crate) mod from_guard;
pub(crate) mod permit;
mod release;
pub(crate) mod run;
mod shares;
pub(crate) mod stream;
mod token;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

pub use self::from_guard::Leased;
use self::shares::{MoreShares, SeveralShares, Shares};
use crate::error::{Error, Loss};
use crate::guard::token::HasToken;
use crate::hold::{Hold, HoldView};
use crate::local::{HoldShare, HoldShares};
use crate::resource::owner::Owner;
use crate::scope::{Scope, Section, TryScope};
use crate::wait::quorum::QuorumHold;

/// A hold on a lock. The lock is held for as long as the guard lives.
///
/// The watchdog renews the hold at every third of its lease, unless the guard has a
/// [lease of its own](crate::Acquire::lease). A hold ends in one of these ways:
///
/// * [`release`](Guard::release) ends it and waits for the confirmation. [`run`](crate::Acquire::run) does this as well.
/// * Dropping the guard releases the lock in the background. It does not block and does not report the result.
/// * A fixed [lease](crate::Acquire::lease) ends by itself.
///
/// Bind the guard to a name: `let _guard = ..`. With `let _ = ..` the guard is dropped, and the lock released, at once.
///
/// A guard cannot stop a write that is already under way. If a process was paused for longer than its lease, its guard
/// still exists, but [`is_held`](Guard::is_held) returns `false`. Run code that must end with the hold inside
/// [`scope`](Guard::scope).
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
#[doc(alias = "MutexGuard")]
#[must_use = "the lock is released as soon as the guard is dropped; bind it: `let _guard = ..`"]
pub struct Guard(Shares);

impl Guard {
    pub(crate) fn new(share: HoldShare) -> Self {
        Self(Shares::One(share))
    }

    /// A guard of several holds, of which `needs` have to be held.
    pub(crate) fn of(mut shares: HoldShares, needs: usize) -> Self {
        if shares.len() == 1 {
            return Self::new(shares.remove(0));
        }
        let members = shares.iter().map(|share| Arc::clone(share.hold_ref()));
        let view = HoldView::of(members, needs);
        Self::more(MoreShares::Several(SeveralShares { view, shares }))
    }

    /// A guard of a Redlock.
    pub(crate) fn of_quorum(hold: QuorumHold) -> Self {
        Self::more(MoreShares::Quorum(hold))
    }

    fn more(shares: MoreShares) -> Self {
        Self(Shares::More(Box::new(shares)))
    }

    /// The shares, apart from those of a Redlock.
    fn shares(&self) -> &[HoldShare] {
        match &self.0 {
            Shares::One(share) => slice::from_ref(share),
            Shares::More(more) => more.shares(),
        }
    }

    /// The first hold. Most guards have only one.
    fn first(&self) -> &Hold {
        match &self.0 {
            Shares::One(share) => share.hold_ref().hold(),
            Shares::More(more) => more.first(),
        }
    }

    /// Keeps the keys taken for this long from now on, even if the guard ends earlier.
    pub(crate) fn keep_for(&self, at_least: Duration) {
        for member in self.view().members().iter() {
            member.hold().keep_for(member.now(), at_least);
        }
    }

    /// Returns the key that is held, without the client's prefix. For a multi-lock it is the first key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().key_prefix("shop:").in_memory(&distlock::MemoryServer::new())?;
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(guard.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn key(&self) -> &str {
        self.first().resource.key.text()
    }

    /// Iterates over the keys that are held, without the client's prefix. A multi-lock has several keys, each once and in
    /// ascending order.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.multi_lock(["stock:7", "order:42"]).acquire().await?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["order:42", "stock:7"]);
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let mut keys: SmallVec<[&str; 1]> = self.shares().iter().map(HoldShare::key).collect();
        // A Redlock has one key on several servers.
        if keys.is_empty() {
            keys.push(self.key());
        }
        keys.dedup();
        keys.into_iter()
    }

    /// Returns the identity of the hold in the server. For several holds, it is that of the first one.
    ///
    /// Other guards can have the same owner, see [`Owner`]. Use [`is_held`](Guard::is_held) to find out whether this guard
    /// still holds the key.
    ///
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
        self.first().owner()
    }

    /// Returns the fencing token of the grant, if the lock is a fenced one. It is higher than the token of every earlier grant
    /// of the key.
    ///
    /// The guard of a [`FencedLock`](crate::FencedLock) always has one: [`FencedGuard::token`](crate::FencedGuard::token). This
    /// method is for code in which the kind of lock is a setting.
    ///
    /// The result is `None` for a guard of several locks, because each fenced one has a token of its own. Inside the guard's
    /// [`scope`](Guard::scope), [`current(key)`](crate::current) has the [token](crate::Current::fencing_token) of each key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, LockSource, Mode};
    ///
    /// let locks = LockSource::from(Client::in_memory());
    /// assert!(locks.acquire(Mode::Fenced, ["order:42"]).await?.fencing_token().is_some());
    /// assert!(locks.acquire(Mode::Reentrant, ["order:7"]).await?.fencing_token().is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// The token of one of several locks:
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MultiLock};
    ///
    /// let client = Client::in_memory();
    /// let both = MultiLock::of([client.lock("account:1").into(), client.fenced_lock("order:42").into()]);
    /// let guard = both.acquire().await?;
    /// let token = async { distlock::current("order:42").and_then(|hold| hold.fencing_token()) };
    /// assert!(guard.scope(token).await?.is_some());
    /// assert!(guard.fencing_token().is_none());
    /// # Ok(()) }
    /// ```
    pub fn fencing_token(&self) -> Option<u64> {
        match &self.0 {
            Shares::One(share) => share.hold_ref().hold().token(),
            Shares::More(more) => more.token(),
        }
    }

    /// Explains why the guard of a lock that is not a fenced one has no such method.
    #[doc(hidden)]
    pub fn token(&self) -> u64
    where
        // With a lifetime, so that the compiler reads the bound where the method is called and not here.
        for<'a> Self: HasToken,
    {
        self.fencing_token().unwrap_or_default()
    }

    pub(crate) fn view(&self) -> HoldView {
        match &self.0 {
            Shares::One(share) => HoldView::one(Arc::clone(share.hold_ref())),
            Shares::More(more) => more.view(),
        }
    }

    /// How many permits of a semaphore the guard has.
    pub(crate) fn permits(&self) -> u32 {
        self.first().permits
    }

    /// Returns whether the key is held, as far as this process can tell.
    ///
    /// The method only compares clocks, without I/O. `true` means that no other owner can have the key at this moment,
    /// unless the key was force-released or the server lost its data. [`lost`](Guard::lost) completes when that is
    /// found: within a round trip if the server [tracks](crate::Builder::track_holds) the key, and otherwise at the next renewal.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        match &self.0 {
            Shares::One(share) => share.hold_ref().is_held(),
            Shares::More(more) => more.is_held(),
        }
    }

    /// Returns how long the guard still holds the key, unless its lease is renewed or [extended](Guard::extend); zero if it
    /// holds the key no more.
    ///
    /// The method only compares clocks, without I/O. The time counts from before the lease was asked for, so the server keeps the
    /// key for at least as long. The [`lease_margin`](crate::Builder::lease_margin) of the client and a
    /// [`max_hold`](crate::Acquire::max_hold) count. While the watchdog renews the lease, the time starts again with each renewal:
    /// it tells how long the guard holds the key if the server does not answer any more. For several keys, it is the shortest
    /// time.
    ///
    /// Do not begin a request with a timeout of zero: for many stores, zero means no timeout. PostgreSQL's `statement_timeout`
    /// counts in milliseconds, so a time below 1 ms is zero there as well.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("report").acquire().lease(Duration::from_secs(10)).await?;
    /// tokio::time::sleep(Duration::from_secs(4)).await;
    /// // A request that may take longer than that is not begun.
    /// assert!(guard.remaining() <= Duration::from_secs(6));
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.view().remaining()
    }

    /// Returns a future that completes when the hold is lost, or must be assumed lost because its lease ended by this
    /// process's clock without a confirmed renewal.
    ///
    /// The future does not borrow the guard. It also completes when the guard is released or dropped. While it is polled outside of a
    /// tokio runtime, where no timer works, it completes when the client's task finds the loss, and not when a `max_hold` or the lease
    /// of a nested guard ends.
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

    /// Enters the lock once more, like a second `lock()` of one thread in Redisson.
    ///
    /// The hold then has two guards, which may end in any order; the last one frees the lock. The re-entry is granted in this
    /// process without a round trip, and the server learns of the new count in the background. The new guard has the same
    /// lease as this one.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold is lost, [`Error::Deadlock`] if the lock is not reentrant, and [`Error::Unsupported`] for a
    /// read lock that this owner has entered 1000 times.
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
        let more = match &self.0 {
            Shares::One(share) => return share.reenter().map(Self::new),
            Shares::More(more) => more,
        };
        let several = match &**more {
            MoreShares::Several(several) => several,
            MoreShares::Quorum(quorum) => {
                let again = quorum.reenter()?.map(Self::of_quorum);
                return again.ok_or_else(|| quorum.view().lost(Loss::Expired));
            }
        };
        let needs = several.view.needs();
        let again = several.shares.iter().map(HoldShare::reenter);
        // A guard of a quorum re-enters the holds that are not lost.
        let again: HoldShares = if needs < several.shares.len() {
            again.flatten().collect()
        } else {
            again.collect::<Result<_, _>>()?
        };
        if again.len() < needs {
            return Err(several.view.lost(Loss::Expired));
        }
        Ok(Self::of(again, needs))
    }

    /// Runs a future inside the critical section.
    ///
    /// * Inside `body`, acquiring this key again re-enters the hold. Branches that run side by side do so one after the
    ///   other.
    /// * The lease is compared with the clock before every poll of `body`. If the hold is lost, `body` is dropped and
    ///   the scope returns [`Error::Lost`].
    ///
    /// The guard is borrowed and outlives the scope. Spawned tasks do not inherit the scope, except through
    /// [`inherit`](crate::inherit).
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold was lost before `body` completed.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`. The guard still holds the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// let entered = guard.scope(async { lock.acquire().await.is_ok() }).await?; // the same hold, entered again
    /// assert!(entered);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn scope<F: Future>(&self, body: F) -> Scope<'_, F> {
        Scope::new(self.section(), body)
    }

    /// Does the same as [`scope`](Guard::scope) for a body that returns a `Result`, with one `?` instead of two.
    ///
    /// # Errors
    /// The errors of the body, and [`Error::Lost`], converted into the body's error type, if the hold was lost before `body`
    /// completed.
    ///
    /// # Cancel safety
    /// The same as [`scope`](Guard::scope).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// guard.try_scope(async {
    ///     let again = lock.acquire().await?; // the same hold, entered again
    ///     again.release().await
    /// }).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn try_scope<T, E, F>(&self, body: F) -> TryScope<'_, F>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        TryScope::new(self.section(), body)
    }

    /// Returns the critical section as an owned value, for authors of middleware who cannot borrow the guard.
    ///
    /// The section does not keep the lock held: the hold ends with the guard.
    ///
    /// # Examples
    /// See [`Section`].
    pub fn section(&self) -> Section {
        Section::new(self.view())
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

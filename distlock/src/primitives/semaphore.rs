//! The semaphore: Redisson's `RSemaphore`.

use std::fmt;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::config::{MAX_NUMBER, check_permits};
use crate::error::Error;
use crate::guard::Guard;
use crate::owner::Owner;

/// A number of permits that all clients of a server share; made by [`Client::semaphore`](crate::Client::semaphore).
///
/// A handle: it does no I/O by itself, is cheap to clone, and any number of handles name one semaphore. It has no permits
/// until somebody has [set](Semaphore::try_set_permits) or [added](Semaphore::add_permits) some.
///
/// * **No lease.** As Redisson's, a permit is taken until it is given back: those of a process that died stay taken, and
///   so do those of a client that went while its server could not be reached. Who must not lose permits that way takes
///   a semaphore whose permits expire.
/// * **Each acquisition, release and change counts once**, also where its answer was lost and it was sent again. For that
///   the server keeps a small key of its own beside the semaphore for each permit that is out, and for some half a
///   minute (a [`watchdog_timeout`](crate::Builder::watchdog_timeout) and an
///   [`unavailable_after`](crate::Builder::unavailable_after)) for each one that was given back.
/// * **First come, first served** among the waiters of one client, also where they want different numbers; between
///   clients, whoever asks first. An acquisition that comes while nobody of its client waits asks at once.
/// * A permit has nothing to do with the task that acquired it: it is never entered again, and may be given back
///   anywhere.
///
/// After Redisson's `RedissonSemaphore`, on the same key and channel, and except that: a change keeps the time to live of
/// the key, and a number below 1 is not published, which Redisson's own listeners cannot bear.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let printers = client.semaphore("printers");
/// printers.try_set_permits(3).await?;
/// let printed = printers.acquire().run(async { "printed" }).await?;
/// assert_eq!(printed, "printed");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    handle: Handle,
}

impl Semaphore {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Gives the semaphore its number of permits, if it has none yet; whether it did. 0 to 2147483647.
    ///
    /// It has one also where all of its permits are taken.
    ///
    /// # Errors
    /// * [`Error::Unavailable`]: nobody answered for [`unavailable_after`](crate::Builder::unavailable_after), and it is
    ///   unknown whether the change was made. Until then it is sent again, and counts once.
    /// * [`Error::InvalidPermits`]: more than can be counted.
    /// * [`Error::InvalidKey`], [`Error::Denied`]; [`Error::WrongType`]: the key holds something that is no number.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// assert!(printers.try_set_permits(3).await?);
    /// assert!(!printers.try_set_permits(5).await?);
    /// assert_eq!(printers.available_permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        if permits > MAX_NUMBER {
            let permits = u64::from(permits);
            return Err(Error::InvalidPermits { permits });
        }
        self.handle.try_set(permits).await
    }

    /// Adds permits, or takes some away where the number is negative: how many are available then.
    ///
    /// They may become less than none: then so many have to be given back before one can be acquired. A semaphore
    /// without a number has 0 to add to.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// assert_eq!(printers.add_permits(3).await?, 3);
    /// assert_eq!(printers.add_permits(-2).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, permits: i32) -> Result<i64, Error> {
        self.handle.add(permits).await
    }

    /// Gives back permits that no [`Permit`] stands for any more, as Redisson's `release(n)`: how many are available
    /// then.
    ///
    /// For those that were [forgotten](Permit::forget), or acquired by another program. Nothing keeps a caller from
    /// giving back more than were taken.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits), and [`Error::InvalidPermits`] for 0.
    ///
    /// # Cancel safety
    /// If the future is dropped, the permits may or may not be released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// printers.acquire_many(2).await?.forget();
    /// assert_eq!(printers.release_permits(2).await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn release_permits(&self, permits: u32) -> Result<i64, Error> {
        check_permits(permits)?;
        self.handle
            .add(i32::try_from(permits).unwrap_or(i32::MAX))
            .await
    }

    /// How many permits are available: below 0 where more were taken away than there were. The answer is old when it
    /// arrives.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert_eq!(client.semaphore("printers").available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available_permits(&self) -> Result<i64, Error> {
        self.handle.number().await
    }

    /// Takes all permits that are available, for good: how many they were.
    ///
    /// Where they are less than none they become 0, and the answer is negative: as Redisson's, and Java's.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the permits may or may not be taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert_eq!(printers.drain_permits().await?, 3);
    /// assert_eq!(printers.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn drain_permits(&self) -> Result<i64, Error> {
        self.handle.drain().await
    }

    /// Removes the semaphore with all its permits; whether there was one. Use it to repair a system by hand,
    /// not as a part of normal work.
    ///
    /// Waiters go on waiting, for permits that somebody may set. Permits that are out are worth nothing more, and yet
    /// count where they are given back: as with Redisson, a permit returned to a semaphore without a number begins one.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not be removed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert!(printers.delete().await?);
    /// assert!(printers.try_set_permits(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }

    /// Acquires one permit; await what it gives, or run something with it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(1).await?;
    /// let permit = printers.acquire().await?;
    /// let busy = printers.acquire().wait(Duration::from_millis(10)).await;
    /// assert!(busy.unwrap_err().is_busy());
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire<Permit> {
        self.acquire_many(1)
    }

    /// Acquires several permits at once: all of them or none. 1 to 2147483647; what is not is
    /// [`Error::InvalidPermits`] when it is awaited.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// let two = printers.acquire_many(2).await?;
    /// assert_eq!((two.permits(), printers.available_permits().await?), (2, 1));
    /// # Ok(()) }
    /// ```
    pub fn acquire_many(&self, permits: u32) -> Acquire<Permit> {
        Acquire::new(LockSet::One(self.handle.clone())).permits(permits)
    }

    /// Acquires one permit if one is available: one round trip, no waiting.
    ///
    /// # Errors
    /// The errors of [`Acquire`], except [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// If the future is dropped, a hold that was granted in the meantime is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// assert!(printers.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.acquire().try_now().await
    }

    /// Acquires several permits at once if so many are available: one round trip, no waiting.
    ///
    /// # Errors
    /// The errors of [`Acquire`], except [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// If the future is dropped, a hold that was granted in the meantime is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert!(printers.try_acquire_many(4).await?.is_none());
    /// assert!(printers.try_acquire_many(3).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>, Error> {
        self.acquire_many(permits).try_now().await
    }
}

/// Permits of a [`Semaphore`], for as long as it lives.
///
/// They were acquired together and are given back together: by [`release`](Permit::release), which confirms it, or by
/// dropping it, in the background. Nothing ends them before.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let printers = client.semaphore("printers");
/// printers.try_set_permits(1).await?;
/// let permit = printers.acquire().await?;
/// permit.release().await?;
/// assert_eq!(printers.available_permits().await?, 1);
/// # Ok(()) }
/// ```
#[must_use = "permits are given back as soon as this is dropped; bind it: `let _permit = ..`"]
pub struct Permit(Guard);

impl Permit {
    /// The semaphore's key, without the client's prefix.
    /// # Examples
    /// See [`Permit::permits`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// How many permits these are.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// let two = printers.acquire_many(2).await?;
    /// assert_eq!((two.key(), two.permits()), ("printers", 2));
    /// # Ok(()) }
    /// ```
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// The identity of this acquisition: `<client uuid>:<number>`.
    /// # Examples
    /// See [`Owner`].
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// Gives the permits back, and confirms it.
    ///
    /// # Errors
    /// * [`Error::Unavailable`]: nobody answered; the release goes on in the background until it is confirmed, and
    ///   counts once.
    /// * [`Error::Lost`]: the server knows nothing of these permits, and nothing was given back: it has lost its data.
    /// * [`Error::Denied`], [`Error::WrongType`]: the server refused.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the release to the background.
    ///
    /// # Examples
    /// See [`Permit`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Keeps the permits taken, with nothing that would give them back but
    /// [`Semaphore::release_permits`], here or in another program.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(1).await?;
    /// printers.acquire().await?.forget();
    /// assert_eq!(printers.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub fn forget(self) {
        self.0.forget();
    }
}

#[cfg(feature = "test-util")]
impl Permit {
    pub(crate) fn into_guard(self) -> Guard {
        self.0
    }
}

impl From<Guard> for Permit {
    fn from(guard: Guard) -> Self {
        Self(guard)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}

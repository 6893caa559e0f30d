//! The fair locks: Redisson's `RLock` of `getFairLock`, and that of `getNonReentrantFairLock`.

use crate::primitives::Lock;
use crate::primitives::kinds::{Fair, NonReentrantFair};

/// A lock that is granted in the order of arrival, among all clients; made by
/// [`Client::fair_lock`](crate::Client::fair_lock).
///
/// The waiters of all processes stand in one queue in the server. No waiter is overtaken: not by an acquisition that
/// starts when the lock is released, not by [`try_acquire`](FairLock::try_acquire), and not by a hand-over inside a
/// client. Each grant therefore costs round trips. If the order does not matter, [`Lock`](crate::Lock) is much faster.
///
/// * The server wakes each waiter by a separate message. Each waiter reports to the server at intervals.
/// * A waiter that times out or is dropped leaves the queue at once.
/// * A waiter whose process crashed delays those behind it by at most the
///   [waiter timeout](crate::Builder::waiter_timeout). Several crashed waiters delay them only once.
/// * A waiter that could not report for that long loses its place, and continues to wait at the end of the queue.
///
/// In all other respects it behaves like [`Lock`](crate::Lock): leases, the watchdog, loss, and re-entry inside its scope,
/// which does not queue. In the server its holds are stored like those of a `Lock`, so that both kinds exclude each
/// other. Use only one kind for a key: a `Lock` does not queue, and its release does not wake the waiters of a fair lock.
///
/// In Redis, the keys `q` and `{q}` are two locks with one queue, because Redisson gives both queues the same name. While an
/// owner waits for `q`, the server grants `{q}` to nobody else, even if it is free. Use only one of the two.
///
/// The lock corresponds to Redisson's `RedissonFairLock` and uses the same keys, fields and channels: the waiters of both stand
/// in one queue. A waiter of Redisson keeps its place for five minutes. A waiter of this crate keeps its place for as long as it
/// waits. A release notifies only the first waiter of the queue. If that waiter has crashed, waiters of Redisson behind it may
/// wait until the end of the lease that the server has reported to them.
///
/// If a process is killed while it waits, or ends by a signal that it does not handle, its entry stays in the two keys of
/// Redisson's queue. The first attempt or release on the key after the [waiter timeout](crate::Builder::waiter_timeout) removes
/// it. If nobody uses the key any more, both keys expire after one day. They cannot expire earlier: Redisson does not extend them
/// when one of its own waiters joins the queue, and that waiter could wait for ever if the queue expired. Redisson itself leaves
/// these keys without an expiry. A process that drops its waiting acquisitions before it ends, for example by
/// [`Client::close`](crate::Client::close), leaves nothing.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.fair_lock("order:42");
/// let (one, two) = tokio::join!(
///     lock.acquire().run(async { std::time::Instant::now() }),
///     lock.acquire().run(async { std::time::Instant::now() }),
/// );
/// assert!(one? <= two?);
/// # Ok(()) }
/// ```
#[doc(alias = "RFairLock")]
pub type FairLock = Lock<Fair>;

/// A lock that is granted in the order of arrival and cannot be entered again inside its own scope; made by
/// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock).
///
/// It behaves like [`FairLock`](crate::FairLock), with one difference: acquiring it again inside its own scope, or with
/// [`Guard::reenter`](crate::Guard::reenter), fails at once with [`Error::Deadlock`](crate::Error::Deadlock). In the server
/// it is the same lock with the same queue.
///
/// The lock corresponds to Redisson's `RedissonNonReentrantFairLock` and uses the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.non_reentrant_fair_lock("order:42");
/// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
/// assert!(again.unwrap_err().is_permanent());
/// # Ok(()) }
/// ```
pub type NonReentrantFairLock = Lock<NonReentrantFair>;

//! The non-reentrant fair lock: Redisson's `RLock` of `getNonReentrantFairLock`.

use crate::primitives::Lock;
use crate::primitives::kinds::NonReentrantFair;

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

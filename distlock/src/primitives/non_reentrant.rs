//! The non-reentrant lock: Redisson's `RLock` of `getNonReentrantLock`.

use crate::primitives::Lock;
use crate::primitives::kinds::NonReentrant;

/// A lock that cannot be entered again inside its own scope; made by
/// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock).
///
/// It behaves like [`Lock`](crate::Lock), with one difference: acquiring it again inside its own scope, or with
/// [`Guard::reenter`](crate::Guard::reenter), fails at once with [`Error::Deadlock`](crate::Error::Deadlock). Use it if
/// entering twice is a mistake that should be reported.
///
/// In the server it is stored like a `Lock`, so both kinds exclude each other on one key.
///
/// The lock corresponds to Redisson's `RedissonNonReentrantLock` and uses the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.non_reentrant_lock("order:42");
/// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
/// assert!(again.unwrap_err().is_permanent());
/// # Ok(()) }
/// ```
pub type NonReentrantLock = Lock<NonReentrant>;

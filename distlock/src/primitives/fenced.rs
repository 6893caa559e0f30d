//! The fenced lock: Redisson's `RFencedLock`.

use crate::primitives::Lock;
use crate::primitives::kinds::Fenced;

/// A lock whose grants have fencing tokens; made by [`Client::fenced_lock`](crate::Client::fenced_lock).
///
/// Each grant has a **fencing token**: a number that is higher than the token of every earlier grant of the same key.
/// Send it with each write, and let the store refuse a token that is lower than the highest it has seen. The store then
/// also refuses the write of a holder that hung until its lease had expired, which no lock can prevent by itself. It does so
/// once a newer holder has written. A holder that writes what it computed from a read therefore stores its token before it
/// reads: [`limits`](crate::guide::limits#fencing-tokens) shows how.
///
/// In all other respects it behaves like [`Lock`](crate::Lock), except that no hold is handed over inside a client.
///
/// # Which tokens a grant can have
/// A new token is higher than the last one that the server knows, at least the server's time in microseconds since 1970,
/// and higher than all tokens of the key that this client has seen (for the 4096 keys that it used last). Tokens therefore
/// grow across releases, expiry, force-releases and restarts of clients. They also grow if the server has lost the last
/// token or all its data, and after a fail-over to a replica that had not received the last grants. There are gaps between
/// tokens. A re-entry is part of the same grant and has the same token.
///
/// A token can be lower than an earlier one only if the server has lost the last token, its clock is behind that token,
/// and the client has not seen it. Tokens stay too low until a client that has seen the lost token acquires the lock,
/// or until the clock has caught up. A clock is behind if it was set back, if a replica's clock is behind its master's
/// by more than the fail-over took, or if a key had more than a million grants a second. Keep the clocks of the servers
/// synchronized for this reason. A store that compares tokens refuses a token that is too low: the write fails, but no
/// late write gets through.
///
/// Redis keeps the last token of each key forever, in a separate key, unless
/// [`fencing_token_ttl`](crate::Builder::fencing_token_ttl) is set. A [`MemoryServer`](crate::MemoryServer) keeps the tokens
/// of held keys only, and its tokens grow even if its machine's clock is set back.
///
/// # Redisson
/// The lock corresponds to Redisson's `RedissonFencedLock` and uses the same keys. Redisson's tokens start at 1, and each
/// of its re-entries has a new token. On fencing see Martin Kleppmann, "How to do distributed locking".
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.fenced_lock("order:42");
/// let first = lock.acquire().await?;
/// let token = first.token();
/// first.release().await?;
/// assert!(lock.acquire().await?.token() > token);
/// # Ok(()) }
/// ```
#[doc(alias = "RFencedLock")]
pub type FencedLock = Lock<Fenced>;

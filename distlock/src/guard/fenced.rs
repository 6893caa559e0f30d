//! The guard of a fenced lock: a guard that has a token.

use std::fmt;
use std::ops::Deref;

use futures_core::Stream;

use crate::error::Error;
use crate::guard::detached::DetachedHold;
use crate::guard::from_guard::{AcquiredGuard, FromGuard};
use crate::guard::stream::HoldStream;
use crate::guard::{Guard, Leased};
use crate::resource::kind::Kind;

/// A [`Guard`] with the fencing token of its grant.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let guard = client.fenced_lock("order:42").acquire().await?;
/// let _written = guard.scope(async { format!("update .. where token <= {}", guard.token()) }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it: `let _guard = ..`"]
pub struct FencedGuard(Guard);

impl FencedGuard {
    /// Returns the fencing token. It is higher than the token of every earlier grant of this key. It fits into an `i64`, and not into
    /// 32 bits.
    ///
    /// # Examples
    /// See [`FencedGuard`].
    pub fn token(&self) -> u64 {
        // Each grant of a fenced lock has a token, and nothing else makes this guard, so the 0 is never returned.
        self.0.fencing_token().unwrap_or_default()
    }

    /// Enters the lock once more, as [`Guard::reenter`]. The new guard belongs to the same grant and has the same token.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold was lost.
    ///
    /// # Examples
    /// See [`Guard::reenter`].
    pub fn reenter(&self) -> Result<Self, Error> {
        self.0.reenter().map(Self)
    }

    /// Runs a stream inside the critical section, and releases the guard after its last item, as
    /// [`Guard::hold_stream`].
    ///
    /// # Errors
    /// The same as [`Guard::hold_stream`].
    ///
    /// # Cancel safety
    /// The same as [`Guard::hold_stream`].
    ///
    /// # Examples
    /// See [`Guard::hold_stream`].
    pub fn hold_stream<S: Stream>(self, items: S) -> HoldStream<S> {
        self.0.hold_stream(items)
    }

    /// Releases the guard and waits for the confirmation, as [`Guard::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    ///
    /// # Cancel safety
    /// The same as [`Guard::release`].
    ///
    /// # Examples
    /// See [`FencedGuard`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Ends this guard and leaves its hold in the server, as [`Guard::detach`]. The guard that attaches the hold has the same token.
    ///
    /// # Errors
    /// The same as [`Guard::detach`].
    ///
    /// # Examples
    /// See [`DetachedHold::fencing_token`].
    pub fn detach(self) -> Result<DetachedHold<Self>, Error> {
        self.0.detach_as()
    }
}

impl Leased for FencedGuard {
    fn is_of(kind: Kind) -> bool {
        kind == Kind::Fenced
    }
}

impl FromGuard for FencedGuard {
    fn from_guard(guard: AcquiredGuard) -> Self {
        Self(guard.0)
    }
}

impl From<FencedGuard> for Guard {
    /// Converts to the plain guard, whose [token](Guard::fencing_token) is an `Option`.
    fn from(guard: FencedGuard) -> Self {
        guard.0
    }
}

impl Deref for FencedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl fmt::Debug for FencedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("token", &self.token())
            .field("guard", &self.0)
            .finish()
    }
}

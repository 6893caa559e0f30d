//! What the caller can do about an error: its class, and whether the guarded body had completed.

use super::{Blocker, Error};

impl Error {
    /// Returns `true` if the wait ended while the lock was still taken. Retrying later may help.
    ///
    /// It is also `true` if a wait of less than 500 ms, or one behind another acquisition, ended before the server had answered; see
    /// [`Blocker::Unanswered`](crate::Blocker::Unanswered). Then it is not known whether the lock was taken, and
    /// [`is_held_by_another`](Error::is_held_by_another) is `false`.
    ///
    /// # Examples
    /// See [`Error`].
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Returns `true` if the wait ended and the lock is known to be taken: the error [is busy](Error::is_busy), and the server
    /// had answered.
    ///
    /// Use it to tell a user that somebody else is at work, or to do without the work because another process does it. The
    /// attribute's `on_busy`, the answer 409 of the layer in `distlock-tower` and the outcome `busy` of the metrics go by it. An
    /// error that is busy and not held by another is treated like one that is [unavailable](Error::is_unavailable) there.
    ///
    /// It is also `true` for a semaphore that has no permits yet, and for a latch whose count is not 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("import");
    /// let _guard = lock.acquire().await?;
    /// let imported = lock.acquire().wait(std::time::Duration::ZERO).run(async { "imported" }).await;
    /// let said = match imported {
    ///     Ok(said) => said,
    ///     Err(error) if error.is_held_by_another() => "another process imports",
    ///     Err(error) => return Err(error),
    /// };
    /// assert_eq!(said, "another process imports");
    /// # Ok(()) }
    /// ```
    pub fn is_held_by_another(&self) -> bool {
        match self {
            Self::Timeout { blocker, .. } => *blocker != Blocker::Unanswered,
            _ => false,
        }
    }

    /// Returns `true` if the waiter limit was reached. Retrying later may help, when fewer acquisitions wait.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let error = client.lock("order:42").acquire().max_waiters(0).await.unwrap_err();
    /// assert!(error.is_overloaded() && !error.is_busy());
    /// # Ok(()) }
    /// ```
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Overloaded { .. })
    }

    /// Returns `true` if the lock server did not answer in time, or cannot grant locks at the moment: [`Error::Unavailable`],
    /// [`Error::Unreachable`] when a client connects, or [`Error::ReleasesPending`] after a close if a release is not confirmed.
    ///
    /// After a failed acquisition it is not known whether another owner holds the lock.
    ///
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.is_unavailable());
    /// ```
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. }
                | Self::Unreachable { .. }
                | Self::ReleasesPending { releases: 1.., .. }
        )
    }

    /// Returns `true` if a hold ended before it was released, or if the semaphore or latch that was waited for is gone.
    ///
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.is_lost());
    /// ```
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns `true` if retrying the same call will not help, because the call, the configuration or the server's
    /// set-up has to change, or another client has to be used.
    ///
    /// These are all errors for which the other four methods return `false`: wrong arguments and settings, a
    /// [`Deadlock`](Error::Deadlock), a closed client, and a server that denies a [command](Error::Denied) or the
    /// [login](Error::LoginDenied), holds [another type of value](Error::WrongType) or gives an answer that
    /// [cannot be understood](Error::Protocol).
    ///
    /// # Examples
    /// ```
    /// assert!(distlock::Error::NoClient.is_permanent());
    /// ```
    pub fn is_permanent(&self) -> bool {
        !(self.is_busy() || self.is_overloaded() || self.is_unavailable() || self.is_lost())
    }

    /// Returns `true` if the hold was lost, and the guarded body had nevertheless run to its end.
    ///
    /// The effects of the body remain, but another owner may have been inside the critical section at the same time.
    ///
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.body_completed());
    /// ```
    pub fn body_completed(&self) -> bool {
        matches!(
            self,
            Self::Lost {
                body_completed: true,
                ..
            }
        )
    }

    /// Marks a loss as found after the guarded body had run to its end; other errors are returned unchanged.
    ///
    /// Use it in middleware that releases a guard after a body. [`run`](crate::Acquire::run) marks its losses itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// client.lock("order:42").force_release().await?;
    /// let lost = guard.release().await.unwrap_err();
    /// assert!(lost.is_lost() && !lost.body_completed());
    /// assert!(lost.after_body().body_completed());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn after_body(self) -> Self {
        match self {
            Self::Lost { key, reason, .. } => Self::Lost {
                key,
                reason,
                body_completed: true,
            },
            other => other,
        }
    }
}

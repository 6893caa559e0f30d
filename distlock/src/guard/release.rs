//! The ways in which a guard ends by its name. A guard that is dropped ends with its [shares](HoldShare).

use smallvec::smallvec;

use super::Guard;
use super::shares::Shares;
use crate::error::Error;
use crate::local::{HoldShare, HoldShares, end_all};

impl Guard {
    /// Releases the lock and waits for the confirmation.
    ///
    /// If the lock was re-entered and the hold has other guards, only the count decreases. The last guard frees the
    /// lock and wakes a waiter.
    ///
    /// If another task of this client waits for the key, the hold may be handed over to it, and the server is not asked. The result
    /// is `Ok` then unless the loss of the hold is known already. A loss that is found later is reported to that task. Only plain
    /// locks, spin locks and write locks are handed over, and none that has a [lease](crate::Acquire::lease) of its own, a
    /// [`hold_at_least`](crate::Acquire::hold_at_least), several keys or several servers. The release of any other hold asks the
    /// server.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold was lost before its release, as far as the client or the server that was asked knows. Another
    ///   owner may have been inside the critical section. A value of another type under the key is such a loss as well.
    /// * [`Error::Unavailable`]: the server did not answer. The release is repeated in the background, and the lock is freed
    ///   by its lease at the latest.
    /// * [`Error::Denied`]: the server refused. [`Error::WrongType`]: the key of a fair lock's queue holds another type of value.
    ///
    /// # Cancel safety
    /// The guard ends with the first poll. Dropping the future leaves the release to the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// lock.force_release().await?; // another client could do this
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "unlock")]
    pub async fn release(self) -> Result<(), Error> {
        let share = match self.0 {
            Shares::One(share) => share,
            // Boxed: most guards have one share, and each release would have room for several.
            several => return Box::pin(Self(several).release_all()).await,
        };
        // Not in the head of the `match`, whose temporary values the future would keep until the answer.
        let release = share.end()?;
        match release {
            Some(release) => release.confirm().await,
            None => Ok(()),
        }
    }

    async fn release_all(self) -> Result<(), Error> {
        // Read before the shares end: after that, no member counts as held.
        let view = self.view();
        let lost = view.loss();
        let needs = view.needs();
        let released = end_all(self.take_shares(), needs).await;
        lost.map_or(released, Err)
    }

    /// Ends the guard without giving permits back.
    pub(crate) fn forget(self) {
        self.take_shares().into_iter().for_each(HoldShare::forget);
    }

    /// Ends the guard and leaves its holds in the server until their leases end. They are no longer renewed.
    pub(crate) fn leave_to_its_lease(self) -> Result<(), Error> {
        self.take_shares()
            .into_iter()
            .try_for_each(HoldShare::leave_to_its_lease)
    }

    /// The shares, which the caller ends.
    fn take_shares(self) -> HoldShares {
        match self.0 {
            Shares::One(share) => smallvec![share],
            Shares::More(more) => more.take(),
        }
    }
}

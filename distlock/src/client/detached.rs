//! Holds that another process has detached: attaching and releasing them.

use std::panic::Location;

use super::Client;
use crate::acquire::attach;
use crate::acquire::handle::Handle;
use crate::error::Error;
use crate::guard::Leased;
use crate::guard::detached::{DetachedHold, OwnedKey};
use crate::guard::from_guard::AcquiredGuard;

impl Client {
    /// Takes over a hold that was [detached](crate::Guard::detach), in this process or in another one, and returns its guard.
    ///
    /// In one step, the server replaces the owner that has detached the hold by an owner of this client, and renews the lease.
    /// Only one of several clients can therefore attach a hold, and later commands of the former client for it have no effect.
    /// Nobody else gets the lock in between. Redisson sees an ordinary lock. The watchdog of this client renews it from then on, for
    /// as long as the client's [`max_hold`](crate::Builder::max_hold) allows. A `max_hold` of the acquisition does not travel with the hold.
    /// A wait [until the lock is free](crate::Lock::until_free) may complete, because it takes the new owner for the next one.
    ///
    /// The client has to use the same servers and the same [`key_prefix`](crate::Builder::key_prefix) as the one that detached
    /// the hold. The call does not wait behind acquisitions of the key. Inside of a scope that has the key, the call is not a
    /// re-entry.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold is not there any more. Its lease has ended, it was freed by force, or somebody has attached or
    ///   released it. Or the text was changed, and has a fencing token above all that the server has issued for this key.
    /// * [`Error::Unavailable`]: the server did not answer for [`unavailable_after`](crate::Builder::unavailable_after), or too
    ///   few [replicas](crate::Builder::replicas) have confirmed. If the server had executed the command, the hold is released in
    ///   the background. Calling this again is safe: it returns [`Error::Lost`] then.
    /// * [`Error::Denied`], [`Error::WrongType`], [`Error::InvalidKey`], [`Error::Closed`]: as for an acquisition.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hold is still detached, or it is released in the background.
    ///
    /// # Examples
    /// See [`DetachedHold`].
    #[track_caller]
    pub fn attach<'a, G: Leased>(
        &'a self,
        detached: &'a DetachedHold<G>,
    ) -> impl Future<Output = Result<G, Error>> + Send + use<'a, G> {
        // Taken here: an `async` block does not know the caller.
        let (handle, call_site) = (self.detached(&detached.hold), Location::caller());
        async move {
            let guard = attach::attach(&handle, &detached.hold, call_site).await?;
            Ok(G::from_guard(AcquiredGuard::new(guard)))
        }
    }

    /// Releases a hold that was [detached](crate::Guard::detach), without a guard in between, and wakes a waiter.
    ///
    /// # Errors
    /// * [`Error::Lost`]: the hold is not there any more; see [`attach`](Client::attach).
    /// * [`Error::Unavailable`]: the server did not answer for [`unavailable_after`](crate::Builder::unavailable_after), or it did not
    ///   answer at first and the hold is not there any more. This call may or may not have released the hold: somebody else may
    ///   have attached it. A hold that is still there ends with its lease at the latest. Calling this again is safe.
    /// * [`Error::Denied`], [`Error::WrongType`], [`Error::InvalidKey`]: as for the release of a guard.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hold may or may not be released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let detached = client.lock("order:42").acquire().await?.detach()?;
    /// client.release_detached(&detached).await?;
    /// assert!(!client.lock("order:42").is_locked().await?);
    /// assert!(client.release_detached(&detached).await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release_detached<G: Leased>(
        &self,
        detached: &DetachedHold<G>,
    ) -> Result<(), Error> {
        let handle = self.detached(&detached.hold);
        attach::release(&handle, &detached.hold).await
    }

    fn detached(&self, hold: &OwnedKey) -> Handle {
        let mut handle = self.handle(hold.kind, hold.key.as_str());
        if !hold.expires_after.is_zero() {
            handle.set_expire_after(hold.expires_after);
        }
        handle
    }
}

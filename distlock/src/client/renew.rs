//! Another identity for a client whose machine was copied.

use super::Client;
use crate::error::Error;

impl Client {
    /// Gives this client and all its clones another [id](Client::id), and connections of its own.
    ///
    /// Call it after a snapshot of a machine was restored, before any other use of the client. Two machines that were restored
    /// from one snapshot have the same clients with the same ids. Without this call, the server would grant both of them the same
    /// keys. A copy of a process (`fork`) needs no call; see [Copies of a process](Client#copies-of-a-process).
    ///
    /// The client sends no renewal and no release under the former id:
    /// * Earlier holds are [lost](crate::Loss::NewIdentity). In the server they end with their leases, unless another copy renews
    ///   them.
    /// * Acquisitions and waits for a latch that are under way start again, with their whole waiting time.
    /// * A change of a number that is under way, such as [`count_down`](crate::CountDownLatch::count_down), fails with
    ///   [`Error::Unavailable`] if it was not answered. The server may have executed it.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] or [`Error::InvalidUrl`]: the client cannot be made again with its settings.
    /// [`Error::TimePaused`]: tokio's time is paused now. The former id is given up in any case. The client is closed until a
    /// later operation succeeds in making the client again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let (former, guard) = (client.id(), client.lock("order:42").acquire().await?);
    /// client.renew_identity()?;
    /// assert_ne!(client.id(), former);
    /// // The hold is that of the machine of which this one is a copy.
    /// assert!(!guard.is_held());
    /// assert!(client.lock("order:42").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn renew_identity(&self) -> Result<(), Error> {
        self.lives.renew()
    }
}

//! Whether the lock server is there, for the probes of a service.

use std::time::Duration;

use super::Client;
use crate::error::Error;

impl Client {
    /// Pings the lock server, and returns how long the answer took. In a cluster, all masters are asked at the same time, and the
    /// slowest one counts.
    ///
    /// It connects if there is no connection.
    ///
    /// # Errors
    /// * [`Error::Unreachable`]: a server did not answer within the [response timeout](crate::Builder::response_timeout). It is
    ///   asked once.
    /// * [`Error::LoginDenied`]: a server refused the user.
    /// * [`Error::UnsupportedServer`]: the server was replaced by one that this crate cannot use.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// println!("the lock server answers within {:?}", client.ping().await?);
    /// # Ok(()) }
    /// ```
    pub async fn ping(&self) -> Result<Duration, Error> {
        let session = &*self.session();
        let since = session.now();
        let pinged = session.backend.ping().await;
        let after = session.now().since(since);
        let server = session.backend.servers();
        pinged.map_err(|fault| fault.into_connection_error(server, after))?;
        Ok(after)
    }

    /// Returns `true` if the client is connected to the lock server. In a cluster, it must be connected to each master that it
    /// has used. The method sends nothing.
    ///
    /// A lost connection is noticed when the server closes it, or when commands are not answered. To find out whether the
    /// server answers, use [`ping`](Client::ping).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// assert!(distlock::Client::in_memory().is_connected());
    /// # }
    /// ```
    pub fn is_connected(&self) -> bool {
        self.session().backend.longest_disconnection().is_none()
    }
}

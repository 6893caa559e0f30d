//! Whether a client can do its work and its lock server is there, for the probes of a service.

use std::fmt;
use std::time::Duration;

use super::Client;
#[cfg(feature = "serde")]
use crate::backend::reports::millis;
use crate::error::Error;
use crate::hold::Lease;

/// Whether a client can do its work; see [`Client::health`].
///
/// With the feature `serde` it can be serialized. The variant is then the field `state`, in snake case, and times are whole
/// milliseconds, under the name `lasted_ms`.
///
/// # Examples
/// See [`Client::health`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "state", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Health {
    /// The client is connected, and the server has answered the last renewal of each hold.
    Connected,
    /// The client is not connected to a server that it uses, and keeps trying to connect. Meanwhile acquisitions wait or fail,
    /// and holds are lost when their leases end. In a cluster, the servers that it uses are the masters that it has sent commands
    /// to, or has tried to. The client does not connect to the others.
    #[non_exhaustive]
    Disconnected {
        /// The server, without user and password. In a cluster it is the master that has been disconnected for the longest time.
        server: String,
        /// How long there has been no connection.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "lasted_ms", serialize_with = "millis")
        )]
        lasted: Duration,
        /// Why the last attempt to connect has failed, as a text for people.
        reason: String,
    },
    /// The client is connected, but the server refuses the renewals of some holds, or does not answer them. Such a hold is lost
    /// when its lease ends.
    #[non_exhaustive]
    RenewalsFail {
        /// The number of these holds.
        holds: usize,
        /// The time since the first of these renewals was sent.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "lasted_ms", serialize_with = "millis")
        )]
        lasted: Duration,
    },
    /// The program has [closed](Client::close) the client. It acquires nothing any more.
    Closed,
}

impl Client {
    /// Returns whether the client can do its work, as far as it knows. Nothing is sent, and nothing is waited for.
    ///
    /// A lost connection is noticed when the server closes it, or when commands are not answered. A renewal fails when the
    /// server does not answer within the [response timeout](crate::Builder::response_timeout), or refuses it. A client without
    /// holds renews nothing, so it learns nothing of a server that refuses commands. To ask the server, use
    /// [`ping`](Client::ping).
    ///
    /// If several states apply, the first of these is returned: closed, disconnected, renewals fail. The time that the call takes
    /// grows with the number of holds: about a millisecond for ten thousand.
    ///
    /// See the [guide](crate::guide::logs_metrics_alerts#probes) for what liveness and readiness probes do with it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    /// use distlock::{Client, Health};
    ///
    /// /// Whether this instance should get requests.
    /// fn is_ready(client: &Client) -> bool {
    ///     match client.health() {
    ///         // A server that restarts is back soon. Requests wait for it.
    ///         Health::Disconnected { lasted, .. } => lasted < Duration::from_secs(5),
    ///         Health::Closed => false,
    ///         _ => true,
    ///     }
    /// }
    ///
    /// let client = Client::in_memory();
    /// assert!(is_ready(&client));
    /// client.close(Duration::ZERO).await?;
    /// assert!(!is_ready(&client));
    /// # Ok(()) }
    /// ```
    pub fn health(&self) -> Health {
        let session = &*self.session();
        if session.closed.is_set() {
            return Health::Closed;
        }
        if let Some(away) = session.backend.longest_disconnection() {
            return Health::Disconnected {
                server: away.server,
                lasted: away.lasted,
                reason: away.fault.why().to_string(),
            };
        }
        let holds = session.watchdog.holds();
        let failing = holds
            .iter()
            .filter_map(|hold| hold.lease(Lease::failing_since));
        match failing.clone().min() {
            None => Health::Connected,
            Some(since) => Health::RenewalsFail {
                holds: failing.count(),
                lasted: session.now().since(since),
            },
        }
    }

    /// Pings the lock server, and returns how long the answer took. In a cluster, all masters are asked at the same time, and the
    /// slowest one counts.
    ///
    /// A client without a connection connects first.
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
        let session = &self.session();
        session.tend_tasks();
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

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Disconnected {
                server,
                lasted,
                reason,
            } => write!(f, "not connected to {server} for {lasted:.1?}: {reason}"),
            Self::RenewalsFail { holds, lasted } => write!(
                f,
                "connected, but renewals of {holds} holds have failed for {lasted:.1?}"
            ),
            Self::Closed => f.write_str("closed"),
        }
    }
}

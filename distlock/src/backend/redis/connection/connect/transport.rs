//! The stream under a connection: the socket with its options, and TLS over it.
//!
//! The driver gets a connected stream. So its own features for TLS have no effect, also if another crate turns them on.

use std::io;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;

use super::driven::Driven;
use super::stream::Stream;
use super::tls::Handshake;
use crate::backend::redis::connection::addresses::{Address, Endpoint};

/// Idle time, interval and number of probes: a peer that vanished without closing the connection is noticed after some
/// ten seconds.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);

/// How long sent bytes may stay unacknowledged before the connection counts as lost.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// All that a connection to a server needs, at this moment.
pub(crate) struct Dial {
    pub(crate) endpoint: Endpoint,
    /// Whether small commands are sent at once.
    pub(crate) nodelay: bool,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: Option<Handshake>,
}

impl Dial {
    /// Connects and logs in.
    pub(crate) async fn connect(&self, config: AsyncConnectionConfig) -> RedisResult<Driven> {
        let stream = self.stream().await?;
        let made = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (connection, driver) = made?;
        Ok(Driven::new(connection, driver))
    }

    async fn stream(&self) -> io::Result<Box<dyn Stream>> {
        match self.endpoint.reached() {
            Address::Tcp { host, .. } => match self.endpoint.at {
                Some(at) => self.tcp(at, host).await,
                None => Err(io::Error::other("the name has no address")),
            },
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn tcp(&self, at: std::net::SocketAddr, host: &str) -> io::Result<Box<dyn Stream>> {
        let socket = TcpStream::connect(at).await?;
        socket.set_nodelay(self.nodelay)?;
        let (idle, every, probes) = KEEPALIVE;
        let keepalive = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(every)
            .with_retries(probes);
        let options = SockRef::from(&socket);
        options.set_tcp_keepalive(&keepalive)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        match &self.tls {
            Some(tls) => tls.over(socket, host).await,
            None => Ok(Box::new(socket)),
        }
    }
}

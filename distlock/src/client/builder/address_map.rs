//! The settings that translate the addresses that servers announce.

use std::path::PathBuf;
use std::sync::Arc;

use super::Builder;
use crate::config::address_map::AddressMap;

/// Settings of the addresses that servers announce.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets a function that translates each address that the nodes of a cluster or the Sentinels announce; none by default.
    ///
    /// Servers announce the addresses at which they reach each other. Behind NAT, in containers or through port forwards, the
    /// client may need other addresses. The client calls the function with the announced host and port before each connection.
    /// The function returns the host and the port to connect to, or `None` to use the announced ones. Errors and logs show the
    /// announced address. With TLS, the server's certificate has to be for the host that the function returns, or for the
    /// [`tls_server_name`](Builder::tls_server_name).
    ///
    /// Addresses in the URL are not translated. The nearest setting with a plain value is [`map_file`](Builder::map_file); the
    /// function wins over the file.
    ///
    /// # Errors
    /// A client of a single server, which announces no addresses, is refused with
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig). A panic of the function, or an address without a host or with the port 0, counts as a failed try to connect. The client tries
    /// again as in every outage.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// // Docker: all nodes are in one network of containers, and their ports are forwarded.
    /// let builder = distlock::Client::builder()
    ///     .map_address(|host, port| host.starts_with("172.17.").then(|| ("localhost".to_owned(), port)));
    /// let client = builder.connect("redis+cluster://localhost:7000").await?;
    /// # Ok(()) }
    /// ```
    pub fn map_address(
        mut self,
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        self.config.address_map = Some(AddressMap::Asked(Arc::new(map)));
        self
    }

    /// Sets a file that translates the addresses that the nodes of a cluster or the Sentinels announce; none by default. The
    /// client reads it for each connection.
    ///
    /// Each line has an announced address and the one to connect to. If both are hosts without ports, the client uses the
    /// announced port. A line with a port wins over a line without one. An IPv6 address with a port is in brackets. A `#` begins
    /// a comment.
    ///
    /// ```text
    /// # announced      reached
    /// 172.17.0.2:6379  localhost:7001
    /// 172.17.0.3:6379  localhost:7002
    /// 10.0.0.5         redis.example.org
    /// ```
    ///
    /// See [`map_address`](Builder::map_address) for when to use it, and for the addresses that it applies to.
    ///
    /// # Errors
    /// If the file cannot be read, or has a line that makes no sense, the attempt to connect fails. The error names the line.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().map_file("/etc/shop/redis-addresses");
    /// let client = builder.connect("redis+cluster://localhost:7000").await?;
    /// # Ok(()) }
    /// ```
    pub fn map_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.map_file = Some(path.into());
        self
    }
}

//! The settings that say where announced addresses are reached.

use std::path::PathBuf;
use std::sync::Arc;

use super::Builder;
use crate::config::address_map::AddressMap;

/// Settings of the addresses that servers announce.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets a function that says where an address is reached that the nodes of a cluster or the Sentinels announce; none by
    /// default.
    ///
    /// Servers name themselves and each other as they see it, which may be another way than from here: behind NAT, in
    /// containers, or through port forwards. The function is called with the host and the port that are announced, before each
    /// connection. It returns the host and the port to connect to, or `None` for an address that is reached as it is. Errors and
    /// logs go on calling the server by the address that it announces. With TLS, the server's certificate has to be for the host
    /// that the function returns, or for the [`tls_server_name`](Builder::tls_server_name).
    ///
    /// Addresses in the URL are used as they are. The nearest setting with a
    /// plain value is [`map_file`](Builder::map_file); the function counts more than the file.
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

    /// Sets a file that says where addresses are reached that the nodes of a cluster or the Sentinels announce; none by default.
    /// It is read again for each connection.
    ///
    /// Each line has an announced address and the one to connect to. Of two hosts without ports, the port stays as it is
    /// announced. A line with the port counts more than one without. An IPv6 address with a port is in brackets. A `#` begins a comment.
    ///
    /// ```text
    /// # announced      reached
    /// 172.17.0.2:6379  localhost:7001
    /// 172.17.0.3:6379  localhost:7002
    /// 10.0.0.5         redis.example.org
    /// ```
    ///
    /// See [`map_address`](Builder::map_address) for what it is good for, and which addresses it applies to.
    ///
    /// # Errors
    /// A file that cannot be read, or has a line that makes no sense, counts as a failed try to connect. The error names the line.
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

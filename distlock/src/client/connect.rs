//! Clients of real servers: those that wait for the first connection, and those that do not.

use std::sync::Arc;

use super::builder::Builder;
use super::{Client, new_registry};
use crate::backend::redis::{RedisBackend, Url};
use crate::clock::Clock;
use crate::error::Error;
use crate::local::Lives;
use crate::resource::identity::Identity;

#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Client {
    /// Connects to the Redis or Valkey server at `url`, with default settings. See [`Builder::connect`].
    ///
    /// # Errors
    /// The same as [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future stops the connection attempt.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "open")]
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Returns a client of the Redis or Valkey server at `url`, with default settings, and does not wait for the server. See
    /// [`Builder::connect_lazy`].
    ///
    /// # Errors
    /// The same as [`Builder::connect_lazy`].
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect_lazy("redis://127.0.0.1:6379")?;
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        Self::builder().connect_lazy(url)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Connects to the Redis or Valkey server that `url` names.
    ///
    /// | URL | server |
    /// | --- | --- |
    /// | `redis://[user:password@]host[:port][/db]` | one server; the port is 6379 by default |
    /// | `rediss://..` | one server with TLS; needs the feature `tls-rustls` or `tls-native-tls` |
    /// | `rediss://..#insecure` | the same, with any certificate; needs rustls and the feature `tls-rustls-insecure` |
    /// | `unix:///path[?db=3&user=..&pass=..]` | one server by its socket |
    /// | `redis+sentinel://host1,host2,host3/service[/db]` | the master of a service, as its Sentinels name it; their port is 26379 by default |
    /// | `rediss+sentinel://..` | the same with TLS, to the servers and to the Sentinels |
    /// | `redis+cluster://[user:password@]host1[:port],host2[:port][/db]` | a cluster, found by any of these nodes; Valkey 9 has databases other than 0 there |
    /// | `rediss+cluster://..` | the same with TLS |
    ///
    /// `valkey` and `valkeys` mean the same as `redis` and `rediss`. In a user, a password and a path, `@`, `/`, `?`, `#`, `%`
    /// and `:` are percent-encoded (`%40`, `%2F`, `%3F`, `%23`, `%25`, `%3A`).
    ///
    /// The query may have [settings](crate::Settings), as in `redis://host?wait=5s&watchdog_timeout=10s`. The settings of the
    /// builder win. See the page [`connections`](crate::guide::connections#settings-in-the-url) of the guide.
    ///
    /// The server has to support the protocol RESP3, as Redis does since version 6. Once a client is connected, it reconnects
    /// whenever a connection is lost.
    ///
    /// The URL of a cluster names some of the nodes, and the client finds the others. It connects to a master when it first uses
    /// it. It has at most two connections to each master, and a third one if [replicas](Builder::replicas) have to confirm. See
    /// the page [`cluster`](crate::guide::cluster) of the guide.
    ///
    /// A server with locks should have the `maxmemory-policy` `noeviction`. With any other policy, the server deletes locks when
    /// its memory is full. The client logs one warning about such a policy of each server that it comes to.
    ///
    /// # Errors
    /// * [`Error::InvalidUrl`]: the URL does not name a server that this build can talk to.
    /// * [`Error::Unreachable`]: the server did not answer within the [connect timeout](Builder::connect_timeout) of 5 s, or it
    ///   admits no further connection; a client has two. The client repeats its attempts for that time.
    /// * [`Error::TimePaused`]: tokio's time is paused. Tests with paused time use [`in_memory`](Builder::in_memory).
    /// * [`Error::LoginDenied`]: the server refuses the user, the password or the client's certificate, or the client refuses
    ///   the server's certificate. Nothing is tried again.
    /// * [`Error::UnsupportedServer`]: the server speaks TLS and the URL says otherwise, or the reverse; it does not support
    ///   RESP3; it does not have the database of the URL; it is a node of a cluster, a single server or a
    ///   Sentinel where the URL says otherwise;
    ///   it does not know a command that locks need, because it was renamed. Or no Sentinel knows the service of the URL.
    /// * The errors of [`in_memory`](Builder::in_memory): a setting has a value that cannot work. Or a setting cannot have an
    ///   effect with this URL, such as a certificate with a URL without TLS.
    ///
    /// # Cancel safety
    /// Dropping the future stops the connection attempt.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().key_prefix("shop:");
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let (client, backend) = self.with_servers(url)?;
        let connect_timeout = client.session().config.connect_timeout;
        backend.connect(connect_timeout).await?;
        Ok(client)
    }

    /// Returns a client of the Redis or Valkey server that `url` names, and does not wait for the server.
    ///
    /// Use it for a service that may start before its lock server. The URL and the settings are checked at once. The client
    /// connects in the background, and tries again with pauses of up to 2 s until it has succeeded. If the client is made outside
    /// of a tokio runtime, it begins to connect when it is first used. The log says when there is no connection yet, and when
    /// there is one.
    ///
    /// Until then the client works as in an outage:
    /// * An acquisition waits for the server as long as its wait allows, and fails with
    ///   [`Error::Unavailable`](crate::Error::Unavailable) after
    ///   [`unavailable_after`](Builder::unavailable_after), or after the response timeout if it makes one attempt only.
    /// * Each connection makes the checks of [`connect`](Builder::connect). Later calls return their errors. If the server refuses the
    ///   user, the password or a certificate, acquisitions fail with [`Error::Denied`](crate::Error::Denied) when their time is over,
    ///   because a password may be about to change. If this crate cannot use the server, they fail with [`Error::UnsupportedServer`](crate::Error::UnsupportedServer) at once.
    /// * [`Client::health`] is [`Disconnected`](crate::Health::Disconnected), with the reason. [`Client::ping`] waits for the
    ///   connection for at most the [response timeout](Builder::response_timeout).
    ///
    /// # Errors
    /// * [`Error::InvalidUrl`]: the URL does not name a server that this build can talk to.
    /// * [`Error::TimePaused`]: tokio's time is paused. Tests with paused time use [`in_memory`](Builder::in_memory).
    /// * The errors of [`in_memory`](Builder::in_memory): a setting has a value that cannot work, such as a PEM without a
    ///   certificate.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let builder = distlock::Client::builder().default_wait(Duration::from_secs(5));
    /// let client = builder.connect_lazy("redis://127.0.0.1:6379")?;
    /// // The server may start now. The first acquisition waits for it.
    /// let guard = client.lock("order:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(self, url: &str) -> Result<Client, Error> {
        let (client, backend) = self.with_servers(url)?;
        backend.begin_to_connect();
        Ok(client)
    }

    /// A client that is not connected yet, and its connections.
    fn with_servers(self, url: &str) -> Result<(Client, Arc<RedisBackend>), Error> {
        let url = Url::parse(url)?;
        let mut settings = url.settings.clone();
        settings.overlay(self.settings.clone());
        let config = self.config.clone().with(settings)?.validated()?;
        let make = move || {
            let identity = Identity::new();
            let clock = Clock::boot();
            let backend = RedisBackend::new(url.clone(), &identity, &config, clock.clone())?;
            let decorated =
                self.decorate(Arc::clone(&backend) as _, &clock, config.response_timeout);
            let registry = new_registry(identity, &config, clock, decorated);
            // Weak: the registry has the backend, so neither would ever be dropped.
            let of_client = Arc::downgrade(&registry);
            backend.set_stake(move || of_client.upgrade().is_some_and(|it| it.has_stake()));
            Ok::<_, Error>((registry, backend))
        };
        let (first, backend) = make()?;
        let again = move || {
            let (registry, backend) = make()?;
            // A client that only tells its health would send nothing, and stay without a connection.
            backend.begin_to_connect();
            Ok(registry)
        };
        let lives = Lives::new(first, Box::new(again));
        Ok((Client { lives }, backend))
    }
}

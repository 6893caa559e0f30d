//! The settings of the connections to servers.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use super::builder::Builder;
use crate::config::Replicas;
use crate::config::credentials::Credentials;
#[cfg(feature = "_tls")]
use crate::config::pem::{ClientPem, Pem};
use crate::config::source::Source;

/// Settings of the connections to Redis and Valkey.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets the user and the password of the servers, instead of those in the URL; none by default.
    ///
    /// They are used as they are: nothing is percent-encoded here. They do not apply to Sentinels, whose user and password
    /// are part of the URL. To read a password again before each connection, use
    /// [`credentials_from`](Builder::credentials_from). The last call of the two counts.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().credentials("shop", "a p@ssword");
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = Credentials::new(user, password);
        self.config.credentials = Some(Source::Fixed(credentials));
        self
    }

    /// Sets a function that gives the user and the password of the servers. The client calls it before each connection, so
    /// it uses a password that was changed.
    ///
    /// A client has up to three connections to each server. It calls the function when it makes one of them, and again for
    /// each new try. The function's time is a part of the [connect timeout](Builder::connect_timeout). It is also asked again
    /// each time the [`credentials_interval`](Builder::credentials_interval) has passed, 5 minutes by default, and what has
    /// changed is sent over the connections that stand, so that an expiring token is renewed. The nearest setting with a plain
    /// value is [`password_file`](Builder::password_file).
    ///
    /// # Errors
    /// An error or a panic of the function counts as a failed try to connect. The client tries again as in every outage. The text of the
    /// error becomes a part of [`Error::Unreachable`](crate::Error::Unreachable) for the first connection, and of
    /// [`Error::Unavailable`](crate::Error::Unavailable) later. The text should not contain the password.
    ///
    /// # Examples
    /// A password from a file that another program keeps up to date:
    ///
    /// ```no_run
    /// use distlock::{Client, Credentials};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = Client::builder().credentials_from(|| async {
    ///     // At once, and not by `tokio::fs`, which waits for a free thread of the runtime's pool for blocking calls.
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, std::io::Error>(Credentials::new("shop", password.trim_end()))
    /// });
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials_from<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.config.credentials = Some(Source::asked(source, |credentials| credentials));
        self
    }

    /// Sets how often the names of servers are looked up again while they are connected; 5 s by default, and never with zero.
    ///
    /// A name may be pointed at another server while the old one stays up: a Service of Kubernetes, a failover by DNS. The
    /// client goes there when three answers in a row did not have the address that it is connected to, and a server at one of
    /// the new addresses says that it is a master. Each hold is then looked for at the new server, and is lost if it is not
    /// there. So for at most some four of these intervals, clients that were started before and after the change may hold the
    /// same lock. A look-up that fails, finds nothing or does not end changes nothing. The client follows a name at most once
    /// a minute, and warns if its answers change more often.
    ///
    /// It applies to single servers, those of a [`Quorum`](crate::Quorum) among them, to Sentinels, and to the nodes of a cluster
    /// that the URL names. The client goes to another cluster if a node at a new address knows none of the present nodes. IP
    /// addresses, sockets and `localhost` are not looked up. One look-up of a name is under way at a time; it takes a thread of
    /// the runtime's pool for blocking calls. One that takes more than 1 s goes on beside those of other names. See [`guide::connections`](crate::guide::connections#names).
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().look_up_interval(Duration::from_secs(1));
    /// let client = builder.connect("redis://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn look_up_interval(mut self, interval: Duration) -> Self {
        self.settings.look_up_interval = Some(interval);
        self
    }

    /// Sets the file of the password for Sentinels, which is read again as that of
    /// [`password_file`](Builder::password_file) is; none by default.
    ///
    /// The user is `sentinel_user` in the URL, which may stand there without `sentinel_password`. Without one it is the default
    /// user.
    ///
    /// # Errors
    /// A file that cannot be read counts as a Sentinel that cannot be reached. A client of a URL without Sentinels is refused with
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig).
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().sentinel_password_file("/run/secrets/sentinel");
    /// let client = builder.connect("redis+sentinel://10.0.0.1,10.0.0.2/locks?sentinel_user=watcher").await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel_password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.sentinel_password_file = Some(path.into());
        self
    }

    /// Sets the file of the password, which is read again for each connection and each
    /// [`credentials_interval`](Builder::credentials_interval); none by default.
    ///
    /// White space at its end does not count. The user is that of the URL, which may stand there without a password, as in
    /// `redis://shop@host`. Without one it is the default user. [`credentials`](Builder::credentials) and
    /// [`credentials_from`](Builder::credentials_from) count more than the file.
    ///
    /// # Errors
    /// A file that cannot be read counts as a failed try to connect, as an error of
    /// [`credentials_from`](Builder::credentials_from) does.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().password_file("/run/secrets/redis");
    /// let client = builder.connect("redis://shop@locks.example.com").await?;
    /// # Ok(()) }
    /// ```
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.password_file = Some(path.into());
        self
    }

    /// Sets how often the function of [`credentials_from`](Builder::credentials_from), or the
    /// [`password_file`](Builder::password_file), is asked again for the connections that stand: at most a year, 5 minutes by
    /// default. Zero turns it off.
    ///
    /// Credentials that have changed are sent by AUTH over each connection, also over that for messages. If the server
    /// refuses them, a warning says so, and the connection keeps the rights that it has.
    ///
    /// # Errors
    /// A value of more than a year is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder()
    ///     .password_file("/run/secrets/redis")
    ///     .credentials_interval(Duration::from_secs(60));
    /// let client = builder.connect("redis://shop@locks.example.com").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials_interval(mut self, interval: Duration) -> Self {
        self.settings.credentials_interval = Some(interval);
        self
    }

    /// Sets how often each connection asks the server for a sign of life; 30 s by default, and never with zero.
    ///
    /// Servers (`timeout`), balancers and firewalls close connections that are idle for some minutes, and some of them do not
    /// tell. A PING keeps such a connection open, and finds out that it has ended before an acquisition needs it. Set less than
    /// the shortest of their times. A connection that ends while the client holds, waits for and releases nothing is replaced
    /// without a warning in the log.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().ping_interval(Duration::from_secs(10));
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.settings.ping_interval = Some(interval);
        self
    }

    /// Sets how long a connection may take, with TLS and the login: more than 0 and at most a year, 5 s by default.
    ///
    /// [`connect`](Builder::connect) tries again and again for this time. A client that was connected goes on without end,
    /// and gives each try this time. [`Duration::MAX`] counts as a year.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().connect_timeout(Duration::from_secs(1));
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = Some(timeout);
        self
    }

    /// Has each grant confirmed by so many replicas of its server, each time within `timeout`; by none by default. A number, or
    /// [`Replicas::Connected`] for as many as are connected at that moment.
    ///
    /// Redis copies data to replicas after it has answered, so a master that dies may take a grant with it, and its successor
    /// grants the same lock again. With this setting an acquisition ends only when so many replicas have the grant. If there
    /// are fewer within `timeout`, the grant is released, and the acquisition tries again within its wait. It holds for each
    /// kind of lock, semaphore and permit. It does not delay renewals, releases or other clients, and a lock that is handed
    /// over inside this client was confirmed before.
    ///
    /// With [`Replicas::Connected`] a grant has to be on all replicas that are online, and is given out without a confirmation if
    /// there are none. Redisson waits for as many by default, outside of a single server, but takes the grant if one of them
    /// confirms. The client asks the server by INFO how many there are, in a round trip more, and needs the right to INFO.
    ///
    /// One replica that has the grant helps only if that one becomes the next master. A number should be that of all
    /// replicas that may be promoted; then a lock is not available while one of them is away. See
    /// [`guide::failover`](crate::guide::failover) for what remains. In a cluster the replicas of the key's master count. The
    /// client has one connection more to each server, and needs the right to WAIT.
    ///
    /// A number is at least 1, and `timeout` between 1 ms and a year. It counts in whole milliseconds, and Redis checks it
    /// every 100 ms. It has no effect in memory.
    ///
    /// # Errors
    /// Values out of range are reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made. An
    /// acquisition that is not confirmed fails with [`Error::Unavailable`](crate::Error::Unavailable), at once if it does not
    /// wait, and otherwise after [`unavailable_after`](Builder::unavailable_after). Its text says how many replicas have
    /// confirmed, and how many were wanted. So it does for a server with fewer replicas.
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().replicas(2, Duration::from_millis(500));
    /// let client = builder.connect("redis+sentinel://h1,h2,h3/locks").await?;
    /// # Ok(()) }
    /// ```
    pub fn replicas(mut self, replicas: impl Into<Replicas>, timeout: Duration) -> Self {
        self.settings.replicas = Some(replicas.into());
        self.settings.replicas_timeout = Some(timeout);
        self
    }

    /// Has each grant confirmed from the append-only files as well, where the server has one; off by default. It goes with
    /// [`replicas`](Builder::replicas).
    ///
    /// The server and its replicas then answer when the grant is on their disks (WAITAOF, of Redis 7.2 and Valkey), so that it
    /// outlives a crash of all of them. Redisson does the same by default. Servers without an append-only file are asked by WAIT. The
    /// client needs the rights to WAITAOF and INFO.
    ///
    /// With `appendfsync everysec`, which is the servers' default, a grant waits for the next write to disk: about a second, and longer if
    /// the disk is busy. The timeout of `replicas` has to be longer than that. With `appendfsync always` the grant is on disk at once.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made: it is on without `replicas`. An acquisition at a
    /// server that has an append-only file and does not know WAITAOF fails with
    /// [`Error::UnsupportedServer`](crate::Error::UnsupportedServer).
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Replicas};
    ///
    /// let builder = Client::builder()
    ///     .replicas(Replicas::Connected, Duration::from_secs(3))
    ///     .replicas_on_disk(true);
    /// let client = builder.connect("redis+sentinel://h1,h2,h3/locks").await?;
    /// # Ok(()) }
    /// ```
    pub fn replicas_on_disk(mut self, on_disk: bool) -> Self {
        self.settings.replicas_on_disk = Some(on_disk);
        self
    }

    /// Takes no grants from a server that was started less than `grace` ago; zero, and so without effect, by default.
    ///
    /// A server that restarts without its data has forgotten its locks, and may grant one of them again before its holder has
    /// noticed. When the server has been up for the longest lease of any client, all those holds have ended. It matters above
    /// all for the servers of a [`Quorum`](crate::Quorum), where one that has forgotten its grants can complete a second
    /// majority. All clients of the server should have the setting.
    ///
    /// Until then acquisitions are tried again within their wait, and fail with
    /// [`Error::Unavailable`](crate::Error::Unavailable) after [`unavailable_after`](Builder::unavailable_after), or at once
    /// if they do not wait. Renewals and releases go on. The first start of a server counts, too. The server's word for how
    /// long it has been up is asked for once for each connection, and counts whole seconds, so the grace may last up to two
    /// seconds longer. A promoted replica was up before. It has no effect in memory.
    ///
    /// # Errors
    /// A value of more than a year is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made. A server that does not allow INFO refuses the client: [`Error::LoginDenied`](crate::Error::LoginDenied).
    ///
    /// # Examples
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().restart_grace(Duration::from_secs(30));
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn restart_grace(mut self, grace: Duration) -> Self {
        // A rule of tests/model: grace_is_as_long_as_the_longest_lease.
        self.settings.restart_grace = Some(grace);
        self
    }

    /// Sets the certificates of the authorities that the client trusts, as PEM; those of the system by default, or with the
    /// feature `tls-rustls-webpki-roots` those that Mozilla trusts.
    ///
    /// The PEM has one certificate or several. No other authority is trusted then. It applies to servers and Sentinels. The URL
    /// says which connections have TLS, by `rediss`.
    ///
    /// # Errors
    /// A PEM without a certificate is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with
    /// TLS is made, before anything is sent. So is a PEM, a file or a function of this sort beside a URL without TLS, where it
    /// would have no effect.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let authority = std::fs::read("/etc/shop/ca.pem")?;
    /// let builder = distlock::Client::builder().tls_ca_pem(authority);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.config.tls.ca_pem = Some(Source::Fixed(Pem::new(pem)));
        self
    }

    /// Sets the client's own certificate and its private key, each as PEM; none by default.
    ///
    /// Servers that are set to `tls-auth-clients yes` ask for it (mutual TLS). Certificates of intermediate authorities
    /// follow the client's own in the same PEM. With `tls-rustls` the key may be in PKCS #8, PKCS #1 or SEC1; with
    /// `tls-native-tls` in PKCS #8.
    ///
    /// # Errors
    /// A PEM without a certificate or without a key, and a key that is not the certificate's, are reported as
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with TLS is made, before anything is sent. The
    /// error does not contain the key.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (certificate, key) = (std::fs::read("shop.pem")?, std::fs::read("shop.key")?);
    /// let builder = distlock::Client::builder().tls_client_pem(certificate, key);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_client_pem(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.config.tls.client_pem = Some(Source::Fixed(ClientPem::new(certificate, key)));
        self
    }

    /// Sets a function that gives the certificates of the authorities, as [`tls_ca_pem`](Builder::tls_ca_pem) takes them. The
    /// client calls it before each connection with TLS.
    ///
    /// The nearest setting with a plain value is [`tls_ca_file`](Builder::tls_ca_file).
    ///
    /// # Errors
    /// An error or a panic of the function, and a PEM that cannot be used, is the failure of that connection. The client tries
    /// again as in every outage.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// async fn from_vault() -> Result<Vec<u8>, std::io::Error> {
    /// #   Ok(Vec::new())
    /// }
    /// let builder = distlock::Client::builder().tls_ca_pem_from(from_vault);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_ca_pem_from<F, Fut, P, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<P, E>> + Send + 'static,
        P: Into<Vec<u8>> + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.config.tls.ca_pem = Some(Source::asked(source, Pem::new));
        self
    }

    /// Sets a function that gives the client's own certificate and its private key, as
    /// [`tls_client_pem`](Builder::tls_client_pem) takes them. The client calls it before each connection with TLS, so a
    /// certificate that lives for an hour can be replaced in time.
    ///
    /// The nearest setting with plain values is [`tls_client_files`](Builder::tls_client_files).
    ///
    /// # Errors
    /// An error or a panic of the function, and a PEM that cannot be used, is the failure of that connection. The client tries
    /// again as in every outage. Its text should not contain the key.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// async fn from_vault() -> Result<(Vec<u8>, Vec<u8>), std::io::Error> {
    /// #   Ok((Vec::new(), Vec::new()))
    /// }
    /// let builder = distlock::Client::builder().tls_client_pem_from(from_vault);
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_tls")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
    )]
    pub fn tls_client_pem_from<F, Fut, C, K, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(C, K), E>> + Send + 'static,
        C: Into<Vec<u8>> + 'static,
        K: Into<Vec<u8>> + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let make = |(certificate, key)| ClientPem::new(certificate, key);
        self.config.tls.client_pem = Some(Source::asked(source, make));
        self
    }

    /// Sets the file of the certificates of the authorities, as [`tls_ca_pem`](Builder::tls_ca_pem) takes them. The client reads
    /// it again for each connection with TLS, so the file may be replaced while the program runs.
    ///
    /// [`tls_ca_pem`](Builder::tls_ca_pem) and its function count more than the file.
    ///
    /// # Errors
    /// A file that cannot be read or used is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with
    /// TLS is made. Later it is the failure of that connection, and the client tries again.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_ca_file("/etc/shop/ca.pem");
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.tls_ca_file = Some(path.into());
        self
    }

    /// Sets the files of the client's own certificate and of its private key, as [`tls_client_pem`](Builder::tls_client_pem)
    /// takes them. The client reads them again for each connection with TLS, so another program may replace them before the
    /// certificate expires.
    ///
    /// If the two files do not belong together, because one of them is about to be replaced, the connection fails and the
    /// client tries again. [`tls_client_pem`](Builder::tls_client_pem) and its function count more than the files.
    ///
    /// # Errors
    /// Files that cannot be read or used are reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with
    /// TLS is made. Later they are the failure of that connection.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_client_files("/run/tls/shop.pem", "/run/tls/shop.key");
    /// let client = builder.connect("rediss://locks.example.com:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_client_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.settings.tls_client_cert_file = Some(certificate.into());
        self.settings.tls_client_key_file = Some(key.into());
        self
    }

    /// Sets the name that the servers' certificates have, instead of the host of each server's address.
    ///
    /// Use it where the client reaches a server by another name than the one in its certificate: through a tunnel or a port
    /// forward, or by the IP addresses that the nodes of a cluster announce. The client sends this name to the server (SNI), and
    /// checks the certificate against it. It applies to Sentinels as well.
    ///
    /// # Errors
    /// A text that is neither a host name nor an IP address is reported as
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a client with TLS is made, and so is any text beside a URL without
    /// TLS.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().tls_server_name("locks.example.com");
    /// let client = builder.connect("rediss://127.0.0.1:16379").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.settings.tls_server_name = Some(name.into());
        self
    }
}

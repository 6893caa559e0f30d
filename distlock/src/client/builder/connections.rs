//! The settings of the connections to servers, and of what a server has to promise.

use std::time::Duration;

use super::Builder;
use crate::config::{PubSub, Replicas};

/// Settings of the connections to Redis and Valkey.
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
impl Builder {
    /// Sets how often the names of servers are looked up again while they are connected; 5 s by default, and never with zero.
    ///
    /// A name may be pointed at another server while the old one stays up, for example by a Service of Kubernetes or a failover
    /// by DNS. The client changes to the new server when three answers in a row lack the address that it is connected to, and a
    /// server at one of the new addresses says that it is a master. The client then looks for each hold at the new server. A hold
    /// that is not there is lost. For about four of these intervals, a client that was started before the change and one that was
    /// started after it may therefore hold the same lock. A look-up that fails, finds nothing or does not end changes nothing.
    /// The client follows a name at most once a minute, and logs a warning if the answers change more often.
    ///
    /// The setting applies to single servers, including those of a [`Quorum`](crate::Quorum), to Sentinels, and to the nodes of a
    /// cluster that the URL names. The client changes to another cluster if a node at a new address knows none of the present
    /// nodes. IP addresses, sockets and `localhost` are not looked up. A name has one look-up at a time, which uses a thread of
    /// the runtime's pool for blocking calls. Look-ups of other names do not wait for one that takes more than 1 s. See
    /// [`guide::connections`](crate::guide::connections#names).
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

    /// Sets how often each connection asks the server for a sign of life; 30 s by default, and never with zero.
    ///
    /// Servers (`timeout`), load balancers and firewalls close connections that are idle for some minutes, and some of them do
    /// not notify the client. A PING keeps the connection open. If the connection has ended, the PING finds that out before an
    /// acquisition needs it. Set an interval below the shortest of these timeouts. If a connection ends while the client holds
    /// nothing, waits for nothing and releases nothing, the client replaces it without a warning in the log.
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
    /// [`connect`](Builder::connect) repeats its attempts for this time. A client that was connected once repeats them without
    /// end, and each attempt may take this time. [`Duration::MAX`] counts as a year.
    ///
    /// On a slow network this has to be more than three times what a connection takes if there are several servers. Behind
    /// Sentinels, an attempt connects to a Sentinel, asks the server over a short connection whether it is the master, and
    /// connects to it. Each of the first two has half of this time. To open a cluster, the client connects to a node of the URL, reads
    /// the map, and connects to a node with slots. Each of the three has this time, so `connect` to a cluster may take three times as long.
    /// If the first node of the URL hangs, the next ones are asked beside it.
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

    /// Sets how many replicas of the server must confirm each grant within `timeout`; none by default. `replicas` is a number, or
    /// [`Replicas::Connected`] for all that are connected at that moment.
    ///
    /// Redis copies data to replicas after it has answered. If a master dies before that, the grant is lost with it, and the next
    /// master grants the same lock again. With this setting an acquisition completes only when that many replicas have the grant.
    /// If fewer have it within `timeout`, the client releases the grant, and the acquisition tries again within its wait. The
    /// setting applies to every kind of lock, semaphore and permit. It does not delay renewals, releases or other clients. A lock
    /// that is handed over inside this client was confirmed before, and is not confirmed again. Neither are
    /// [`extend`](crate::Guard::extend) and [`attach`](crate::Client::attach). A master that is cut off from its replicas goes on to
    /// renew a hold, and its replicas forget it when the last lease that they heard of ends. A replica that is promoted after that
    /// grants the lock again. `min-replicas-to-write` on the servers makes this rarer, and a fencing token closes the gap.
    ///
    /// With [`Replicas::Connected`], all replicas that are online must have the grant. Without any replica, no confirmation is
    /// needed. Redisson waits for the same number by default, except with a single server, but accepts the grant if one of them
    /// confirms. The client asks the server by INFO how many replicas there are. That takes another round trip and the right to
    /// INFO.
    ///
    /// A replica that has the grant helps only if it becomes the next master. The number should therefore include all replicas
    /// that may be promoted. The price is that no lock is available while one of them is away. See
    /// [`guide::failover`](crate::guide::failover) for what can still go wrong. In a cluster the replicas of the key's master
    /// count. While the slot of a free key is on its way to another node, no grant of the key is confirmed. The client opens another connection to each server, and needs the right to WAIT.
    ///
    /// A number is at least 1, and `timeout` between 1 ms and a year. The timeout counts in whole milliseconds, and Redis checks
    /// it every 100 ms. The setting has no effect in memory.
    ///
    /// # Errors
    /// Values out of range are reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made. An
    /// acquisition that is not confirmed fails with [`Error::Unavailable`](crate::Error::Unavailable), at once if it does not
    /// wait, and otherwise after [`unavailable_after`](Builder::unavailable_after). The text of the error says how many replicas
    /// have confirmed, and how many were required. The same error is returned if the server has fewer replicas.
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

    /// Sets whether each grant must also be in the append-only files of the server and its replicas, where they have one; off by
    /// default. It requires [`replicas`](Builder::replicas).
    ///
    /// The server and its replicas then answer when the grant is on their disks (WAITAOF, of Redis 7.2 and Valkey). The grant
    /// survives a crash of all of them. Redisson 3.46 to 3.52 does the same by default. Servers without an append-only file are asked by WAIT.
    /// The client needs the rights to WAITAOF and INFO.
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
    /// A server that restarts without its data has forgotten its locks. It may grant one of them again before the former holder
    /// notices. Once the server has been up for the longest lease of any client, all former holds have ended. The setting matters
    /// most for the servers of a [`Quorum`](crate::Quorum): a server that has forgotten its grants can complete a second
    /// majority. All clients of the server should have the same setting.
    ///
    /// Until then the client repeats acquisitions within their wait. They fail with
    /// [`Error::Unavailable`](crate::Error::Unavailable) after [`unavailable_after`](Builder::unavailable_after), or at once if
    /// they do not wait. Renewals and releases continue. The first start of a server counts as a restart. The client asks the
    /// server once per connection how long it has been up. The answer is in whole seconds, so the grace may last up to two
    /// seconds longer. A replica that is promoted has been up before, so the grace does not apply to it. The setting has no
    /// effect in memory.
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

    /// Sets `TCP_NODELAY` on the connection for commands; off by default, so that concurrent commands share packets.
    ///
    /// It may shorten the time that a single task needs to acquire and release over a network. On the same machine it
    /// does not.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().nodelay(true).connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn nodelay(mut self, nodelay: bool) -> Self {
        self.settings.nodelay = Some(nodelay);
        self
    }

    /// Sets whether servers tell at once that a hold may be lost; on by default.
    ///
    /// With it, [`lost`](crate::Guard::lost) completes within a round trip after somebody has deleted the key, freed it by force,
    /// or emptied the server, and not at the next renewal. The client has the server track the keys of holds that are older than
    /// a second (`CLIENT TRACKING`). Shorter holds cost nothing. Each older one costs a small read, which up to 100 of them share.
    /// Each script that renews such holds costs two more commands in the same pipeline, `CLIENT CACHING` and `EXISTS`. Keys that
    /// several owners share are read at most once a second. If the server or the rights of the user do not allow it, the client works
    /// without it, and `distlock doctor` says so. The page [`limits`](crate::guide::limits) has the details.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().track_holds(false).connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub fn track_holds(mut self, track_holds: bool) -> Self {
        self.settings.track_holds = Some(track_holds);
        self
    }

    /// Sets how clients of a cluster tell each other that a lock is free; [`PubSub::Auto`] by default. Clients of a single
    /// server ignore it.
    ///
    /// All clients that use the same locks should have the same setting. A client that misses the message of a release finds out
    /// when the lease ends, or when it checks the key after about five seconds.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, PubSub};
    ///
    /// // Some services still use a version of Redisson before 3.22.
    /// let client = Client::builder()
    ///     .pub_sub(PubSub::Both)
    ///     .connect("redis+cluster://10.0.0.1:6379,10.0.0.2:6379")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn pub_sub(mut self, pub_sub: PubSub) -> Self {
        self.settings.pub_sub = Some(pub_sub);
        self
    }
}

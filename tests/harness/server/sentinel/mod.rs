//! A master, its replicas and the Sentinels that watch them, for one test.
//!
//! # Invariants
//! 1. A set that was started is stable: see [`SentinelSet::wait_until_stable`].
//! 2. All its processes end with the value and with this test process (see [`crate::guardian`]).
//! 3. Each server and each Sentinel keeps its port, its directory and its index over `kill` and `restart`.
//!
//! A server that was killed and one that stands still are left out of account by all that waits, and so are Sentinels.

mod builder;
mod view;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::eventually::{eventually, eventually_eq};
use crate::proxy::Proxy;

use super::login::Login;
use super::{ADMIN, RedisServer};
use crate::rights::PASSWORD;

pub use builder::Builder;

/// The name under which the Sentinels know the master.
pub const SERVICE: &str = "locks";

/// A set that starts is stable after 1.5 s, and after a kill within 5 s. A server that returns from a planned failover or
/// from a stop is made a replica after 10 s.
const STABLE_DEADLINE: Duration = Duration::from_secs(60);

/// Three servers and three Sentinels, all ended by `Drop`.
#[derive(Debug)]
pub struct SentinelSet {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    // One for each server, or none at all.
    proxies: Vec<Arc<Proxy>>,
    // The ports of the servers that the Sentinels name: their own, those for TLS, or those of their proxies.
    announced: Vec<u16>,
    // The ports of the Sentinels that they name to each other.
    announced_sentinels: Vec<u16>,
    sentinel_login: Option<Login>,
}

impl SentinelSet {
    /// Starts a set without passwords and without proxies.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// For a set with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The set that all tests of this process share, and that ends with the process.
    ///
    /// It is for tests that only use keys and channels of their own: nobody may stop a server of it, make it fail over, or
    /// count all of its keys and connections. A server that is late does not count as failed. Nobody gets in without a
    /// password: those of the URL may do anything, and tests [create](RedisServer::set_user) others.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<SentinelSet> = OnceCell::const_new();
        let builder = Self::builder()
            .patient()
            .credentials(ADMIN[0], ADMIN[1])
            .sentinel_credentials(ADMIN[0], ADMIN[1]);
        SHARED.get_or_init(|| builder.start()).await
    }

    /// URL for a client: all Sentinels, the service, and the users where there are any.
    #[must_use]
    pub fn url(&self) -> String {
        let login = self.servers[0]
            .login()
            .map(Login::in_url)
            .unwrap_or_default();
        let query = Self::query(self.sentinel_login.as_ref());
        format!("redis+sentinel://{login}{}/{SERVICE}{query}", self.hosts())
    }

    /// URL for a client over TLS: the ports for TLS of all Sentinels, and the service.
    ///
    /// # Panics
    /// If the Sentinels were started without TLS.
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss+sentinel://{}/{SERVICE}", self.tls_hosts())
    }

    /// The ports for TLS of all Sentinels, as a URL names them.
    ///
    /// # Panics
    /// As [`SentinelSet::tls_url`].
    #[must_use]
    pub fn tls_hosts(&self) -> String {
        let sentinels = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.tls_addr().to_string());
        sentinels.collect::<Vec<_>>().join(",")
    }

    /// URL for a client with a user that a test has [created](RedisServer::set_user) on the servers and on the Sentinels.
    #[must_use]
    pub fn url_of_user(&self, user: &str) -> String {
        let login = Login::new(user, PASSWORD);
        let (login, query) = (login.in_url(), Self::query(Some(&login)));
        format!("redis+sentinel://{login}{}/{SERVICE}{query}", self.hosts())
    }

    /// The plain ports of all Sentinels, as a URL names them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let sentinels = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.addr().to_string());
        sentinels.collect::<Vec<_>>().join(",")
    }

    fn query(login: Option<&Login>) -> String {
        let query = login.map(|login| {
            let [user, password] = login.encoded();
            format!("?sentinel_user={user}&sentinel_password={password}")
        });
        query.unwrap_or_default()
    }

    /// A server: to ask it, or to look at its process.
    #[must_use]
    pub fn server(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    /// A server: to kill, stop and restart it.
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// A Sentinel: to ask it, or to look at its process.
    #[must_use]
    pub fn sentinel(&self, index: usize) -> &RedisServer {
        &self.sentinels[index]
    }

    /// A Sentinel: to kill, stop and restart it.
    ///
    /// One that stood still for more than two seconds distrusts its clock when it goes on, and does nothing for another
    /// 30 s: where a test needs it again, kill it and restart it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.sentinels[index]
    }

    fn processes(&mut self) -> Vec<&mut RedisServer> {
        self.servers.iter_mut().chain(&mut self.sentinels).collect()
    }

    /// The proxy in front of a server. A share of it injects faults of the wire while the set is borrowed.
    ///
    /// # Panics
    /// If the set was started without proxies.
    #[must_use]
    pub fn proxy(&self, index: usize) -> &Arc<Proxy> {
        let proxy = self.proxies.get(index);
        proxy.expect("the set was started with proxies")
    }

    /// The index of the master, as soon as all running Sentinels name the same one.
    ///
    /// # Panics
    /// If they do not agree in time.
    pub async fn master(&self) -> usize {
        let agreed = || self.agreed_master();
        eventually(STABLE_DEADLINE, "the Sentinels to agree", agreed).await
    }

    /// The index of the master, as soon as all running Sentinels name another one than `old`.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub async fn master_after(&self, old: usize) -> usize {
        let another = async || match self.agreed_master().await {
            Ok(master) if master == old => Err(format!("they name {old}")),
            answer => answer,
        };
        let what = format!("the Sentinels to name another master than {old}");
        eventually(STABLE_DEADLINE, what, another).await
    }

    /// A planned failover (`SENTINEL FAILOVER`). Returns the index of the new master when all running Sentinels name it.
    ///
    /// The old master goes on taking writes for ten seconds.
    ///
    /// # Panics
    /// If no Sentinel begins it, or if it does not end in time.
    pub async fn fail_over(&self) -> usize {
        let old = self.master().await;
        let begins = async || {
            let sentinel = self.running_sentinels().next();
            let sentinel = sentinel.ok_or_else(|| "no Sentinel runs".to_owned())?;
            // Refused while another failover is under way, and while no replica is known to be good.
            let failover = ["SENTINEL", "FAILOVER", SERVICE];
            sentinel.try_text::<()>(&failover).await
        };
        eventually(STABLE_DEADLINE, "a planned failover to begin", begins).await;
        self.master_after(old).await
    }

    /// Kills the master (SIGKILL), and returns its index.
    ///
    /// # Panics
    /// As [`SentinelSet::master`].
    pub async fn kill_master(&mut self) -> usize {
        let master = self.master().await;
        self.servers[master].kill();
        master
    }

    /// Waits until all running servers have a key: a failover keeps it, whichever replica is promoted.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub async fn wait_until_all_have(&self, key: &str) {
        for server in self.servers.iter().filter(|server| server.runs()) {
            let keys = async || match server.keys().await {
                keys if keys.iter().any(|one| one == key) => Ok(()),
                keys => Err(keys),
            };
            eventually(STABLE_DEADLINE, format!("{key:?} on each server"), keys).await;
        }
    }

    /// Cuts all replicas off the master: what is written from now on is lost with it.
    ///
    /// Stops their processes and ends their connections at the master. Without the latter, a stopped replica would still
    /// read what the master had sent when it continues.
    ///
    /// # Panics
    /// If the master does not let go of them.
    pub async fn cut_replicas(&mut self) {
        let master = self.master().await;
        for (index, server) in self.servers.iter_mut().enumerate() {
            if index != master {
                server.stop();
            }
        }
        let master = &self.servers[master];
        master.kill_clients("replica").await;
        let connected = async || master.info("replication").await["connected_slaves"].clone();
        eventually_eq(
            STABLE_DEADLINE,
            "replicas of the master",
            "0".to_owned(),
            connected,
        )
        .await;
    }

    /// Lets all servers that were stopped go on: they connect to the master again, or fail over where it is gone.
    pub fn reconnect_replicas(&mut self) {
        for server in &mut self.servers {
            server.cont();
        }
    }

    /// Waits until nothing is under way: all running Sentinels name the same master and see each other, the master runs,
    /// and all other running servers are its replicas with a link that is up.
    ///
    /// # Panics
    /// If that does not happen in time, with what was missing last.
    pub async fn wait_until_stable(&self) {
        let stable = || self.stable_master();
        eventually(STABLE_DEADLINE, "a stable set", stable).await;
    }
}

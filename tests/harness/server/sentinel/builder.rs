//! How a set of servers with Sentinels starts.
//!
//! The Sentinels find each other and the replicas in their files. By themselves they would need two seconds for that.

use std::ffi::OsString;
use std::sync::Arc;

use crate::certificates::Authority;
use crate::proxy::Proxy;
use crate::server::launch::{PORT_ATTEMPTS, all_ports_taken, all_serve};
use crate::server::login::Login;
use crate::server::tls::SetTls;
use crate::server::{self, RedisServer, free_port, loopback};

use super::{SERVICE, SentinelSet};

/// One master and its replicas.
const SERVERS: usize = 3;

/// Two of them are a majority.
const SENTINELS: usize = 3;

/// What to start a [`SentinelSet`] with.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    server: server::Builder,
    login: Option<Login>,
    sentinel_login: Option<Login>,
    sentinel_settings: Vec<[String; 2]>,
    proxies: bool,
    tls: Option<SetTls>,
    sentinel_tls: Option<SetTls>,
}

impl Builder {
    /// One more setting of the servers, such as `("--maxclients", "5")`. Wins over the harness's own.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.server = self.server.arg(name, value);
        self
    }

    /// One more setting of the Sentinels about the service, such as `("down-after-milliseconds", "2000")`. Wins over the
    /// harness's own.
    pub fn sentinel_setting(mut self, name: &str, value: &str) -> Self {
        let setting = [name, value].map(str::to_owned);
        self.sentinel_settings.push(setting);
        self
    }

    /// A server that is late for some seconds does not count as failed. For tests in which no other server has to take over.
    pub fn patient(self) -> Self {
        self.sentinel_setting("down-after-milliseconds", "15000")
    }

    /// The servers let only this user in. The Sentinels and the replicas know the password.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.server = self.server.credentials(user, password);
        self.login = Some(Login::new(user, password));
        self
    }

    /// The Sentinels let only this user in.
    pub fn sentinel_credentials(mut self, user: &str, password: &str) -> Self {
        self.sentinel_login = Some(Login::new(user, password));
        self
    }

    /// Whether a proxy stands in front of each server. The Sentinels name the proxies, so that clients, replicas and
    /// Sentinels connect through them. The proxies end with the runtime that starts them.
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// All servers and Sentinels speak TLS, among each other as well, with a certificate of this authority. For clients the
    /// plain ports stay open, but the Sentinels name the others alone. Not for a set with proxies.
    pub fn tls(mut self, authority: &Authority) -> Self {
        let tls = SetTls::new(authority, false);
        (self.tls, self.sentinel_tls) = (Some(tls.clone()), Some(tls));
        self
    }

    /// As [`Builder::tls`]. In addition, clients on the ports for TLS need a certificate of that authority.
    pub fn mutual_tls(mut self, authority: &Authority) -> Self {
        let tls = SetTls::new(authority, true);
        (self.tls, self.sentinel_tls) = (Some(tls.clone()), Some(tls));
        self
    }

    /// The Sentinels speak TLS to clients, on a port that they do not name. All else is plain.
    pub fn sentinel_tls(mut self, authority: &Authority) -> Self {
        self.sentinel_tls = Some(SetTls::new(authority, false));
        self
    }

    /// Starts the servers, then the Sentinels, and waits until the set is
    /// [stable](SentinelSet::wait_until_stable).
    ///
    /// # Panics
    /// If a process does not start, or if the set does not become stable in time.
    pub async fn start(self) -> SentinelSet {
        for _ in 0..PORT_ATTEMPTS {
            let mut set = self.launch_servers().await;
            // Before the servers answer, their Sentinels would take them for dead.
            if !all_serve(set.processes()).await {
                continue;
            }
            self.launch_sentinels(&mut set);
            if all_serve(set.processes()).await {
                set.wait_until_stable().await;
                return set;
            }
        }
        all_ports_taken()
    }

    async fn launch_servers(&self) -> SentinelSet {
        let ports: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
        let mut proxies = Vec::new();
        if self.proxies {
            for port in &ports {
                proxies.push(Arc::new(Proxy::start(loopback(*port)).await));
            }
        }
        let announced: Vec<u16> = if self.proxies {
            proxies.iter().map(|proxy| proxy.addr().port()).collect()
        } else if self.tls.is_some() {
            (0..SERVERS).map(|_| free_port()).collect()
        } else {
            ports.clone()
        };
        let servers = (0..SERVERS).map(|index| self.launch_server(index, &ports, &announced));
        SentinelSet {
            servers: servers.collect(),
            sentinels: Vec::new(),
            proxies,
            announced,
            announced_sentinels: Vec::new(),
            sentinel_login: self.sentinel_login.clone(),
        }
    }

    fn launch_sentinels(&self, set: &mut SentinelSet) {
        let ports = || -> Vec<u16> { (0..SENTINELS).map(|_| free_port()).collect() };
        let (plain, tls) = (ports(), ports());
        let announced = if self.tls.is_some() { &tls } else { &plain };
        let sentinels = (0..SENTINELS).map(|index| {
            let ports = [plain[index], tls[index]];
            self.launch_sentinel(index, ports, announced, &set.announced)
        });
        set.sentinels = sentinels.collect();
        set.announced_sentinels.clone_from(announced);
    }

    /// The first server is the master.
    fn launch_server(&self, index: usize, ports: &[u16], announced: &[u16]) -> RedisServer {
        let mut server = RedisServer::builder()
            .arg("--replica-announce-ip", "127.0.0.1")
            .arg("--replica-announce-port", announced[index].to_string())
            .arg("--repl-diskless-sync", "yes")
            .arg("--repl-diskless-sync-delay", "0");
        if let Some(login) = &self.login {
            server = server
                .arg("--masteruser", &login.user)
                .arg("--masterauth", &login.password);
        }
        if index > 0 {
            let master = format!("127.0.0.1 {}", announced[0]);
            server = server.arg("--replicaof", master);
        }
        if let Some(tls) = &self.tls {
            server = server.tls_of(tls, announced[index], true);
        }
        server.followed_by(&self.server).launch(ports[index])
    }

    /// A Sentinel with a plain port and one for TLS.
    fn launch_sentinel(
        &self,
        index: usize,
        [port, tls_port]: [u16; 2],
        announced_sentinels: &[u16],
        announced: &[u16],
    ) -> RedisServer {
        let mut lines = vec![
            format!("sentinel myid {}", id(index)),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {} 2", announced[0]),
        ];
        let mut set = |name: &str, value: &str| {
            lines.push(format!("sentinel {name} {SERVICE} {value}"));
        };
        // A machine that stands still for a second must not fail a server.
        set("down-after-milliseconds", "2500");
        set("failover-timeout", "3000");
        set("parallel-syncs", "2");
        if let Some(login) = &self.login {
            set("auth-user", &login.user);
            set("auth-pass", &login.password);
        }
        for [name, value] in &self.sentinel_settings {
            set(name, value);
        }
        for port in &announced[1..] {
            set("known-replica", &format!("127.0.0.1 {port}"));
        }
        let others = announced_sentinels.iter().enumerate();
        for (other, port) in others.filter(|(other, _)| *other != index) {
            set("known-sentinel", &format!("127.0.0.1 {port} {}", id(other)));
        }
        let mut sentinel = RedisServer::builder();
        if let Some(Login { user, password }) = &self.sentinel_login {
            sentinel = sentinel.credentials(user, password);
            lines.push(format!("sentinel sentinel-user {user}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        if let Some(tls) = &self.sentinel_tls {
            sentinel = sentinel.tls_of(tls, tls_port, self.tls.is_some());
        }
        sentinel.sentinel(lines).launch(port)
    }
}

/// What a Sentinel is called among the others.
fn id(index: usize) -> String {
    format!("{:040x}", index + 1)
}

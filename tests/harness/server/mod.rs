//! A real Redis server that one test owns.
//!
//! # Invariants
//! 1. A [`RedisServer`] speaks only for the process it started: "ready" means that PING is
//!    answered and that the answering process has our pid. A stranger on the port is not ours.
//! 2. The process ends with the value and with this test process (see [`crate::guardian`]).
//! 3. With the append-only file on, what was answered is in the file: a kill loses nothing.
//! 4. The port stays the same over `kill` and `restart`, and so does the directory.
//!
//! The program is `redis-server` from the path, or what `DISTLOCK_TEST_SERVER` names; a script in
//! its place must `exec` the server, or the pids differ.

pub mod cluster;
mod inspect;
mod launch;
mod listeners;
mod log_time;
mod login;
mod port;
pub mod sentinel;
mod tls;
mod users;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::eventually::Patience;
use crate::guardian::{Guarded, scratch};

use launch::{LOG, NotReady, PORT_ATTEMPTS, all_ports_taken, all_serve, launch, program};
use login::Login;
use tls::TlsPort;

pub use cluster::RedisCluster;
pub use inspect::ClientLine;
pub(crate) use inspect::client_lines;
pub use listeners::listened;
pub use port::{free_port, loopback};
pub use sentinel::SentinelSet;

/// Client name of the harness's own connections, by which the leak check knows them.
pub const HARNESS_NAME: &str = "distlock-tests";

/// A start takes some 20 ms; this is for a machine that does much else.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// For one question to a server that starts. Short, for it may be a stranger who never answers,
/// while ours has given up already.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than any pause that a test puts on a server, so that a test's own questions get through.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The administrator of a server on which tests with few rights connect. Every login there needs a password.
const ADMIN: [&str; 2] = ["harness", "harness-password"];

/// Exit status of a shell that cannot find the program.
const NOT_FOUND: i32 = 127;

/// What the server logs before it gives up on a port.
const TAKEN: &str = "Address already in use";

/// A server process on a loopback port, ended by `Drop`.
#[derive(Debug)]
pub struct RedisServer {
    // Before the directory, so that the process has ended when the files are removed.
    process: Guarded,
    options: Builder,
    port: u16,
    dir: TempDir,
}

/// What to start a [`RedisServer`] with.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    appendonly: bool,
    login: Option<Login>,
    // What a Sentinel's file contains at first; a data server has none.
    sentinel: Option<Vec<String>>,
    tls: Option<TlsPort>,
    args: Vec<OsString>,
}

impl Builder {
    /// Whether data survives a kill. Off by default: a server that was killed comes back empty.
    pub fn appendonly(mut self, on: bool) -> Self {
        self.appendonly = on;
        self
    }

    /// One more setting, such as `("--maxclients", "5")`. Goes after ours, and so wins.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let value = value.into();
        self.args.push(name.into());
        match value.to_str() {
            // Servers before version 7 want the words one by one.
            Some(words) if words.contains(' ') => {
                self.args.extend(words.split(' ').map(OsString::from));
            }
            _ => self.args.push(value),
        }
        self
    }

    /// Only this user may do anything, and with this password. The server's URL contains both.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login::new(user, password));
        self
    }

    /// Nobody gets in but the harness, and the users that a test [creates](RedisServer::set_user).
    pub fn without_default_user(self) -> Self {
        let [user, password] = ADMIN;
        self.credentials(user, password)
    }

    /// A Sentinel with these lines in its file, and not a server of data.
    pub fn sentinel(mut self, lines: Vec<String>) -> Self {
        self.sentinel = Some(lines);
        self
    }

    /// With the settings of another one as well. Where both say something, the other one wins.
    fn followed_by(mut self, other: &Self) -> Self {
        self.appendonly |= other.appendonly;
        self.login = other.login.clone().or(self.login);
        self.args.extend_from_slice(&other.args);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If the program is missing, refuses its settings or does not answer in time; with its log.
    pub async fn start(self) -> RedisServer {
        let mut options = self;
        for _ in 0..PORT_ATTEMPTS {
            let mut server = options.clone().launch(free_port());
            if all_serve(vec![&mut server]).await {
                return server;
            }
            if let Some(tls) = &mut options.tls {
                tls.move_on();
            }
        }
        all_ports_taken()
    }

    /// Starts the process, and does not wait.
    fn launch(self, port: u16) -> RedisServer {
        let dir = scratch();
        RedisServer {
            process: launch(&self, port, dir.path()),
            options: self,
            port,
            dir,
        }
    }
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// For a server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Port, the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Address for a proxy's target.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// URL for a client, without options.
    #[must_use]
    pub fn url(&self) -> String {
        let login = self.login().map(Login::in_url);
        format!("redis://{}{}", login.unwrap_or_default(), self.addr())
    }

    fn login(&self) -> Option<&Login> {
        self.options.login.as_ref()
    }

    /// Process id of the server that runs now, or ran last.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The server's own directory, removed with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the server has logged since the first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// When the server logged a text, in nanoseconds of [`monotonic_nanos`](crate::pulse::monotonic_nanos). For servers that
    /// were started in the last ten minutes.
    #[must_use]
    pub fn logged(&self, text: &str) -> Vec<(u64, String)> {
        log_time::of_lines(&self.log(), text)
    }

    /// Whether the process runs: it was neither killed nor stopped, as far as the harness knows.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.process.runs()
    }

    /// SIGKILL: no goodbye, nothing saved. On return the process has ended.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: connections stay open and accept bytes, nothing is answered.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// SIGCONT: what had arrived meanwhile is executed now.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Starts the server again on its port and in its directory, after a kill if it still runs.
    ///
    /// Keys come back if it was started with [`Builder::appendonly`]. Otherwise it has what it last saved by SAVE, or received from
    /// its master as a replica, which may be long ago.
    ///
    /// # Panics
    /// If it does not come back in time, with its log.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = launch(&self.options, self.port, self.dir.path());
        match self.ready().await {
            Ok(()) => {}
            Err(NotReady::PortTaken) => panic!("port {} was taken by somebody else", self.port),
            Err(NotReady::Failed(why)) => panic!("{why}"),
        }
    }

    /// As [`restart`](Self::restart), without the data that it saved by SAVE or received as a replica.
    ///
    /// # Panics
    /// As [`restart`](Self::restart).
    pub async fn restart_empty(&mut self) {
        self.kill();
        let copy = self.dir.path().join("dump.rdb");
        if copy.exists() {
            fs::remove_file(copy).expect("a file of ours can be deleted");
        }
        self.restart().await;
    }

    /// A client for this server, RESP2.
    ///
    /// # Panics
    /// Never: the URL is ours.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("our own URL parses")
    }

    /// A connection of the harness: it is patient, and the leak check does not count it.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn connection(&self) -> MultiplexedConnection {
        match self.try_connection().await {
            Ok(connection) => connection,
            Err(error) => panic!("no connection to {}: {error}", self.url()),
        }
    }

    pub(crate) async fn try_connection(&self) -> RedisResult<MultiplexedConnection> {
        Self::connection_of(&self.client()).await
    }

    /// As [`connection`](Self::connection), by a [client](Self::client) of a server that may be gone.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn connection_of(client: &Client) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut name = redis::cmd("CLIENT");
        name.arg("SETNAME").arg(HARNESS_NAME);
        name.query_async::<()>(&mut connection).await?;
        Ok(connection)
    }

    /// Waits until our process, and not a stranger on our port, answers.
    async fn ready(&mut self) -> Result<(), NotReady> {
        let mut patience = Patience::new(START_DEADLINE);
        loop {
            if let Some(status) = self.process.exited() {
                return Err(self.ended(status));
            }
            let last = match timeout(READY_TIMEOUT, self.answering_pid()).await {
                Ok(Ok(pid)) if pid == self.pid().to_string() => return Ok(()),
                Ok(Ok(pid)) => format!("process {pid} answered"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if !patience.pause().await {
                return Err(self.failed(&format!("not ready within {START_DEADLINE:?}, {last}")));
            }
        }
    }

    /// PING is answered only after the data is loaded, INFO also before: both are needed.
    async fn answering_pid(&self) -> RedisResult<String> {
        let mut connection = self.try_connection().await?;
        redis::cmd("PING")
            .query_async::<()>(&mut connection)
            .await?;
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await?;
        Ok(inspect::fields(&info, ':')
            .remove("process_id")
            .unwrap_or_default())
    }

    fn ended(&self, status: ExitStatus) -> NotReady {
        match status.code() {
            Some(NOT_FOUND) => NotReady::missing(),
            // At the end of the log: further up may stand the same of an earlier start.
            _ if self
                .log()
                .lines()
                .rev()
                .take(3)
                .any(|line| line.contains(TAKEN)) =>
            {
                NotReady::PortTaken
            }
            _ => self.failed(&format!("ended with {status}")),
        }
    }

    fn failed(&self, why: &str) -> NotReady {
        NotReady::Failed(format!(
            "server {:?} on port {}: {why}; its log:\n{}",
            program(),
            self.port,
            self.log()
        ))
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join(LOG)
    }
}

//! After a test: is everything gone that the tested code made?
//!
//! Looks at the server (keys, channels, connections) and at this runtime (tasks), on request also
//! at this process (open files). Clean-up may run in the background, so each is given time.
//!
//! Tasks are those of the runtime that calls, so parallel tests do not disturb each other. Open
//! files belong to the whole process: ask for them only where a test is alone in its process.

use std::fmt;
use std::fs;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::eventually::Patience;
use crate::server::{RedisServer, client_lines};

/// Everything should be gone in this time. Later is printed.
pub const QUIET_BOUND: Duration = Duration::from_secs(1);

/// Not gone in this time is a failure. The space between is for machines with other work.
pub const QUIET_CAP: Duration = Duration::from_secs(10);

/// What was there before the test.
#[derive(Debug)]
#[must_use]
pub struct Leaks {
    // Open at the baseline and at the check, so that its task and socket cancel out.
    probe: MultiplexedConnection,
    tasks: usize,
    files: Option<usize>,
}

impl Leaks {
    /// Remembers what is there now: to be called before the tested code runs.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn baseline(server: &RedisServer) -> Self {
        let probe = server.connection().await;
        Self {
            probe,
            tasks: alive_tasks(),
            files: None,
        }
    }

    /// Remembers the number of open files, too. Only for a test that is alone in its process.
    ///
    /// # Panics
    /// If the system does not list them.
    pub fn with_files(mut self) -> Self {
        self.files = Some(open_files());
        self
    }

    /// Waits until nothing is left: no key with `prefix` in its name, no channel, no connection
    /// but the harness's own, no more tasks (and files) than at the baseline.
    ///
    /// Takes [`QUIET_BOUND`] at most; up to [`QUIET_CAP`] is printed and let pass.
    ///
    /// # Panics
    /// If something is left then, with a list of it.
    pub async fn check(self, server: &RedisServer, prefix: &str) {
        match self.settle(server, prefix, QUIET_CAP).await {
            Ok(took) if took > QUIET_BOUND => {
                eprintln!("quiet only after {took:?}, should be {QUIET_BOUND:?}");
            }
            Ok(_) => {}
            Err(left) => panic!("left over {QUIET_CAP:?} after the test: {left}"),
        }
    }

    /// As [`Leaks::check`] with another deadline: how long it took, or what was left.
    ///
    /// # Errors
    /// What was left at the deadline.
    ///
    /// # Panics
    /// If the server cannot be reached.
    pub async fn settle(
        mut self,
        server: &RedisServer,
        prefix: &str,
        within: Duration,
    ) -> Result<Duration, String> {
        let start = Instant::now();
        // A new one, for the server may have been restarted. The old one goes first.
        drop(self.probe);
        self.probe = server.connection().await;
        let mut patience = Patience::new(within);
        let mut last = "the server did not answer".to_owned();
        while let Some(left) = patience.look(Leftovers::now(&mut self, prefix)).await {
            match left {
                Ok(left) if left.is_empty() => return Ok(start.elapsed()),
                Ok(left) => last = left.to_string(),
                Err(error) => last = error.to_string(),
            }
            if !patience.pause().await {
                break;
            }
        }
        Err(last)
    }
}

/// Number of open files of this process, the one to look at them included.
///
/// # Panics
/// If the system does not list them.
#[must_use]
pub fn open_files() -> usize {
    fs::read_dir("/dev/fd")
        .expect("a system with /dev/fd")
        .count()
}

/// Bytes of this process in memory.
///
/// # Panics
/// If the system does not tell.
#[must_use]
pub fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("a system with /proc");
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.map_or(0, |pages: usize| pages * rustix::param::page_size())
}

/// What one look finds left over.
#[derive(Default)]
struct Leftovers {
    keys: Vec<String>,
    channels: Vec<String>,
    connections: Vec<String>,
    tasks: usize,
    files: usize,
}

impl Leftovers {
    async fn now(before: &mut Leaks, prefix: &str) -> RedisResult<Self> {
        let Leaks {
            probe,
            tasks,
            files,
        } = before;
        let keys: Vec<String> = cmd("KEYS").arg("*").query_async(probe).await?;
        let channels = cmd("PUBSUB").arg("CHANNELS").query_async(probe).await?;
        let clients: String = cmd("CLIENT").arg("LIST").query_async(probe).await?;
        let clients = client_lines(&clients)
            .into_iter()
            .filter(|client| !client.is_harness());
        Ok(Self {
            keys: keys
                .into_iter()
                .filter(|key| key.contains(prefix))
                .collect(),
            channels,
            connections: clients.map(|client| client.to_string()).collect(),
            tasks: alive_tasks().saturating_sub(*tasks),
            files: files.map_or(0, |files| open_files().saturating_sub(files)),
        })
    }

    fn is_empty(&self) -> bool {
        let lists = [&self.keys, &self.channels, &self.connections];
        lists.iter().all(|list| list.is_empty()) && self.tasks == 0 && self.files == 0
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys {:?}, channels {:?}, ", self.keys, self.channels)?;
        write!(f, "connections {:?}, ", self.connections)?;
        write!(
            f,
            "{} tasks and {} files more than before",
            self.tasks, self.files
        )
    }
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

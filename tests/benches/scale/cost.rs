//! What work costs: this process by its CPU time, the server by its own counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use distlock_tests::RedisServer;
use rustix::time::{ClockId, clock_gettime};

/// Commands that clients send. The server also counts those that scripts call.
const SENT: [&str; 4] = ["evalsha", "subscribe", "unsubscribe", "ping"];

/// Measures from its start on.
pub(crate) struct Meter<'a> {
    server: &'a RedisServer,
    info: HashMap<String, String>,
    cpu: Duration,
    start: Instant,
}

/// What was spent between the start and the end of a measurement.
pub(crate) struct Spent {
    before: HashMap<String, String>,
    after: HashMap<String, String>,
    cpu: Duration,
    took: Duration,
}

impl<'a> Meter<'a> {
    pub(crate) async fn start(server: &'a RedisServer) -> Self {
        Self {
            info: server.info("all").await,
            cpu: own_cpu(),
            start: Instant::now(),
            server,
        }
    }

    pub(crate) async fn stop(self) -> Spent {
        // The questions to the server are not measured.
        let (cpu, took) = (own_cpu() - self.cpu, self.start.elapsed());
        Spent {
            before: self.info,
            after: self.server.info("all").await,
            cpu,
            took,
        }
    }
}

impl Spent {
    pub(crate) fn seconds(&self) -> f64 {
        self.took.as_secs_f64()
    }

    /// CPU of this process, in microseconds.
    pub(crate) fn own_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6
    }

    /// CPU of the server, in microseconds: commands, and reading from and writing to its sockets.
    pub(crate) fn server_micros(&self) -> f64 {
        let parts = ["used_cpu_user", "used_cpu_sys"];
        let cpu = |info: &HashMap<String, String>| -> f64 {
            parts.iter().map(|name| number(&info[*name])).sum()
        };
        (cpu(&self.after) - cpu(&self.before)) * 1e6
    }

    /// Commands that clients have sent.
    pub(crate) fn sent(&self) -> f64 {
        SENT.iter().map(|name| self.calls(name)).sum()
    }

    /// How often the server has run a command, also inside scripts.
    pub(crate) fn calls(&self, command: &str) -> f64 {
        self.stat(command, "calls")
    }

    /// Microseconds that the server has spent in a command, for a script with all that it calls.
    pub(crate) fn micros_in(&self, command: &str) -> f64 {
        self.stat(command, "usec")
    }

    /// Memory of the server at the end, in bytes.
    pub(crate) fn server_memory(&self) -> f64 {
        number(&self.after["used_memory"])
    }

    pub(crate) fn connections(&self) -> f64 {
        // One of them has asked.
        number(&self.after["connected_clients"]) - 1.0
    }

    fn stat(&self, command: &str, field: &str) -> f64 {
        let stat = |info: &HashMap<String, String>| {
            let line = info.get(&format!("cmdstat_{command}"))?;
            let mut parts = line.split(',').filter_map(|part| part.split_once('='));
            parts.find_map(|(name, value)| (name == field).then(|| number(value)))
        };
        stat(&self.after).unwrap_or(0.0) - stat(&self.before).unwrap_or(0.0)
    }
}

/// CPU time of this process, all threads together.
pub(crate) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

//! The child process: one client with one task, which takes the key that its input names.

use std::time::{Duration, Instant};

use distlock::Client;
use distlock_tests::{Process, RedisServer};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use crate::cost::own_cpu;

/// Set in child processes to the URL of the server.
pub(crate) const CHILD: &str = "DISTLOCK_SCALE_CHILD";

/// What a task does with the key takes so long.
const SECTION: Duration = Duration::from_millis(1);

/// The first grants are not counted: not all children have begun.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);

/// For the answers of child processes.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn start(server: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let url = format!("{CHILD}={}", server.url());
    Process::start("env", [url.as_str(), program.to_str().unwrap()])
}

/// Runs until the input ends. A line has the kind of lock and how many milliseconds to take it for.
pub(crate) async fn run(url: &str) {
    let client = Client::connect(url).await.unwrap();
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (kind, millis) = line.split_once(' ').unwrap();
        let time = Duration::from_millis(millis.parse().unwrap());
        let acquire = match kind {
            "lock" => client.lock("shared").acquire(),
            _ => client.fair_lock("shared:fair").acquire(),
        };
        let (start, mut served, mut longest) = (Instant::now(), 0_u32, Duration::ZERO);
        let mut cpu = Duration::ZERO;
        while start.elapsed() < WARM_UP + time {
            let asked = Instant::now();
            let guard = acquire.clone().await.unwrap();
            let waited = asked.elapsed();
            sleep(SECTION).await;
            guard.release().await.unwrap();
            if start.elapsed() < WARM_UP {
                cpu = own_cpu()
            } else {
                (served, longest) = (served + 1, longest.max(waited))
            }
        }
        let cpu = (own_cpu() - cpu).as_micros();
        println!("served {served} {} {cpu}", longest.as_micros());
    }
}

//! A replica that stops, and clients whose grants it has to confirm. Beside the run, on separate servers.

use std::cell::Cell;
use std::future::pending;
use std::ops::Range;
use std::time::Duration;

use distlock::{Client, Error};
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use super::RedisRun;
use super::calm::Wrong;
use distlock_tests::pulse::monotonic_nanos;
use distlock_tests::server::RedisServer;

/// How long the replica may take to confirm a grant.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(300);

/// For how long acquisitions go on before the replica stops, while it is stopped, and afterwards until one is granted.
const BEFORE: Duration = Duration::from_millis(500);
const STOPPED: Duration = Duration::from_millis(4_000);
const AFTER: Duration = Duration::from_millis(2_000);

/// How many times as long a wait is. A wait that ends before a grant could be confirmed learns nothing, and neither do those
/// behind it.
const WAITS: Range<f64> = 4.0..7.0;

/// A client gives up after this time without a confirmation.
const UNAVAILABLE_AFTER: Duration = Duration::from_millis(1_200);
const TASKS: usize = 6;
const KEYS: usize = 2;

/// What the tasks were told. They have one client: another one cannot tell an owner whose grant is withdrawn from a holder.
#[derive(Debug, Default)]
struct Told {
    /// Whether one of them was told of an outage, so that the client knows it.
    outage: Cell<bool>,
    /// Whether one was granted a key since the replica goes on.
    granted: Cell<bool>,
}

impl RedisRun {
    /// While no replica confirms a grant nobody holds a key. So nobody may be told that a key is held: that is an outage.
    pub(super) async fn replica_stops(&self) -> Vec<Wrong> {
        let (primary, mut replica) = tokio::join!(primary(), RedisServer::start());
        follow(&primary, &replica).await;
        let (client, told) = (confirmed_client(&primary).await, Told::default());
        let (is_stopped, goes_on) = (Cell::new(false), Cell::new(false));
        let is_over = Cell::new(false);
        let tasks = (1..=TASKS as u64).map(|task| {
            let seed = self.context.seed ^ task;
            self.acquire_until_over(&is_over, &client, &told, (&is_stopped, &goes_on), seed)
        });
        let stopping = async {
            sleep(BEFORE).await;
            replica.stop();
            // What was granted before is released by then.
            sleep(CONFIRMED_WITHIN).await;
            is_stopped.set(true);
            // Longer, if this process stands still: then it is told of no outage.
            let _over = self.pulse.timeout(STOPPED, pending::<()>()).await;
            is_stopped.set(false);
            replica.cont();
            goes_on.set(true);
            let granted = async {
                while !told.granted.get() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            let _told_below = self.pulse.timeout(AFTER, granted).await;
            is_over.set(true);
        };
        let (wrong, ()) = tokio::join!(join_all(tasks), stopping);
        let mut all_wrong: Vec<Wrong> = wrong.into_iter().flatten().collect();
        if !told.outage.get() {
            let what = "nobody was told of an outage while the replica was stopped";
            all_wrong.push(("A11", String::from(what)));
        }
        if !told.granted.get() {
            let what = "nobody was granted a key when the replica went on";
            all_wrong.push(("A5", String::from(what)));
        }
        all_wrong
    }

    /// Acquires and releases until that is over, with waits of any length. Returns what was wrong.
    async fn acquire_until_over(
        &self,
        is_over: &Cell<bool>,
        client: &Client,
        told: &Told,
        (is_stopped, goes_on): (&Cell<bool>, &Cell<bool>),
        seed: u64,
    ) -> Option<Wrong> {
        let (mut random, mut wrong) = (StdRng::seed_from_u64(seed), None);
        while !is_over.get() {
            let key = format!("chaos:confirmed:{}", random.random_range(0..KEYS));
            let wait = CONFIRMED_WITHIN.mul_f64(random.random_range(WAITS));
            // The client knew of the outage all the time.
            let knew = is_stopped.get() && told.outage.get();
            let from = monotonic_nanos();
            let acquired = client.lock(&key).acquire().wait(wait).await;
            // Others of this line ask the server, and hear its answer, as late as this machine is.
            let is_late = || {
                let stalls = self.pulse.stalls();
                stalls.between(from, monotonic_nanos()).next().is_some()
            };
            match acquired {
                Ok(guard) => {
                    told.granted.set(told.granted.get() || goes_on.get());
                    sleep(Duration::from_millis(2)).await;
                    drop(guard.release().await);
                }
                Err(error) if error.is_unavailable() => {
                    told.outage.set(told.outage.get() || is_stopped.get())
                }
                Err(error @ Error::Timeout { .. }) if knew && is_stopped.get() && !is_late() => {
                    let what = format!("{key}, which no replica confirms to anybody: {error}");
                    wrong = Some(("A11", what));
                }
                Err(Error::Timeout { .. }) => {}
                Err(error) => return Some(("A11", format!("{key}: {error}"))),
            }
            sleep(Duration::from_millis(2)).await;
        }
        wrong
    }
}

async fn primary() -> RedisServer {
    let primary = RedisServer::builder().arg("--repl-diskless-sync-delay", "0");
    primary.start().await
}

/// Waits until the replica follows the primary.
async fn follow(primary: &RedisServer, replica: &RedisServer) {
    let port = primary.port().to_string();
    replica.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let follows = async {
        loop {
            let info = replica.info("replication").await;
            if info.get("master_link_status").is_some_and(|is| is == "up") {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let follows = timeout(Duration::from_secs(20), follows).await;
    follows.expect("a replica");
}

async fn confirmed_client(primary: &RedisServer) -> Client {
    let builder = Client::builder().replicas(1, CONFIRMED_WITHIN);
    let builder = builder.unavailable_after(UNAVAILABLE_AFTER);
    let client = builder.connect(&primary.url()).await;
    client.expect("a server without faults")
}

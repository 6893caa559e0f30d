//! A history of two Java and two Rust processes, one of which is killed every few seconds.
//!
//! The test tells each thread of each process what to do, and records what it is told and what it answers. The checker of the
//! chaos suite judges the history.

mod hold;
mod latch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_chaos::history::{
    Affected, Bounds, Event, EventKind, Fault, History, Id, Operations, Refusal, Wiped, check,
};
use distlock_interop::{Actor, Failure, Kind, Peer, Side};
use distlock_tests::RedisServer;
use distlock_tests::pulse::monotonic_nanos;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::latch::Steady;
use crate::case::{Case, Play, RUST};
use crate::stage::{Stage, start};
use crate::statistics::note;
use crate::table::Row;

/// For how long operations begin.
const TIME: Duration = Duration::from_secs(15);

/// A process is killed each time this has passed.
const KILL_EVERY: Duration = Duration::from_secs(4);

/// Threads of each process.
const THREADS: u32 = 4;

const KEYS: usize = 3;

/// Permits of a semaphore.
const PERMITS: u32 = 3;

/// The lease of the watchdogs, and of permits. In milliseconds.
const LEASE: u64 = 4_000;

/// The longest wait, in milliseconds.
const WAIT: u64 = 2_000;

/// In milliseconds. Redisson throws an exception if it cannot subscribe within the wait.
const SHORTEST_WAIT: u64 = 300;

const NANOS: u64 = 1_000_000;

const SERVERS_OF_A_REDLOCK: usize = 3;

#[derive(Clone)]
struct Run {
    kind: Kind,
    history: History,
    end: u64,
    granted: Arc<AtomicU32>,
    steady: Arc<tokio::sync::Mutex<Steady>>,
}

async fn nobody_holds_what_another_one_has(stage: Stage) {
    let count = if stage.kind == Kind::Red {
        SERVERS_OF_A_REDLOCK
    } else {
        1
    };
    let servers = join_all((0..count).map(|_| RedisServer::start())).await;
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let java = [stage.holder, stage.waiter]
        .into_iter()
        .find(|side| side.is_java())
        .unwrap();
    let sides = [RUST, java, RUST, java];
    let peers = join_all(sides.map(|side| start(side, &urls, LEASE))).await;
    if matches!(stage.kind, Kind::Semaphore | Kind::Permit) {
        let setter = peers[0].actor("setter");
        for key in 0..KEYS {
            assert!(
                setter
                    .count::<bool>("set_permits", &lock(stage.kind, key), PERMITS)
                    .await
            );
        }
    }
    let run = Run {
        kind: stage.kind,
        history: History::default(),
        end: monotonic_nanos() + TIME.as_nanos() as u64,
        granted: Arc::default(),
        steady: Arc::default(),
    };
    let workers = Arc::new(Mutex::new(JoinSet::new()));
    let mut living: Vec<(u32, Arc<Peer>)> = (1..).zip(peers).collect();
    for (process, peer) in &living {
        run.work(&workers, *process, peer);
    }
    let (mut kills, mut process) = (0, 4);
    let begun = Instant::now();
    // By the time since the beginning: a start takes seconds on a busy machine.
    while KILL_EVERY * (kills + 1) < TIME {
        sleep_until(begun + KILL_EVERY * (kills + 1)).await;
        // The oldest first, so that each side is met in turn.
        let (killed, peer) = living.remove(0);
        run.kill(killed, &peer);
        (kills, process) = (kills + 1, process + 1);
        let peer = start(peer.side(), &urls, LEASE).await;
        run.work(&workers, process, &peer);
        living.push((process, peer));
    }
    let workers = std::mem::take(&mut *workers.lock());
    workers.join_all().await;
    run.judge(java, kills);
}

impl Run {
    fn add(&self, at: u64, what: EventKind) {
        self.history.add(Event { at, what });
    }

    fn work(&self, workers: &Mutex<JoinSet<()>>, process: u32, peer: &Arc<Peer>) {
        for task in 0..THREADS {
            let (run, actor) = (self.clone(), peer.actor(format!("{task}")));
            workers
                .lock()
                .spawn(async move { run.operate(process, task, &actor).await });
        }
    }

    fn kill(&self, process: u32, peer: &Peer) {
        let from = monotonic_nanos();
        peer.kill();
        let to = monotonic_nanos();
        self.add(to, EventKind::Killed { process });
        if self.kind == Kind::Latch {
            // It leaves neither a lease nor a place in a queue, so nothing has to heal.
            return;
        }
        self.add(
            to,
            EventKind::Fault(Fault {
                kind: String::from("kill"),
                from,
                to,
                wiped: Wiped::Nothing,
                affected: Affected::Process(process),
                // Its lease has to end, and its place in a queue: in Redisson that is its wait.
                heals: (LEASE + 2 * WAIT) * NANOS,
                hit: true,
                delays_attempts: false,
                reconnects: false,
            }),
        );
    }

    /// Makes operations until the end, or until its process is killed.
    async fn operate(&self, process: u32, task: u32, actor: &Actor) {
        for number in 0.. {
            if monotonic_nanos() >= self.end {
                return;
            }
            let id = Id {
                process,
                task,
                number,
            };
            let made = match self.kind {
                Kind::Latch => self.use_latch(id, actor).await,
                _ => self.hold(id, actor).await,
            };
            if made == Err(Failure::Ended) {
                return;
            }
            let pause = Duration::from_millis(rand::rng().random_range(0..8));
            sleep(pause).await;
        }
    }

    fn judge(&self, java: Side, kills: u32) {
        let semaphore = matches!(self.kind, Kind::Semaphore | Kind::Permit);
        // Redisson takes the members one after the other, and begins anew when one is held.
        let several = matches!(self.kind, Kind::Multi | Kind::Red);
        let bounds = Bounds {
            lease: LEASE * NANOS,
            wake: if several { u64::MAX / 4 } else { 2_500 * NANOS },
            late: if several {
                6_000 * NANOS
            } else {
                2_500 * NANOS
            },
            confirmed: LEASE * NANOS,
            passes: usize::MAX,
            absent: 0,
            aftermath: 2_000 * NANOS,
            in_order: matches!(self.kind, Kind::Fair | Kind::NonReentrantFair),
            capacity: if semaphore { PERMITS } else { 1 },
            settle: LEASE * NANOS,
            margin: 0,
        };
        let operations = Operations::from_events(&self.history.events(), bounds.lease);
        let (granted, all) = (self.granted.load(Ordering::Relaxed), operations.all.len());
        let violations = check(&operations, &bounds);
        note(format!(
            "history beside {java:?}, {}: {all} operations, {granted} granted, {kills} kills, {} violations",
            self.kind.name(),
            violations.len()
        ));
        let text: Vec<String> = violations
            .iter()
            .take(10)
            .map(ToString::to_string)
            .collect();
        assert!(violations.is_empty(), "{}", text.join("\n"));
        assert!(
            kills >= 2 && granted > 100,
            "only {granted} grants, {kills} kills"
        );
    }
}

/// On a machine that stands still for a moment, a short wait may end before any answer comes. Both sides have an error for it.
fn refusal(text: String) -> Refusal {
    let unanswered = [
        "Unable to acquire subscription lock",
        "lock server unavailable",
    ];
    if unanswered.iter().any(|part| text.contains(part)) {
        Refusal::Unavailable
    } else {
        Refusal::Other(text)
    }
}

/// Redisson counts its wait in whole milliseconds, and so may give up one or two of them early.
fn recorded_wait(wait: u64) -> u64 {
    match wait {
        0 => 0,
        _ => (wait * NANOS).saturating_sub(2 * NANOS).max(1),
    }
}

fn lock(kind: Kind, key: usize) -> (Kind, Vec<String>) {
    let names = match kind {
        Kind::Multi => vec![format!("key {key}"), format!("other {key}")],
        _ => vec![format!("key {key}")],
    };
    (kind, names)
}

pub(super) fn cases() -> Vec<Case> {
    let others = [
        Kind::Multi,
        Kind::Red,
        Kind::Semaphore,
        Kind::Permit,
        Kind::Latch,
    ];
    let case = |kind| {
        let name = "nobody_holds_what_another_one_has";
        let case = Case::new(Row::Mixed, kind, name, nobody_holds_what_another_one_has);
        case.symmetrical().newest_only().play(Play::Pairwise)
    };
    Kind::EXCLUSIVE
        .into_iter()
        .chain(others)
        .map(case)
        .collect()
}

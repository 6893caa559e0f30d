//! A run on a real server behind a proxy: clients of this process and of children, and everything that can befall them.

mod befall;
pub mod child;
mod left;
mod plan;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::Client;
use tokio::runtime::Builder;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use self::child::{Orders, connect};
use self::plan::{Plans, plans};
use super::time::{Time, stamp};
use super::worker::{Crew, Sink, Worker};
use super::{Outcome, Pace, alarm, judge};
use crate::history::{Bounds, History, Stamp};
use distlock_tests::any_lock::{Of, PERMITS};
use distlock_tests::process::Process;
use distlock_tests::proxy::Proxy;
use distlock_tests::resource::{Door, Resource, Served};
use distlock_tests::server::RedisServer;

const LEASE: Duration = Duration::from_secs(2);

/// At the end nothing happens: what has yet to heal does, and for two leases more everybody has to get on.
const UNDISTURBED: Duration = Duration::from_secs(8);

const PROGRAMS: usize = 4;
const TASKS: u32 = 40;
const CHILDREN: usize = 3;
const TASKS_OF_A_CHILD: u32 = 8;
const KEYS: usize = 20;

/// No hold, no connection and no process is left after this: late commands are looked after for a lease.
const QUIET: Duration = Duration::from_secs(10);

/// A hold that nobody could release ends by its lease, and a client that lost its connection tries again within 2 s.
const HEALS: Duration = Duration::from_secs(4);

/// Ten times what paused time shows, but always below the lease, whose end would also wake a waiter.
const BOUNDS: Bounds = Bounds {
    lease: LEASE.as_nanos() as u64,
    wake: 1_500_000_000,
    late: 1_000_000_000,
    aftermath: 1_000_000_000,
    in_order: false,
    capacity: 1,
    settle: HEALS.as_nanos() as u64,
};

/// What a run on a real server is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The binary `chaos` of this package: it is the child processes too.
    pub program: String,
    /// How long faults happen; operations go on for some seconds more.
    pub faulty: Duration,
    /// Which kind of lock.
    pub of: Of,
    /// No fault but that each second a process is killed.
    pub only_kills: bool,
}

impl Setting {
    /// Plays the operations and faults of a seed.
    ///
    /// # Panics
    /// If the run itself fails.
    #[must_use]
    pub fn run(&self, seed: u64) -> Outcome {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let outcome = runtime.block_on(self.play(seed));
        // A blocked thread is waited for by nobody.
        runtime.shutdown_background();
        outcome
    }

    async fn play(&self, seed: u64) -> Outcome {
        alarm::install();
        let (pace, alarms) = (pace(self.of), alarm::count());
        let plans = match self.only_kills {
            true => Plans::of_kills(seed, self.faulty),
            false => {
                let subscribes = self.of != Of::Spin;
                plans(seed, self.faulty, LEASE, &pace.keys, subscribes)
            }
        };
        let run = RedisRun::new(seed, pace, self).await;
        let mut outcome = run.play(&plans).await;
        if alarm::count() > alarms {
            outcome.found("A11", String::from("a panic, or an error in the log"));
        }
        if !outcome.violations.is_empty() {
            let Plans {
                server,
                wire,
                processes,
            } = &plans;
            eprintln!("{server}{wire}{processes}{outcome}");
        }
        outcome
    }
}

fn bounds(of: Of) -> Bounds {
    Bounds {
        in_order: of.is_fair(),
        capacity: match of {
            Of::Permit | Of::Semaphore => of.capacity(),
            _ => 1,
        },
        ..BOUNDS
    }
}

fn pace(of: Of) -> Pace {
    Pace {
        of,
        lease: LEASE,
        work: Duration::from_millis(4),
        pause: Duration::from_millis(30),
        wait: Duration::from_secs(2),
        long: 2,
        keys: (0..KEYS).map(|n| format!("chaos:{n}")).collect(),
    }
}

struct RedisRun {
    crew: Crew,
    history: History,
    server: Mutex<RedisServer>,
    durable: bool,
    /// The other servers of a Redlock: nothing befalls these.
    others: Vec<RedisServer>,
    proxy: Proxy,
    resource: Resource,
    served: Served,
    programs: Vec<Arc<[Client]>>,
    program: String,
    end: Stamp,
    children: Mutex<Vec<Child>>,
    /// What was wrong with children that are no more.
    odd: Mutex<Vec<String>>,
    processes: AtomicU32,
}

struct Child {
    process: Process,
    number: u32,
    /// Yields the lines that were no events.
    reader: JoinHandle<Vec<String>>,
}

impl Child {
    /// What is wrong with a child that has ended, if anything is; the last line of one that was killed may be cut short.
    async fn oddity(self, killed: bool) -> Option<String> {
        let lines = self.reader.await.unwrap_or_default();
        let said = self.process.stderr();
        if said.is_empty() && lines.len() <= usize::from(killed) {
            return None;
        }
        let number = self.number;
        Some(format!("process {number} said {lines:?} and {said:?}"))
    }
}

impl RedisRun {
    async fn new(seed: u64, pace: Pace, setting: &Setting) -> Self {
        let (history, resource) = (History::default(), Resource::default());
        let durable = seed.is_multiple_of(2) || !forgets(pace.of);
        let server = RedisServer::builder().appendonly(durable).start().await;
        let proxy = Proxy::start(server.addr()).await;
        let served = resource.serve().await.expect("a port for the resource");
        let mut others = Vec::new();
        for _ in 1..pace.of.servers() {
            others.push(RedisServer::start().await);
        }
        if pace.of == Of::Semaphore {
            set_permits(&server, &pace.keys).await;
        }
        let urls = urls(&proxy, &others);
        let mut programs = Vec::new();
        for _ in 0..PROGRAMS {
            programs.push(connect(&urls, LEASE).await.expect("the clients"));
        }
        let time = Time::Machine;
        Self {
            end: time.now() + stamp(setting.faulty + UNDISTURBED),
            crew: Crew {
                process: 0,
                seed,
                pace,
                time,
                sink: Sink::History(history.clone()),
            },
            history,
            server: Mutex::new(server),
            durable,
            others,
            proxy,
            resource,
            served,
            programs,
            program: setting.program.clone(),
            children: Mutex::default(),
            odd: Mutex::default(),
            processes: AtomicU32::new(1),
        }
    }

    async fn play(mut self, plans: &Plans) -> Outcome {
        let begin = Instant::now();
        for _ in 0..CHILDREN {
            let child = self.start_child();
            self.children.lock().await.push(child);
        }
        let mut workers = JoinSet::new();
        for task in 0..TASKS {
            let program = &self.programs[task as usize % PROGRAMS];
            let worker = Worker::new(&self.crew, task, program, Door::Here(self.resource.clone()));
            workers.spawn(worker.work_until(self.end));
        }
        tokio::join!(
            self.befall(&plans.server, begin),
            self.befall(&plans.wire, begin),
            self.befall(&plans.processes, begin),
        );
        self.proxy.heal();
        let done = timeout(UNDISTURBED + QUIET, workers.join_all()).await;
        let children = self.children_end().await;
        let name = ("redis", self.crew.seed);
        let bounds = bounds(self.crew.pace.of);
        let mut outcome = judge(name, &self.history, &bounds, &self.resource);
        if done.is_err() {
            outcome.found("A11", String::from("workers that never end"));
        }
        children
            .into_iter()
            .for_each(|odd| outcome.found("A11", odd));
        if let Some(left) = self.left().await {
            outcome.found("A10", left);
        }
        let wrong = match self.crew.pace.of {
            Of::Semaphore => self.wrong_sum().await,
            Of::Latch => self.wrong_counts().await,
            _ => None,
        };
        if let Some(wrong) = wrong {
            outcome.found("A9", wrong);
        }
        outcome
    }

    fn start_child(&self) -> Child {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let orders = Orders {
            urls: urls(&self.proxy, &self.others),
            resource: self.served.addr(),
            process: number,
            seed: self.crew.seed,
            tasks: TASKS_OF_A_CHILD,
            end: self.end,
            pace: self.crew.pace.clone(),
        };
        let mut process = orders.start(&self.program);
        let (mut lines, history) = (process.take_output(), self.history.clone());
        let reader = tokio::spawn(async move {
            let mut odd = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(event) => history.add(event),
                    Err(_) => odd.push(line),
                }
            }
            odd
        });
        Child {
            process,
            number,
            reader,
        }
    }

    /// Waits for the children, and tells what is wrong with any that there was.
    async fn children_end(&self) -> Vec<String> {
        let mut odd = std::mem::take(&mut *self.odd.lock().await);
        for mut child in self.children.lock().await.drain(..) {
            let status = child.process.wait(UNDISTURBED + QUIET).await;
            if !status.success() {
                odd.push(format!("process {}: {status}", child.number));
            }
            odd.extend(child.oddity(false).await);
        }
        odd
    }
}

/// The URLs of a run's servers: what befalls one befalls the first.
fn urls(proxy: &Proxy, others: &[RedisServer]) -> Vec<String> {
    let others = others.iter().map(RedisServer::url);
    iter::once(proxy.url()).chain(others).collect()
}

/// May a server lose its data? Not where a number is kept, which nobody gets back, nor one of a quorum.
fn forgets(of: Of) -> bool {
    !matches!(of, Of::Semaphore | Of::Red | Of::Latch)
}

async fn set_permits(server: &RedisServer, keys: &[String]) {
    let client = Client::connect(&server.url()).await.expect("a server");
    for key in keys {
        let set = client.semaphore(key).try_set_permits(PERMITS).await;
        assert!(set.expect("a server without faults"));
    }
}

//! A run on a real server behind a proxy: clients of this process and of children, and everything that can befall them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::redis::AsyncCommands;
use distlock::Client;
use distlock::test_util::{Sizes, sizes};
use tokio::runtime::Builder;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{Orders, connect};
use super::plan::{Plan, Step};
use super::time::{Time, stamp};
use super::wire_fault::{Plans, WireFault, plans};
use super::worker::{Crew, Sink, Worker};
use super::{Outcome, Pace, alarm, judge};
use crate::history::{Bounds, Event, Fault, Hindered, History, Stamp, What, Wiped};
use crate::leaks::open_files;
use crate::process::Process;
use crate::proxy::{self, Proxy, Select, Which};
use crate::resource::{Door, Resource, Served};
use crate::server::RedisServer;

const LEASE: Duration = Duration::from_secs(2);

/// Two leases at the end in which nothing happens and everybody has to get on, after one to recover.
const UNDISTURBED: Duration = Duration::from_secs(6);

const CLIENTS: usize = 4;
const TASKS: u32 = 40;
const CHILDREN: usize = 3;
const TASKS_OF_A_CHILD: u32 = 4;
const KEYS: usize = 20;

/// No hold, no connection and no process is left after this: late commands are looked after for a lease.
const QUIET: Duration = Duration::from_secs(10);

/// A hold that nobody could release ends by its lease, and a client that lost its connection tries again within 2 s.
const HEALS: Duration = Duration::from_secs(6);

/// Ten times what paused time shows, but always below the lease, whose end would also wake a waiter.
const BOUNDS: Bounds = Bounds {
    lease: LEASE.as_nanos() as u64,
    wake: 1_500_000_000,
    late: 1_000_000_000,
    aftermath: 1_000_000_000,
};

/// What a run on a real server is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The binary of the child processes.
    pub worker: String,
    /// How long faults happen; operations go on for some seconds more.
    pub faulty: Duration,
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
        let (pace, alarms) = (pace(), alarm::count());
        let plans = plans(seed, self.faulty, LEASE, &pace.keys);
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

fn pace() -> Pace {
    Pace {
        lease: LEASE,
        work: Duration::from_millis(4),
        pause: Duration::from_millis(60),
        wait: Duration::from_secs(2),
        long: 3,
        keys: (0..KEYS).map(|n| format!("chaos:{n}")).collect(),
    }
}

struct RedisRun {
    crew: Crew,
    history: History,
    server: Mutex<RedisServer>,
    durable: bool,
    proxy: Proxy,
    resource: Resource,
    served: Served,
    clients: Vec<Client>,
    worker: String,
    end: Stamp,
    children: Mutex<Vec<Child>>,
    processes: AtomicU32,
}

struct Child {
    process: Process,
    number: u32,
    reader: JoinHandle<()>,
}

impl RedisRun {
    async fn new(seed: u64, pace: Pace, setting: &Setting) -> Self {
        let (history, resource) = (History::default(), Resource::default());
        let durable = seed.is_multiple_of(2);
        let server = RedisServer::builder().appendonly(durable).start().await;
        let proxy = Proxy::start(server.addr()).await;
        let served = resource.serve().await.expect("a port for the resource");
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect(&proxy.url(), LEASE).await.expect("a client"));
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
            proxy,
            resource,
            served,
            clients,
            worker: setting.worker.clone(),
            children: Mutex::default(),
            processes: AtomicU32::new(1),
        }
    }

    async fn play(self, plans: &Plans) -> Outcome {
        let begin = Instant::now();
        for _ in 0..CHILDREN {
            let child = self.start_child();
            self.children.lock().await.push(child);
        }
        let mut workers = JoinSet::new();
        for task in 0..TASKS {
            let client = &self.clients[task as usize % CLIENTS];
            let worker = Worker::new(&self.crew, task, client, Door::Here(self.resource.clone()));
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
        let seed = self.crew.seed;
        let mut outcome = judge(seed, &self.history, &BOUNDS, &self.resource);
        if done.is_err() {
            outcome.found("A11", String::from("workers that never end"));
        }
        children
            .into_iter()
            .for_each(|odd| outcome.found("A11", odd));
        if let Some(left) = self.left().await {
            outcome.found("A10", left);
        }
        outcome
    }

    fn start_child(&self) -> Child {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let orders = Orders {
            url: self.proxy.url(),
            resource: self.served.addr(),
            process: number,
            seed: self.crew.seed,
            tasks: TASKS_OF_A_CHILD,
            end: self.end,
            pace: self.crew.pace.clone(),
        };
        let mut process = orders.start(&self.worker);
        let (mut lines, history) = (process.take_output(), self.history.clone());
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // The last line of one that was killed may be cut short.
                if let Ok(event) = serde_json::from_str(&line) {
                    history.add(event);
                }
            }
        });
        Child {
            process,
            number,
            reader,
        }
    }

    /// Plays a list of faults, one after another; none begins when their time is over.
    async fn befall(&self, plan: &Plan<WireFault>, begin: Instant) {
        for step in &plan.steps {
            sleep_until(begin + step.at).await;
            if begin.elapsed() >= plan.lasts {
                return;
            }
            let from = self.crew.time.now();
            let (hit, wiped, hindered) = self.apply(step).await;
            let to = self.crew.time.now();
            let kind = step.fault.kind();
            let heals = stamp(HEALS);
            let fault = Fault {
                kind,
                from,
                to,
                wiped,
                hindered,
                heals,
                hit,
            };
            self.history.add(Event {
                at: to,
                what: What::Fault(fault),
            });
        }
    }

    async fn apply(&self, step: &Step<WireFault>) -> (bool, Wiped, Hindered) {
        let Step { length, fault, .. } = step;
        match fault {
            WireFault::KillServer
            | WireFault::StopServer
            | WireFault::Pause
            | WireFault::Sleep
            | WireFault::KillClients(_)
            | WireFault::ForgetScripts
            | WireFault::Flush
            | WireFault::Wipe(_)
            | WireFault::OutOfMemory
            | WireFault::Deny => self.on_server(fault, *length).await,
            WireFault::StopChild | WireFault::KillChild => self.on_child(fault, *length).await,
            WireFault::Block => {
                let length = *length;
                let blocked = tokio::spawn(async move { std::thread::sleep(length) });
                (blocked.await.is_ok(), Wiped::Nothing, Hindered::Process(0))
            }
            _ => {
                let hit = self.on_wire(fault, *length).await;
                (hit, Wiped::Nothing, Hindered::Everybody)
            }
        }
    }

    async fn on_server(&self, fault: &WireFault, length: Duration) -> (bool, Wiped, Hindered) {
        let mut server = self.server.lock().await;
        let ms = length.as_millis().max(1).to_string();
        let nothing = (true, Wiped::Nothing, Hindered::Everybody);
        match fault {
            WireFault::KillServer => {
                server.kill();
                sleep(length).await;
                server.restart().await;
                let wiped = if self.durable {
                    Wiped::Nothing
                } else {
                    Wiped::Everything
                };
                (true, wiped, Hindered::Everybody)
            }
            WireFault::StopServer => {
                server.stop();
                sleep(length).await;
                server.cont();
                nothing
            }
            WireFault::Pause => {
                server.cli(&["CLIENT", "PAUSE", &ms]).await;
                sleep(length).await;
                nothing
            }
            WireFault::Sleep => {
                let seconds = length.as_secs_f64().to_string();
                server.cli(&["DEBUG", "SLEEP", &seconds]).await;
                nothing
            }
            WireFault::KillClients(of) => (
                server.kill_clients(of).await > 0,
                Wiped::Nothing,
                Hindered::Everybody,
            ),
            WireFault::ForgetScripts => {
                server.cli(&["SCRIPT", "FLUSH"]).await;
                (true, Wiped::Nothing, Hindered::Nobody)
            }
            WireFault::Flush => {
                server.cli(&["FLUSHALL"]).await;
                (true, Wiped::Everything, Hindered::Nobody)
            }
            WireFault::Wipe(key) => {
                let hit = wipe(&server, key).await;
                (hit, Wiped::One(key.clone()), Hindered::Nobody)
            }
            WireFault::OutOfMemory => {
                server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
                sleep(length).await;
                server.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
                nothing
            }
            _ => {
                server
                    .cli(&["ACL", "SETUSER", "default", "-evalsha", "-eval"])
                    .await;
                sleep(length).await;
                server
                    .cli(&["ACL", "SETUSER", "default", "+evalsha", "+eval"])
                    .await;
                nothing
            }
        }
    }

    /// Whether it met anything.
    async fn on_wire(&self, fault: &WireFault, length: Duration) -> bool {
        let lasting = async |fault: proxy::Fault| {
            sleep(length).await;
            fault.lift();
            fault.hits() > 0
        };
        match fault {
            WireFault::Flow(select, way, flow) => {
                if *select == Select::NEW {
                    // Else there would be none.
                    let _open = self.proxy.cut(Select::SUBSCRIBERS);
                }
                lasting(self.proxy.flow(*select, *way, *flow)).await
            }
            WireFault::Cut(select) => self.proxy.cut(*select) > 0,
            WireFault::CutAfter(way, bytes) => {
                lasting(self.proxy.cut_after(Select::ALL, *way, *bytes)).await
            }
            WireFault::Close(way) => self.proxy.fin(Select::ALL, *way) > 0,
            WireFault::Refuse => {
                let fault = self.proxy.refuse();
                let _open = self.proxy.cut(Select::ALL);
                lasting(fault).await
            }
            WireFault::EatReply => {
                lasting(self.proxy.eat_reply(Select::COMMANDS, Which::NEXT)).await
            }
            _ => {
                let held = self.proxy.hold(Select::COMMANDS, Which::NEXT);
                sleep(length).await;
                match held.try_caught() {
                    Ok(caught) => drop(caught.deliver().await),
                    Err(_trap) => return false,
                }
                true
            }
        }
    }

    async fn on_child(&self, fault: &WireFault, length: Duration) -> (bool, Wiped, Hindered) {
        let mut children = self.children.lock().await;
        // The oldest first, so that each has its turn.
        let mut child = children.remove(0);
        let stopped = Hindered::Process(child.number);
        if matches!(fault, WireFault::StopChild) {
            child.process.stop();
            sleep(length).await;
            child.process.cont();
            children.push(child);
            return (true, Wiped::Nothing, stopped);
        }
        let at = self.crew.time.now();
        child.process.kill();
        let killed = What::Killed {
            process: child.number,
        };
        let _read = child.reader.await;
        self.history.add(Event { at, what: killed });
        children.push(self.start_child());
        (true, Wiped::Nothing, stopped)
    }

    /// Waits for the children, and tells what is wrong with them.
    async fn children_end(&self) -> Vec<String> {
        let mut odd = Vec::new();
        for mut child in self.children.lock().await.drain(..) {
            let status = child.process.wait(UNDISTURBED + QUIET).await;
            let _read = child.reader.await;
            let said = child.process.stderr();
            if !status.success() || !said.is_empty() {
                odd.push(format!("process {}: {status}, {said}", child.number));
            }
        }
        odd
    }

    /// What is left some time after the last operation, if anything is.
    async fn left(self) -> Option<String> {
        let quiet = Instant::now() + QUIET;
        let server = self.server.into_inner();
        let mut clients = self.clients;
        loop {
            let sizes: Vec<Sizes> = clients.iter().map(sizes).collect();
            let (keys, channels) = (server.keys().await, server.pubsub_channels().await);
            let idle = sizes.iter().all(|size| *size == Sizes::default());
            if idle && keys.is_empty() && channels.is_empty() {
                clients.clear();
                let lines = server.client_list().await;
                if lines.iter().all(|line| line.is_harness()) {
                    return None;
                }
            }
            if Instant::now() > quiet {
                let lines = server.client_list().await;
                return Some(format!("{sizes:?}, {keys:?}, {channels:?}, {lines:?}"));
            }
            sleep(LEASE / 20).await;
        }
    }
}

/// Takes a lock's data away as soon as there is any.
async fn wipe(server: &RedisServer, key: &str) -> bool {
    let mut redis = server.connection().await;
    for _ in 0..100 {
        let deleted: u64 = redis.del(key).await.expect("the server answers");
        if deleted == 1 {
            return true;
        }
        sleep(LEASE / 1_000).await;
    }
    false
}

/// Resident memory of this process in KiB, and its open files.
#[must_use]
pub fn footprint() -> (u64, usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    (pages.unwrap_or_default() * 4, open_files())
}

//! The faults of runs on a real server, and the lists that seeds make of them.
//!
//! Three lists are played at the same time, each one fault after another: faults of the server and its data, of the wire,
//! and of the client processes.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fault_plan::{FaultPlan, PlannedFault};
use distlock_tests::proxy::{Flow, Select, Way};

/// A fault of a real server, its wire or a process.
#[derive(Clone, Debug)]
pub(super) enum WireFault {
    /// The server is killed, and started again afterwards.
    KillServer,
    /// The server is stopped, and continued afterwards.
    StopServer,
    /// `CLIENT PAUSE`.
    Pause,
    /// `DEBUG SLEEP`.
    Sleep,
    /// `CLIENT KILL` of this type.
    KillClients(&'static str),
    /// `SCRIPT FLUSH`.
    ForgetScripts,
    /// `FLUSHALL`.
    Flush,
    /// `DEL` of one lock.
    Wipe(String),
    /// `maxmemory 1`.
    OutOfMemory,
    /// The user may run no scripts.
    Deny,
    /// Bytes are delayed, held up or cut into pieces.
    Flow(Select, Way, Flow),
    /// Connections are reset.
    Cut(Select),
    /// A connection is reset after so many bytes.
    CutAfter(Way, usize),
    /// Connections are closed in one direction.
    Close(Way),
    /// New connections are refused, and the present ones are reset.
    Refuse,
    /// A command takes effect, and its reply is lost.
    EatReply,
    /// A command takes effect much later.
    Hold,
    /// A child process is stopped, and continued afterwards.
    StopChild,
    /// A child process is killed, and another one is started.
    KillChild,
    /// A thread of the tester's own runtime is blocked.
    Block,
}

impl WireFault {
    pub(super) fn kind(&self) -> String {
        let text = format!("{self:?}");
        match self {
            Self::Flow(_, _, flow) => format!("{flow:?}"),
            Self::KillClients(of) => format!("KillClients {of}"),
            _ => text,
        }
        .split(['(', ' '])
        .take(2)
        .filter(|word| word.chars().all(char::is_alphabetic))
        .collect::<Vec<_>>()
        .join(" ")
    }
}

/// The three lists of a seed.
#[derive(Clone, Debug)]
pub(super) struct FaultPlans {
    /// The server and its data.
    pub server: FaultPlan<WireFault>,
    /// The wire.
    pub wire: FaultPlan<WireFault>,
    /// The processes.
    pub processes: FaultPlan<WireFault>,
}

impl FaultPlans {
    /// A child process is killed each second, and nothing else happens.
    pub(super) fn of_kills(seed: u64, time: Duration) -> Self {
        let plan = |steps| FaultPlan {
            seed,
            lasts: time,
            steps,
        };
        let kill = |second| PlannedFault {
            at: Duration::from_secs(second),
            length: Duration::ZERO,
            fault: WireFault::KillChild,
        };
        Self {
            server: plan(Vec::new()),
            wire: plan(Vec::new()),
            processes: plan((1..=time.as_secs()).map(kill).collect()),
        }
    }
}

/// How many faults of each list a run gets in twelve seconds.
const FAULTS: [f64; 3] = [16.0, 20.0, 12.0];

/// The faults of a seed, over `time`, for locks with this lease. Without subscriptions no fault is aimed at subscribers,
/// since it would meet nothing.
#[must_use]
pub(super) fn plans(
    seed: u64,
    time: Duration,
    lease: Duration,
    keys: &[String],
    subscribes: bool,
) -> FaultPlans {
    let mut random = StdRng::seed_from_u64(seed);
    let mut list = |steps: u32, draw: &dyn Fn(&mut StdRng) -> (WireFault, f64)| {
        let mut steps: Vec<_> = (0..steps)
            .map(|_| {
                let at = time.mul_f64(random.random());
                let (fault, leases) = draw(&mut random);
                let length = lease.mul_f64(leases * random.random::<f64>());
                PlannedFault { at, length, fault }
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        FaultPlan {
            seed,
            lasts: time,
            steps,
        }
    };
    let [servers, wires, processes] =
        FAULTS.map(|faults| (faults * time.as_secs_f64() / 12.0).round() as u32);
    FaultPlans {
        server: list(servers, &|random| server_fault(random, keys, subscribes)),
        wire: list(wires, &|random| wire_fault(random, subscribes)),
        processes: list(processes, &process_fault),
    }
}

/// A fault, and how many leases it lasts at most.
fn server_fault(random: &mut StdRng, keys: &[String], subscribes: bool) -> (WireFault, f64) {
    let subscribers = if subscribes { "pubsub" } else { "normal" };
    let key = &keys[random.random_range(0..keys.len())];
    match random.random_range(0..100) {
        0..12 => (WireFault::KillServer, 0.3),
        12..20 => (WireFault::StopServer, 0.5),
        20..24 => (WireFault::StopServer, 2.0),
        24..32 => (WireFault::Pause, 0.5),
        32..36 => (WireFault::Sleep, 0.5),
        36..44 => (WireFault::KillClients("normal"), 0.0),
        44..54 => (WireFault::KillClients(subscribers), 0.0),
        54..62 => (WireFault::ForgetScripts, 0.0),
        62..67 => (WireFault::Flush, 0.0),
        67..87 => (WireFault::Wipe(key.clone()), 0.0),
        87..94 => (WireFault::OutOfMemory, 0.3),
        _ => (WireFault::Deny, 0.2),
    }
}

fn wire_fault(random: &mut StdRng, subscribes: bool) -> (WireFault, f64) {
    let selects = [
        Select::ALL,
        Select::EXISTING,
        Select::NEW,
        if subscribes {
            Select::SUBSCRIBERS
        } else {
            Select::ALL
        },
        Select::COMMANDS,
    ];
    let select = selects[random.random_range(0..selects.len())];
    let way = [Way::Up, Way::Down, Way::Both][random.random_range(0..3)];
    let ms = Duration::from_millis(random.random_range(5..200));
    let bytes = random.random_range(1..2_000);
    match random.random_range(0..100) {
        0..15 => (WireFault::Flow(select, way, Flow::Stall), 0.4),
        15..30 => (WireFault::Flow(select, way, Flow::Delay(ms)), 0.4),
        30..36 => (WireFault::Flow(select, way, Flow::Throttle(20_000)), 0.3),
        36..42 => (WireFault::Flow(select, way, Flow::Rechunk(1)), 0.3),
        42..54 => (WireFault::Cut(select), 0.0),
        54..64 => (WireFault::CutAfter(way, bytes), 0.2),
        64..72 => (WireFault::Close(way), 0.0),
        72..78 => (WireFault::Refuse, 0.3),
        78..90 => (WireFault::EatReply, 0.2),
        _ => (WireFault::Hold, 0.5),
    }
}

fn process_fault(random: &mut StdRng) -> (WireFault, f64) {
    match random.random_range(0..10) {
        0..5 => (WireFault::StopChild, 0.5),
        5..6 => (WireFault::StopChild, 2.0),
        6..8 => (WireFault::KillChild, 0.0),
        _ => (WireFault::Block, 0.2),
    }
}

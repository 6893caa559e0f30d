//! The lists of faults that seeds make for runs on real servers.
//!
//! Three lists are played at the same time, each one fault after another: faults of the servers and their data, of the wire,
//! and of the client processes. On a cluster and on a set with Sentinels, a fault of the wire concerns the clients' connections
//! to one server, and leaves alone what the servers have among each other.

use std::ops::Range;
use std::time::Duration;

use distlock_tests::proxy::{Flow, Role, Select, Way};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::ground::Ground;
use super::wire_fault::WireFault;
use crate::fault_plan::{FaultPlan, PlannedFault};

/// How long a master serves without replicas before it is killed.
pub(super) const UNREPLICATED: Duration = Duration::from_millis(500);

/// The time between two faults of a cluster or of a set with Sentinels.
const CALM: Duration = Duration::from_millis(300);

/// The time between two faults of the wire there. In between, only other faults explain what goes wrong.
const WIRE_CALM: Duration = Duration::from_millis(1_500);

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

/// How many faults of each list a run on a single server gets in twelve seconds.
const FAULTS: [f64; 3] = [16.0, 20.0, 12.0];

/// The faults of a seed, over `time`. Without subscriptions no fault is aimed at subscribers, since it would meet nothing.
#[must_use]
pub(super) fn plans(
    (ground, seed): (Ground, u64),
    time: Duration,
    keys: &[String],
    subscribes: bool,
) -> FaultPlans {
    let mut random = StdRng::seed_from_u64(seed);
    let lease = ground.lease();
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
    match ground {
        Ground::Server => FaultPlans {
            server: list(servers, &|random| server_fault(random, keys, subscribes)),
            wire: list(wires, &|random| wire_fault(random, subscribes)),
            processes: list(processes, &process_fault),
        },
        Ground::Cluster | Ground::Sentinel => FaultPlans {
            processes: list(processes / 2, &|random| match ground {
                // A process that stood still during a failover may reach the old master before it hears of the new one.
                Ground::Sentinel => running_process_fault(random),
                _ => process_fault(random),
            }),
            // Not before the first kill of a master, which the clients meet with connections that work.
            wire: in_rounds(
                (!seed).rotate_left(1),
                time / 3..time,
                lease,
                WIRE_CALM,
                |random| wire_faults(random, subscribes).to_vec(),
            ),
            server: in_rounds(!seed, CALM..time, lease, CALM, |random| match ground {
                Ground::Sentinel => sentinel_faults(random, keys).to_vec(),
                _ => cluster_faults(random, keys).to_vec(),
            }),
        },
    }
}

/// Rounds of faults in this time, and how long it is `calm` between two of them. The first fault of a round stays the first,
/// so that each run has it, and the others are shuffled.
fn in_rounds(
    seed: u64,
    time: Range<Duration>,
    lease: Duration,
    calm: Duration,
    round: impl Fn(&mut StdRng) -> Vec<(WireFault, f64)>,
) -> FaultPlan<WireFault> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut at, mut steps) = (time.start, Vec::new());
    while at < time.end {
        let mut faults = round(&mut random);
        faults[1..].shuffle(&mut random);
        for (fault, leases) in faults {
            let length = lease.mul_f64(leases * random.random::<f64>());
            steps.push(PlannedFault { at, length, fault });
            at += length + calm;
        }
    }
    FaultPlan {
        seed,
        lasts: time.end,
        steps,
    }
}

/// A round of faults of a cluster, and how many leases each lasts at most. The first keys are the busiest.
fn cluster_faults(random: &mut StdRng, keys: &[String]) -> [(WireFault, f64); 10] {
    let mut key = || keys[random.random_range(0..keys.len())].clone();
    let (hot, moved, left, failed, killed, stopped, lost) =
        (keys[0].clone(), key(), key(), key(), key(), key(), key());
    let joined = keys[..JOINED_SLOTS].to_vec();
    let lost = WireFault::LoseShard {
        key: lost,
        killed: random.random_bool(0.5),
    };
    [
        kill_master(random, killed),
        (WireFault::MoveSlot(hot.clone()), 0.0),
        (WireFault::MoveSlot(moved), 0.0),
        (WireFault::MoveSlot(hot), 0.0),
        (WireFault::LeaveSlot(left), 0.6),
        (WireFault::JoinNode(joined), 0.4),
        (WireFault::FailOver(failed), 0.0),
        (WireFault::KillClients("all"), 0.0),
        (WireFault::StopMaster(stopped), 0.5),
        (lost, 0.0),
    ]
}

/// How many slots a node gets that joins.
pub(super) const JOINED_SLOTS: usize = 3;

/// A round of faults of the wire to several servers, and how many leases each lasts at most.
fn wire_faults(random: &mut StdRng, subscribes: bool) -> [(WireFault, f64); 7] {
    let mut listens = || subscribes && random.random_bool(0.3);
    let [stalled, delayed, slow, cut] = [(); 4].map(|()| {
        if listens() {
            Select::SUBSCRIBERS
        } else {
            Select::COMMANDS
        }
    });
    let way = [Way::Up, Way::Down, Way::Both][random.random_range(0..3)];
    let slowly = [Flow::Throttle(20_000), Flow::Rechunk(1)][random.random_range(0..2)];
    let delay = Flow::Delay(Duration::from_millis(random.random_range(5..200)));
    [
        // The client needs up to six seconds to notice that of messages, which the row f28 shows.
        (WireFault::Silence(Role::Commands), 0.0),
        (WireFault::Flow(stalled, way, Flow::Stall), 0.4),
        (WireFault::Flow(delayed, way, delay), 0.4),
        (WireFault::Flow(slow, way, slowly), 0.3),
        (WireFault::Cut(cut), 0.0),
        (WireFault::EatReply, 0.2),
        (WireFault::Hold, 0.3),
    ]
}

/// A round of faults of a set with Sentinels, and how many leases each lasts at most.
fn sentinel_faults(random: &mut StdRng, keys: &[String]) -> [(WireFault, f64); 6] {
    let key = || keys[0].clone();
    [
        kill_master(random, key()),
        (WireFault::FailOver(key()), 0.0),
        (WireFault::KillSentinels(random.random_range(1..=3)), 0.5),
        (WireFault::KillClients("normal"), 0.0),
        (WireFault::KillClients("pubsub"), 0.0),
        (WireFault::StopMaster(key()), 0.3),
    ]
}

fn kill_master(random: &mut StdRng, key: String) -> (WireFault, f64) {
    let unreplicated = random.random_bool(0.7);
    (WireFault::KillMaster { key, unreplicated }, 0.0)
}

fn running_process_fault(random: &mut StdRng) -> (WireFault, f64) {
    match random.random_range(0..10) {
        0..5 => (WireFault::KillChild, 0.0),
        _ => (WireFault::Block, 0.1),
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

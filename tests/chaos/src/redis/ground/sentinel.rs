//! A master with replicas, and the Sentinels that watch them.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::promotions::Planned;
use super::{Effect, LEFT_AFTER, names};
use crate::Workload;
use crate::fault_plan::PlannedFault;
use crate::history::{Affected, Timestamp};
use crate::redis::plan::UNREPLICATED;
use crate::redis::wire_fault::WireFault;
use crate::redis::wires::Wires;
use crate::time::timestamp;
use distlock_tests::SentinelSet;
use distlock_tests::pulse::monotonic_nanos;
use distlock_tests::server::RedisServer;

/// How long a server may be late before a Sentinel counts it as down, in milliseconds. Tests share the machine, and a Sentinel
/// that has just heard of a new master asks it only once a second.
const DOWN_AFTER: &str = "1500";

/// Sentinels do not replace a master so soon after they have replaced another one: twice their `failover-timeout`.
const BETWEEN_FAILOVERS: Duration = Duration::from_secs(6);

/// After this time all Sentinels have heard from the one that has made another server the master.
const HEARS_AFTER: Duration = Duration::from_secs(2);

/// What a Sentinel logs when another server becomes the master.
const SWITCHED: &str = "+switch-master";

/// How many Sentinels a set has.
const SENTINELS: usize = 3;

/// How many servers a set has.
const SERVERS: usize = 3;

/// A master, two replicas and three Sentinels.
#[derive(Debug)]
pub(in crate::redis) struct Sentinels {
    set: SentinelSet,
    /// The names that the locks of the run have in the servers.
    names: Vec<String>,
    /// The failovers that the faults have caused, and when the last one was.
    planned: Planned,
    last_failover: Option<Instant>,
}

impl Sentinels {
    pub(super) async fn start(workload: &Workload) -> Self {
        let builder = SentinelSet::builder();
        let builder = builder.sentinel_setting("down-after-milliseconds", DOWN_AFTER);
        let builder = builder.proxies(true);
        Self {
            set: builder.start().await,
            names: names(workload),
            planned: Planned::default(),
            last_failover: None,
        }
    }

    pub(super) fn url(&self) -> String {
        self.set.url()
    }

    pub(super) fn wires(&self) -> Wires {
        let wires = Wires::default();
        (0..SERVERS).for_each(|at| wires.add(self.set.proxy(at)));
        wires
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        let servers = (0..SERVERS).map(|at| self.set.server(at));
        servers.filter(|server| server.runs())
    }

    pub(super) fn sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        (0..SENTINELS).map(|at| self.set.sentinel(at))
    }

    /// Servers that came back believe that they are the master, and the Sentinels would leave that so for ten seconds. What
    /// clients do meanwhile has been seen by then.
    pub(super) async fn ready_for(&self, fault: &WireFault) {
        let master = self.set.server(self.set.master().await).port();
        for server in self.servers().filter(|server| server.port() != master) {
            if server.info("replication").await["role"] == "master" {
                let replicate = ["REPLICAOF", "127.0.0.1", &master.to_string()];
                server.cli(&replicate).await;
            }
        }
        self.set.wait_until_stable().await;
        if let (true, Some(last)) = (fault.fails_over(), self.last_failover) {
            sleep_until(last + BETWEEN_FAILOVERS).await;
        }
    }

    pub(super) fn unplanned_failovers(&self) -> Vec<Effect> {
        let mut switches: Vec<_> = self
            .sentinels()
            .flat_map(|sentinel| sentinel.logged(SWITCHED))
            .collect();
        switches.sort();
        // Each Sentinel tells of each new master. One that was killed may tell of it much later.
        let (mut master, mut promotions) = (None, Vec::new());
        for (at, line) in &switches {
            let port = line.rsplit(' ').next();
            if port != master {
                master = port;
                promotions.push(*at);
            }
        }
        let unplanned = self.planned.without(promotions).into_iter();
        unplanned
            .map(|at| {
                // All of them have told of it by then.
                let hears = at + timestamp(HEARS_AFTER);
                Effect::unplanned_failover(self.names.clone(), hears, LEFT_AFTER)
            })
            .collect()
    }

    pub(super) async fn apply(
        &mut self,
        step: &PlannedFault<WireFault>,
        is_cut_off: impl Fn(&str),
    ) -> Effect {
        let PlannedFault { length, fault, .. } = step;
        match fault {
            WireFault::FailOver(_) => {
                let from = monotonic_nanos();
                self.set.fail_over().await;
                let to = monotonic_nanos();
                self.replaced(from, to);
                // The old master goes on granting, and the clients leave it when they hear of the new one.
                let until = to + timestamp(LEFT_AFTER);
                Effect::failover(self.names.clone(), (from, until), to)
            }
            WireFault::KillMaster { key, unreplicated } => {
                if *unreplicated {
                    self.set.cut_replicas().await;
                    is_cut_off(key);
                    sleep(UNREPLICATED).await;
                }
                self.kill_master().await
            }
            WireFault::StopMaster(_) => {
                let master = self.set.master().await;
                let from = monotonic_nanos();
                self.set.server_mut(master).stop();
                self.set.master_after(master).await;
                let to = monotonic_nanos();
                self.replaced(from, to);
                sleep(*length).await;
                self.set.server_mut(master).cont();
                let until = to + timestamp(LEFT_AFTER);
                Effect::failover(self.names.clone(), (from, until), to)
            }
            WireFault::KillSentinels(many) => {
                for sentinel in 0..*many {
                    self.set.sentinel_mut(sentinel).kill();
                }
                sleep(*length).await;
                for sentinel in 0..*many {
                    self.set.sentinel_mut(sentinel).restart().await;
                }
                Effect::of(Affected::Nobody)
            }
            WireFault::KillClients(client_type) => {
                let master = self.set.master().await;
                let killed = self.set.server(master).kill_clients(client_type).await;
                Effect::outage().met(killed > 0)
            }
            other => panic!("{other:?} is no fault of Sentinels"),
        }
    }

    /// Kills the master, waits until another server is the master, and starts the old one again.
    async fn kill_master(&mut self) -> Effect {
        let master = self.set.master().await;
        let from = monotonic_nanos();
        self.set.server_mut(master).kill();
        let until = monotonic_nanos();
        self.set.reconnect_replicas();
        self.set.master_after(master).await;
        let to = monotonic_nanos();
        self.replaced(from, to);
        self.set.server_mut(master).restart().await;
        Effect::failover(self.names.clone(), (from, until), to)
    }

    fn replaced(&mut self, from: Timestamp, to: Timestamp) {
        self.planned.add(from, to);
        self.last_failover = Some(Instant::now());
    }
}

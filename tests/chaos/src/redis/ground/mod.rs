//! What the clients of a run connect to: one server, a cluster, or a set of servers with Sentinels.

mod cluster;
mod promotions;
mod sentinel;
mod single;

use std::time::Duration;

use tokio::time::sleep;

use crate::Workload;
use crate::fault_plan::PlannedFault;
use crate::history::{Affected, Timestamp, Wiped};
use crate::time::timestamp;
use distlock_tests::server::{ClientLine, RedisServer};

use super::wire_fault::WireFault;
use super::wires::Wires;
use cluster::Cluster;
use sentinel::Sentinels;
use single::Single;

/// What the clients of a run connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// One server, behind a proxy.
    Server,
    /// A cluster of three masters with a replica each.
    Cluster,
    /// A master and two replicas, with three Sentinels.
    Sentinel,
}

/// Faults on one server are over when it is back.
const LEASE: Duration = Duration::from_secs(2);

/// Somewhat longer than a failover, so that what the old master has granted is still held when the new one grants.
const LEASE_OVER_FAILOVERS: Duration = Duration::from_secs(5);

/// When another server is the master, the clients may be granted something by the old one for so long.
const LEFT_AFTER: Duration = Duration::from_secs(1);

/// A master that no fault has stopped may have stood still for so long before its successor was known.
const REPLACED_WITHIN: Duration = Duration::from_secs(7);

/// Within this time clients ask a node that has joined.
const GROWN: Duration = Duration::from_secs(1);

impl Ground {
    /// The name of its runs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "redis",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }

    /// The watchdog's lease.
    pub(super) fn lease(self) -> Duration {
        match self {
            Self::Server => LEASE,
            Self::Cluster | Self::Sentinel => LEASE_OVER_FAILOVERS,
        }
    }

    /// For how long after a fault a key may still be free beside a waiter.
    ///
    /// A hold whose release failed ends by its lease. On one server, where the lease is short, a client that lost its
    /// connection may take as long again before it tries once more.
    pub(super) fn heals(self) -> Duration {
        match self {
            Self::Server => LEASE * 2,
            Self::Cluster | Self::Sentinel => LEASE_OVER_FAILOVERS,
        }
    }

    /// By this time after a connection has gone silent, the clients have another one: two commands went unanswered, each
    /// for a sixth of the lease.
    pub(super) fn notices(self) -> Duration {
        self.lease() / 3 + Duration::from_millis(500)
    }

    /// As [`heals`](Ground::heals), after a silence. Nothing was lost: what failed meanwhile is sent again.
    pub(super) fn heals_from_silence(self) -> Duration {
        self.lease() / 2
    }

    /// No hold, no connection and no process is left after this. Commands of unknown outcome are cleaned up for a lease.
    pub(super) fn quiet(self) -> Duration {
        self.heals() * 5 / 2
    }
}

/// What a fault did.
#[derive(Debug)]
pub(super) struct Effect {
    /// Whether it happened.
    pub(super) hit: bool,
    pub(super) wiped: Wiped,
    pub(super) affected: Affected,
    /// From when to when it lasted, if that is not the time that it took to inject it.
    pub(super) lasted: Option<(Timestamp, Timestamp)>,
    /// How long it takes to heal, if that is not as long as for other faults.
    pub(super) heals: Option<Duration>,
}

impl Effect {
    /// It kept all clients from the server, and took no data away.
    pub(super) fn outage() -> Self {
        Self {
            hit: true,
            wiped: Wiped::Nothing,
            affected: Affected::Everybody,
            lasted: None,
            heals: None,
        }
    }

    pub(super) fn met(self, hit: bool) -> Self {
        Self { hit, ..self }
    }

    /// It took data away, and kept nobody from the server.
    pub(super) fn loss(wiped: Wiped) -> Self {
        Self {
            wiped,
            affected: Affected::Nobody,
            ..Self::outage()
        }
    }

    /// The master of these locks was replaced. What it carried out `from` this time and `until` that may be gone, and `to`
    /// that time no master was known.
    pub(super) fn failover(
        keys: Vec<String>,
        (from, until): (Timestamp, Timestamp),
        to: Timestamp,
    ) -> Self {
        Self {
            wiped: Wiped::Unreplicated { keys, until },
            lasted: Some((from, to)),
            ..Self::outage()
        }
    }

    /// No fault asked for it. At the time `to` the new master was known, and the clients left the old one within `left_after`.
    fn unplanned_failover(keys: Vec<String>, to: Timestamp, left_after: Duration) -> Self {
        let from = to.saturating_sub(timestamp(REPLACED_WITHIN));
        let until = to + timestamp(left_after);
        Self::failover(keys, (from, until), to)
    }

    /// It concerned this.
    pub(super) fn of(affected: Affected) -> Self {
        Self {
            affected,
            ..Self::outage()
        }
    }
}

/// The servers of a run.
#[derive(Debug)]
pub(super) enum Servers {
    Single(Box<Single>),
    Cluster(Box<Cluster>),
    Sentinels(Box<Sentinels>),
}

impl Servers {
    /// Starts them. A `durable` single server keeps its data when it is killed.
    pub(super) async fn start(ground: Ground, durable: bool, workload: &Workload) -> Self {
        match ground {
            Ground::Server => {
                Self::Single(Box::new(Single::start(durable, workload.lock_kind).await))
            }
            Ground::Cluster => Self::Cluster(Box::new(Cluster::start(workload).await)),
            Ground::Sentinel => Self::Sentinels(Box::new(Sentinels::start(workload).await)),
        }
    }

    /// The URL of each server that a client connects to.
    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Self::Single(single) => single.urls(),
            Self::Cluster(cluster) => vec![cluster.url()],
            Self::Sentinels(set) => vec![set.url()],
        }
    }

    /// The wires to the servers. A single server has its URL afterwards.
    pub(super) async fn wires(&mut self) -> Wires {
        match self {
            Self::Single(single) => single.wires().await,
            Self::Cluster(cluster) => cluster.wires(),
            Self::Sentinels(set) => set.wires(),
        }
    }

    /// Waits until the servers are ready for this fault: a failover needs replicas that are connected.
    pub(super) async fn ready_for(&self, fault: &WireFault) {
        match self {
            Self::Single(_) => {}
            Self::Cluster(cluster) => cluster.ready().await,
            Self::Sentinels(set) => set.ready_for(fault).await,
        }
    }

    /// Injects a fault. `is_cut_off` is called with the name of a lock whose master is to be killed, when what the master
    /// grants reaches no replica any more.
    pub(super) async fn apply(
        &mut self,
        step: &PlannedFault<WireFault>,
        is_cut_off: impl Fn(&str),
    ) -> Effect {
        match self {
            Self::Single(single) => single.apply(step).await,
            Self::Cluster(cluster) => cluster.apply(step, is_cut_off).await,
            Self::Sentinels(set) => set.apply(step, is_cut_off).await,
        }
    }

    /// A node joins a cluster for good and gets the slots of these keys, while all else is well. That must cost nothing.
    pub(super) async fn grow(&mut self, keys: &[String]) -> Option<Effect> {
        let Self::Cluster(cluster) = self else {
            return None;
        };
        cluster.ready().await;
        let node = cluster.add(keys).await;
        sleep(GROWN).await;
        let asked = cluster.is_asked(node).await;
        Some(Effect::of(Affected::Unnoticed).met(asked))
    }

    /// The failovers that no fault asked for: the machine was slower than the servers' patience.
    pub(super) fn unplanned_failovers(&self) -> Vec<Effect> {
        match self {
            Self::Single(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.unplanned_failovers(),
            Self::Sentinels(set) => set.unplanned_failovers(),
        }
    }

    /// The servers that have data, as far as they run.
    pub(super) fn with_data(&self) -> Vec<&RedisServer> {
        match self {
            Self::Single(single) => single.servers().collect(),
            Self::Cluster(cluster) => cluster.servers().collect(),
            Self::Sentinels(set) => set.servers().collect(),
        }
    }

    /// The connections of clients. What the servers have among each other does not count.
    pub(super) async fn connections(&self) -> Vec<ClientLine> {
        let others = match self {
            Self::Sentinels(set) => set.sentinels().collect(),
            Self::Single(_) | Self::Cluster(_) => Vec::new(),
        };
        let mut open = Vec::new();
        for server in self.with_data().into_iter().chain(others) {
            open.extend(server.client_list().await);
        }
        open.retain(|line| !line.is_harness() && !is_of_a_server(line));
        open
    }
}

/// Whether a replica, its master or a Sentinel has this connection.
fn is_of_a_server(line: &ClientLine) -> bool {
    let is_replication = line.field("flags").contains(['M', 'S']);
    is_replication || line.field("name").starts_with("sentinel-")
}

/// The names that locks of these keys have in the servers.
fn names(workload: &Workload) -> Vec<String> {
    let others = workload
        .keys
        .iter()
        .map(|key| crate::worker::other_key(key));
    workload.keys.iter().cloned().chain(others).collect()
}

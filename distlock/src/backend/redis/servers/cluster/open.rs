//! The first look at a cluster: how its nodes publish, and which slots they have. Commands wait until that is known.

use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::Cluster;
use super::greet::greet;
use super::map::no_map;
use crate::backend::redis::connection::{Address, ConnectedGauge, OutageLog, ReconnectPause};
use crate::backend::redis::servers::failed::{NodeFault, NodeFaults};
use crate::backend::{Disconnection, Fault, cause};
use crate::config::PubSub;
use crate::sync::on_demand::{OnDemandTask, RunningTask};
use crate::sync::task::boxed;
use crate::sync::{Unordered, foreign};
use crate::telemetry;

/// What the log calls the connections of this file.
const WHAT: &str = "cluster";

/// What is needed to look at a cluster for the first time, and how far that is.
pub(super) struct OpenState {
    seeds: Vec<Address>,
    pub(super) pub_sub: PubSub,
    since: Instant,
    /// The last failure. Its change tells that there was another try.
    failure: watch::Sender<Option<Fault>>,
    /// Somebody waits for it. Ends the pause after a try that was refused.
    wanted: Arc<Notify>,
    /// Tries repeatedly.
    task: OnDemandTask,
    /// Whether the client is gone.
    is_unneeded: watch::Sender<bool>,
    outages: Arc<OutageLog>,
}

impl OpenState {
    pub(super) fn new(seeds: Vec<Address>, pub_sub: PubSub, gauge: Arc<ConnectedGauge>) -> Self {
        let outages = Arc::new(OutageLog::new(names(&seeds), gauge, Arc::default()));
        Self {
            seeds,
            pub_sub,
            since: Instant::now(),
            failure: watch::Sender::new(None),
            wanted: Arc::default(),
            task: OnDemandTask::default(),
            is_unneeded: watch::Sender::new(false),
            outages,
        }
    }

    fn failure(&self) -> Fault {
        let none = || Fault::NotNow(cause("no connection to the cluster yet"));
        self.failure.borrow().clone().unwrap_or_else(none)
    }
}

/// The nodes of the URL, as the log and the gauge name them.
pub(super) fn names(seeds: &[Address]) -> String {
    let names: Vec<String> = seeds.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl Cluster {
    /// Connects to the first of the seeds that answers, and reads the map. An error has the name of the node.
    pub(crate) async fn open(&self, patience: Duration) -> Result<(), NodeFault> {
        let seeds = &self.opening.seeds;
        let publish = greet(seeds, &self.nodes.shared, self.opening.pub_sub, patience);
        self.nodes.set_publish(publish.await?);
        match timeout(patience, self.read_map(patience)).await {
            Ok(Ok(())) => {
                self.reaches_one().await?;
                // Channels that were subscribed before it was known which node has their slots.
                self.nodes.move_channels();
                self.nodes.end_left_subscriptions();
                self.nodes.set_open();
                self.keep_reading();
                self.watch_seeds();
                self.nodes.tell_first();
                Ok(())
            }
            Ok(Err(fault)) => Err(self.fault(fault)),
            Err(_) => Err(self.fault(no_map())),
        }
    }

    /// A fault that no single node is to blame for.
    fn fault(&self, fault: Fault) -> NodeFault {
        NodeFault {
            node: self.nodes.name(),
            fault,
        }
    }

    /// Whether one of the nodes with slots can be used. The node that was asked may be none of them, or announce another address
    /// than that of the URL. If there is no connection to any of them yet, all are connected to at the same time.
    async fn reaches_one(&self) -> Result<(), NodeFault> {
        let masters = self.nodes.masters();
        if masters.iter().any(|node| node.link().is_up()) {
            return Ok(());
        }
        let mut failures = NodeFaults::default();
        let patience = self.nodes.shared.connector.timeout();
        let mut connecting: Unordered<'_, _> = masters
            .iter()
            .map(|node| async move { (node, node.link().connected(patience).await) })
            .collect();
        while let Some((node, connected)) = connecting.next().await {
            let Err(fault) = connected else {
                return Ok(());
            };
            failures.add(NodeFault {
                node: node.name().to_owned(),
                fault: self.unreached(node, fault),
            });
        }
        failures.fault().map_or(Ok(()), Err)
    }

    /// The client is gone: a try to open it ends, which may hang.
    pub(crate) fn end_opening(&self) {
        foreign::send_modify(&self.opening.is_unneeded, |value| *value = true);
    }

    /// Begins to open it. The caller does not wait for it.
    pub(crate) fn begin_to_open(&self) {
        self.opening.outages.tell_first();
        self.open_in_background();
    }

    /// Completes when commands can be sent. Waits for that for at most the response timeout.
    pub(crate) async fn is_opened(&self) -> Result<(), Fault> {
        let opening = &self.opening;
        if self.nodes.is_open() {
            return Ok(());
        }
        let mut failure = opening.failure.subscribe();
        self.open_in_background();
        foreign::notify_own_task(&opening.wanted);
        let opened = async {
            while !self.nodes.is_open() {
                // What an earlier try met may be over by now, so only a change counts.
                let changed = foreign::contain_wakers(failure.changed());
                let is_closed = changed.await.is_err();
                if is_closed || failure.borrow().as_ref().is_some_and(Fault::is_refusal) {
                    return;
                }
            }
        };
        // Whether the time was over does not matter: the state that is read below decides.
        let _in_time = timeout(self.nodes.shared.response_timeout, opened).await;
        if self.nodes.is_open() {
            Ok(())
        } else {
            Err(opening.failure())
        }
    }

    /// How long it has not been opened, and why; `None` if it was.
    pub(crate) fn is_not_opened_for(&self) -> Option<Disconnection> {
        let opening = &self.opening;
        (!self.nodes.is_open()).then(|| Disconnection {
            server: self.nodes.name(),
            lasted: opening.since.elapsed(),
            fault: opening.failure(),
        })
    }

    /// Starts the task that opens it, unless it runs or there is no runtime to run it in.
    fn open_in_background(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if let Some(running) = self.opening.task.begin() {
            // Detached: the task has a weak reference, and ends when it finds the client gone.
            drop(runtime.spawn(boxed(open_at_last(Weak::clone(&self.this), running))));
        }
    }
}

/// Tries to open a cluster, with growing pauses, until that has succeeded or the client is dropped.
async fn open_at_last(this: Weak<Cluster>, _running: RunningTask) {
    let kept = |cluster: Arc<Cluster>| {
        let outages = Arc::clone(&cluster.opening.outages);
        (cluster.nodes.shared.longest_pause, outages)
    };
    let Some((longest, outages)) = this.upgrade().map(kept) else {
        return;
    };
    let mut pause = ReconnectPause::new(longest);
    loop {
        let Some(cluster) = this.upgrade() else {
            // The client was dropped in an outage, which nobody sees the end of.
            outages.forget();
            return;
        };
        let opening = &cluster.opening;
        if cluster.nodes.is_open() {
            return;
        }
        let patience = cluster.nodes.shared.connector.timeout();
        let mut unneeded = opening.is_unneeded.subscribe();
        let opened = tokio::select! {
            opened = cluster.open(patience) => opened,
            _ = unneeded.wait_for(|is_unneeded| *is_unneeded) => {
                outages.forget();
                return;
            }
        };
        let was_refused = match opened {
            Ok(()) => {
                // From now on each node shows its own outages, when it is used.
                opening.outages.established(WHAT);
                foreign::send_modify(&opening.failure, |value| *value = None);
                return;
            }
            Err(NodeFault { node, fault }) => {
                telemetry::connect_failed(
                    WHAT,
                    &format_args!("{node}: {}", fault.why()),
                    pause.next(),
                );
                opening.outages.failed(WHAT, &fault.why());
                let was_refused = fault.is_refusal();
                foreign::send_modify(&opening.failure, |value| *value = Some(fault));
                was_refused
            }
        };
        let wanted = Arc::clone(&opening.wanted);
        // Not held during the pause, so that the cluster can be dropped.
        drop(cluster);
        pause.sleep(was_refused, &wanted).await;
    }
}

//! Reads the map of a cluster, and what follows from a new one.
//!
//! The map is read by one task: with growing pauses after somebody found that it may be wrong, and otherwise every
//! [`MAP_INTERVAL`]. A client that sends nothing for a while would not hear of nodes that come and go, until it knows none
//! that is left.
//!
//! A node that is gone may leave its address to a node of another cluster, and the client goes on to connect there. So once the cluster
//! is open, a map without any node of the last one counts only if no node tells another one, and only from a seed, which is the user's
//! word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Cluster;
use super::greet::publish_of;
use super::nodes::Informant;
use super::topology::{ClusterMap, cluster_map};
use crate::backend::redis::connection::Address;
use crate::backend::redis::servers::failed::Failed;
use crate::backend::redis::servers::node::Sending;
use crate::backend::{Fault, cause};
use crate::config::{MAP_INTERVAL, MAP_NEXT_AFTER, MAP_PAUSE, MAP_TIMEOUT};
use crate::sync::on_demand::{OnDemandTask, RunningTask};
use crate::sync::random::random_range;
use crate::sync::task::boxed;
use crate::sync::{Unordered, foreign};
use crate::telemetry;

/// The task that reads the map, if it runs.
#[derive(Default)]
pub(super) struct MapReader {
    task: OnDemandTask,
    /// Somebody found that the map may be wrong.
    wanted: AtomicBool,
    wake: Notify,
}

/// The owners of the slots, as a node has told them.
struct ToldMap<'a> {
    map: ClusterMap,
    by: &'a Address,
    /// The nodes are those of another cluster.
    is_other: bool,
}

impl Cluster {
    /// Has the map read soon.
    pub(crate) fn want_map(&self) {
        let reader = &self.map_reader;
        // Release, and the wake-up after it: the task that is woken sees the flag.
        reader.wanted.store(true, Ordering::Release);
        foreign::notify_own_task(&reader.wake);
        self.keep_reading();
    }

    /// The client is gone: the task ends.
    pub(super) fn stop_reading(&self) {
        foreign::notify_own_task(&self.map_reader.wake);
    }

    /// Starts the task that reads the map, unless it runs or there is no runtime to run it in.
    pub(super) fn keep_reading(&self) {
        let reader = &self.map_reader;
        if reader.task.is_running() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if let Some(running) = reader.task.begin() {
            let this = Weak::clone(&self.this);
            let reader = Arc::clone(reader);
            // Detached: the task has a weak reference, and ends when it finds the client gone.
            drop(runtime.spawn(boxed(read_again_and_again(this, reader, running))));
        }
    }

    /// Reads the map from the first node that answers with one. Each has this time to connect and to answer.
    pub(super) async fn read_map(&self, patience: Duration) -> Result<(), Fault> {
        // Before the question: the client may go to another cluster until the answer comes.
        let moves = self.nodes.moves();
        let [informants, cut_off] = self.nodes.informants();
        let ToldMap { map, by, .. } = match self.first_map(&informants, patience).await {
            Ok(told) if !told.is_other => told,
            first if cut_off.is_empty() => first?,
            first => {
                let last = self.first_map(&cut_off, patience).await;
                last.or_else(|fault| first.map_err(|_| fault))?
            }
        };
        let publish = if self.nodes.is_open() && !self.nodes.has_one_of(&map.owned) {
            // All nodes are others than before, as behind a name that leads to another cluster. They may publish in another way.
            publish_of(&self.nodes.node_at(by), self.opening.pub_sub, patience).await?
        } else {
            self.nodes.publishes()
        };
        if self.nodes.replace(map, publish, moves) {
            Ok(())
        } else {
            Err(no_map())
        }
    }

    /// The map of the first of these nodes that answers with one of the present cluster. If none does, the first map of another
    /// cluster that a seed has told.
    async fn first_map<'a>(
        &self,
        informants: &'a [Informant],
        patience: Duration,
    ) -> Result<ToldMap<'a>, Fault> {
        let mut next = informants.iter();
        let mut asked = Unordered::default();
        let mut fault = no_map();
        let mut of_other = None;
        loop {
            // Once a map of another cluster is there, it depends on all the rest whether it counts.
            let mut others_after = if of_other.is_some() {
                Duration::ZERO
            } else {
                patience
            };
            if let Some(informant) = next.next() {
                if !informant.is_up {
                    // It may never answer, so the next one is asked soon.
                    others_after = MAP_NEXT_AFTER.min(others_after);
                }
                asked.push(self.read_map_from(informant, patience));
            }
            let answer = tokio::select! {
                answer = asked.next() => answer,
                // The next node is asked beside those that have not answered yet.
                () = sleep(others_after), if next.len() > 0 => continue,
            };
            match answer {
                Some(Ok(told)) if !told.is_other => return Ok(told),
                Some(Ok(told)) => {
                    telemetry::map_of_other_cluster(told.by);
                    if self.seeds.has_address(told.by) {
                        of_other.get_or_insert(told);
                    }
                }
                // Says more than that another node does not answer.
                Some(Err(denied @ Fault::Denied(..))) => fault = denied,
                Some(Err(_)) => {}
                None => return of_other.ok_or(fault),
            }
        }
    }

    async fn read_map_from<'a>(
        &self,
        informant: &'a Informant,
        patience: Duration,
    ) -> Result<ToldMap<'a>, Fault> {
        let Informant {
            address, is_seed, ..
        } = informant;
        // A connection to a seed may take longer than this question. It is kept, so that the next question finds it. Nothing is forgotten
        // before the first map, and a seed that is away when it has come is no node in an outage.
        let node = if *is_seed && self.nodes.is_open() {
            self.nodes.visit(address)
        } else {
            self.nodes.node_at(address)
        };
        let sending = Sending {
            asking: false,
            script: 0,
            track: None,
            patience,
        };
        let slots = |_| {
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            slots
        };
        match node.send_here(sending, &slots).await {
            Ok(answer) => {
                let map = cluster_map(&answer, address).ok_or_else(no_map)?;
                Ok(ToldMap {
                    // Before the opening nothing was granted, so the client goes to whatever cluster there is.
                    is_other: self.nodes.is_open() && self.nodes.is_other_cluster(&map),
                    map,
                    by: address,
                })
            }
            Err(Failed::With(fault)) => Err(fault),
            Err(_) => Err(no_map()),
        }
    }
}

pub(crate) fn no_map() -> Fault {
    Fault::NotNow(cause("no node tells which slots the nodes have"))
}

/// Reads the map when that is wanted, and every now and then, until the client is gone. Also forgets the nodes that nobody
/// needs.
async fn read_again_and_again(this: Weak<Cluster>, reader: Arc<MapReader>, _running: RunningTask) {
    let mut pause = MAP_PAUSE.first;
    let mut due = next_look();
    loop {
        let Some(cluster) = this.upgrade() else {
            return;
        };
        // Before the map is read: a wish that comes meanwhile is not lost. AcqRel: pairs with the store in `want_map`.
        let is_wanted = reader.wanted.swap(false, Ordering::AcqRel);
        if is_wanted || Instant::now() >= due {
            // Without an answer: the next command that is sent elsewhere wants the map again, and the interval ends anyway.
            let _was_answered = cluster.read_map(MAP_TIMEOUT).await;
            cluster.nodes.end_left_subscriptions();
            due = next_look();
        }
        cluster.nodes.forget();
        // Not held during the pause, so that the cluster can be dropped.
        drop(cluster);
        if is_wanted {
            sleep(pause).await;
            pause = (pause * 2).min(MAP_PAUSE.longest);
        }
        // Acquire, here and below: pairs with the store in `want_map`.
        if !reader.wanted.load(Ordering::Acquire) {
            // The pauses are short again only after the map was right for a while.
            let quiet = timeout(MAP_PAUSE.longest, reader.wake.notified())
                .await
                .is_err();
            if quiet && !reader.wanted.load(Ordering::Acquire) {
                pause = MAP_PAUSE.first;
                // Either way the map is read next: because somebody wants it, or because the interval is over.
                let _was_woken = timeout_at(due, reader.wake.notified()).await;
            }
        }
    }
}

/// When the map is to be read again, if nobody finds before that it may be wrong. Jitter: many clients that were started
/// together do not continue at the same moments.
fn next_look() -> Instant {
    Instant::now() + MAP_INTERVAL.mul_f64(random_range(0.7..1.0))
}

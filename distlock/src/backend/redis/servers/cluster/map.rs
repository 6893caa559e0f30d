//! Reads the map of a cluster, and what follows from a new one.
//!
//! The map is read by one task: with growing pauses after somebody found that it may be wrong, and otherwise every
//! [`MAP_INTERVAL`]. A client that sends nothing for a while would not hear of nodes that come and go, until it knows none
//! that is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::slots::OwnedSlots;
use super::topology::owned_slots;
use super::{Cluster, State};
use crate::backend::redis::connection::Address;
use crate::backend::redis::messages::ServerNumber;
use crate::backend::redis::script::Publish;
use crate::backend::redis::servers::failed::Failed;
use crate::backend::redis::servers::node::Sending;
use crate::backend::redis::slot::slot_of;
use crate::backend::{Fault, cause};
use crate::config::{MAP_INTERVAL, MAP_NEXT_AFTER, MAP_PAUSE, MAP_TIMEOUT, NODE_LINGER};
use crate::foreign;
use crate::sync::Unordered;
use crate::sync::random::random_range;
use crate::task::{OnDemandTask, RunningTask, boxed};
use crate::telemetry;

/// A node to ask for the map.
struct Informant {
    address: Address,
    /// Whether the client is connected to it, so that it can answer at once.
    is_up: bool,
}

/// The task that reads the map, if it runs.
#[derive(Default)]
pub(super) struct MapReader {
    task: OnDemandTask,
    /// Somebody found that the map may be wrong.
    wanted: AtomicBool,
    wake: Notify,
}

impl Cluster {
    /// Slots have other owners: their channels move there, and what lives there is renewed.
    pub(super) fn changed(&self) {
        self.move_channels();
        self.shared.epochs.changed();
    }

    /// Has the channels subscribed at the nodes that have their slots.
    pub(super) fn move_channels(&self) {
        for (channel, number) in self.shared.subscriptions.servers() {
            let node = self.node(slot_of(&channel)).node;
            if node.number() != number && !self.hears_from(number) {
                node.subscriber().take_over(&channel);
            }
        }
    }

    /// Whether messages that are published at any node are heard at this one.
    fn hears_from(&self, number: ServerNumber) -> bool {
        let state = self.state.read();
        let owners = state.map.owners();
        let mut owners = owners.iter().filter_map(|owner| state.nodes.get(*owner));
        self.publishes() == Publish::Plain && owners.any(|node| node.number() == number)
    }

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
            drop(runtime.spawn(boxed(read_again_and_again(this, reader, running))));
        }
    }

    /// Reads the map from the first node that answers with one. Each has this time to connect and to answer.
    pub(super) async fn read_map(&self, patience: Duration) -> Result<(), Fault> {
        let informants = self.informants();
        // Before the question: the client may go to another cluster until the answer comes.
        let moves = self.state.read().moves;
        let mut next = informants.iter();
        let mut asked = Unordered::default();
        let mut fault = no_map();
        loop {
            let mut others_after = patience;
            if let Some(Informant { address, is_up }) = next.next() {
                if !is_up {
                    // It may never answer, so the next one is asked soon.
                    others_after = MAP_NEXT_AFTER.min(patience);
                }
                asked.push(self.read_map_from(address, patience));
            }
            let answer = tokio::select! {
                answer = asked.next() => answer,
                // The next node is asked beside those that have not answered yet.
                () = sleep(others_after), if next.len() > 0 => continue,
            };
            match answer {
                Some(Ok(owned)) => {
                    return if self.replace_map(&owned, moves) {
                        Ok(())
                    } else {
                        Err(no_map())
                    };
                }
                // Says more than that another node does not answer.
                Some(Err(denied @ Fault::Denied(_))) => fault = denied,
                Some(Err(_)) => {}
                None => return Err(fault),
            }
        }
    }

    /// The nodes to ask for the map, in this order. A seed that is asked becomes a node, which is forgotten again.
    ///
    /// Those that can be asked at once come first. If none of them answers with a map, all known nodes may have gone. The seeds are
    /// the user's word, and their names may lead to other nodes by now. So they take turns with the nodes that are not
    /// connected, of which there may be many.
    fn informants(&self) -> Vec<Informant> {
        let (mut owners, seeds) = {
            let state = self.state.read();
            let owners: Vec<Address> = state.map.owners().into_iter().cloned().collect();
            (owners, state.map.seeds_without_slots())
        };
        // Otherwise all clients would ask the same node.
        fastrand::shuffle(&mut owners);
        let is_up = |owner: &Address| self.node_at(owner).link().is_up();
        let (up, down): (Vec<_>, Vec<_>) = owners.into_iter().partition(is_up);
        let mut down = down.into_iter();
        let mut seeds = seeds.into_iter();
        let mut others = Vec::new();
        while down.len() + seeds.len() > 0 {
            others.extend(down.next());
            others.extend(seeds.next());
        }
        let informant = |is_up| move |address| Informant { address, is_up };
        let up = up.into_iter().map(informant(true));
        up.chain(others.into_iter().map(informant(false))).collect()
    }

    async fn read_map_from(
        &self,
        address: &Address,
        patience: Duration,
    ) -> Result<Vec<OwnedSlots>, Fault> {
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
        match self.node_at(address).send_here(sending, &slots).await {
            Ok(answer) => owned_slots(&answer, address).ok_or_else(no_map),
            Err(Failed::With(fault)) => Err(fault),
            Err(_) => Err(no_map()),
        }
    }

    /// Replaces the map by what a node has told that was asked when the client had moved so often. Returns whether that still
    /// holds.
    fn replace_map(&self, owned: &[OwnedSlots], moves: u64) -> bool {
        let number = self.shared.epochs.next();
        let mut state = self.state.write();
        if state.moves != moves {
            return false;
        }
        let is_changed = state.map.replace(owned, number);
        // The log and the tasks that are woken may run any code.
        drop(state);
        if is_changed {
            telemetry::slots_changed(&self.name());
            self.changed();
        }
        self.forget_nodes();
        true
    }

    /// Forgets the nodes that are needed no more. Their connections end when the last command over them is answered.
    fn forget_nodes(&self) {
        let now = self.shared.clock.now();
        let mut state = self.state.write();
        let State { map, nodes, .. } = &mut *state;
        let forgotten = map.take_forgotten(nodes.keys(), now, NODE_LINGER);
        let forgotten: Vec<_> = forgotten
            .iter()
            .filter_map(|address| nodes.remove(address))
            .collect();
        // The metrics learn that a node is forgotten, and foreign code never runs under this lock.
        drop(state);
        for node in &forgotten {
            node.forget();
        }
        if !forgotten.is_empty() {
            // Before they are dropped: their channels need another place.
            self.move_channels();
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
            let _was_answered = cluster.read_map(MAP_TIMEOUT).await;
            due = next_look();
        }
        cluster.forget_nodes();
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

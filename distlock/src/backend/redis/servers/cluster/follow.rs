//! How a command finds the node that has its slot. A node that does not have the slot says where it is.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use scopeguard::{ScopeGuard, guard};
use tokio::time::Instant;

use super::Cluster;
use super::nodes::SlotNode;
use super::redirect::Redirect;
use crate::backend::redis::messages::{ServerNumber, Slots};
use crate::backend::redis::reply::Elsewhere;
use crate::backend::redis::script::Form;
use crate::backend::redis::servers::failed::{Failed, moving};
use crate::backend::redis::servers::node::{Node, Sending};
use crate::backend::redis::tracking::Track;
use crate::backend::{Fault, cause};
use crate::config::{MAP_PAUSE, MOST_HOPS, TRY_AGAIN_PAUSE};

/// A command for the node that has a slot.
pub(super) struct SlotCommand<'a> {
    pub(super) slot: u16,
    pub(super) make: &'a (dyn Fn(Form) -> Cmd + Sync),
    /// The bit of the script, or 0 for another command.
    pub(super) script: u64,
    /// The keys that the node is to track beside it.
    pub(super) track: Option<Track<'a>>,
}

/// Where a command goes that a node has sent elsewhere.
pub(super) enum Next {
    /// To the owner of its slot.
    Owner,
    /// The same. The client has just learned it.
    NewOwner(u16),
    /// To this node, which has to be asked explicitly.
    Ask(Arc<Node>),
    /// To the owner of its slot that the next map tells.
    OwnerInNextMap,
}

impl Cluster {
    /// Sends a command to the node that has its slot, and to the nodes that it is sent to from there.
    pub(super) async fn follow(&self, command: SlotCommand<'_>) -> Result<Value, Fault> {
        let slot = command.slot;
        let give_up = Instant::now() + self.nodes.shared.response_timeout;
        let mut hops = 0;
        let mut pause = TRY_AGAIN_PAUSE.first;
        let mut asked = None;
        let mut was_sent = false;
        loop {
            // Taken: `ASKING` counts for one command, and the owner is asked for the next one.
            let (node, asking) = match asked.take() {
                Some(node) => (node, true),
                None => (self.reachable(slot, give_up).await?, false),
            };
            let sending = Sending {
                asking,
                script: command.script,
                track: command.track,
                // The first node has all the time, also if its connection took some.
                patience: if was_sent {
                    give_up.duration_since(Instant::now())
                } else {
                    self.nodes.shared.response_timeout
                },
            };
            was_sent = true;
            match self.send_to(&node, slot, sending, command.make).await {
                Ok(value) => return Ok(value),
                Err(Failed::Elsewhere(Elsewhere::TryAgain)) => {
                    // It lasts as long as the slot is on its way.
                    pause = sleep_before(give_up, pause).await?;
                }
                Err(Failed::Elsewhere(elsewhere)) => {
                    let next = self.sent_elsewhere(&node, &elsewhere)?;
                    if let Next::OwnerInNextMap = next {
                        pause = sleep_before(give_up, pause).await?;
                        continue;
                    }
                    hops += 1;
                    if hops > MOST_HOPS || Instant::now() >= give_up {
                        return Err(moving());
                    }
                    if let Next::Ask(node) = next {
                        asked = Some(node);
                    }
                }
                Err(Failed::NoScript) => {
                    return Err(Fault::NotNow(cause("the node did not keep the script")));
                }
                Err(Failed::With(fault)) => {
                    // The node may have gone or be cut off, and another one may have its slots.
                    if matches!(fault, Fault::Unknown(_)) || node.lacks_the_others() {
                        self.want_map();
                    }
                    return Err(fault);
                }
            }
        }
    }

    /// Sends a command to one node. A command behind `ASKING` whose outcome stays unknown has gone astray, also if this
    /// future is dropped.
    async fn send_to(
        &self,
        node: &Node,
        slot: u16,
        sending: Sending<'_>,
        make: &(dyn Fn(Form) -> Cmd + Sync),
    ) -> Result<Value, Failed> {
        // The command may be carried out later. No order between it and the commands at the slot's owner is known.
        let goes_astray = || guard(slot, |slot| self.nodes.went_astray(slot));
        // Not `then_some`: a guard that is made and dropped counts as a command that went astray.
        let astray = sending.asking.then(goes_astray);
        let answer = node.send_here(sending, make).await;
        if let Some(astray) = astray
            && !matches!(answer, Err(Failed::With(Fault::Unknown(_))))
        {
            ScopeGuard::into_inner(astray);
        }
        answer
    }

    /// The node that has a slot, once there is a connection to it. While there is none, another node may get the slot.
    async fn reachable(&self, slot: u16, give_up: Instant) -> Result<Arc<Node>, Fault> {
        loop {
            let SlotNode { node, .. } = self.nodes.node(slot);
            if node.link().is_up() {
                return Ok(node);
            }
            // The runtime in which it was started may have ended, as the connections of that runtime have.
            self.keep_reading();
            let left = give_up.duration_since(Instant::now());
            tokio::select! {
                // In this order: a node that is connected is asked, even if the slot has just moved. It says where to.
                biased;
                connected = node.link().connected(left) => match connected {
                    Ok(_) => return Ok(node),
                    Err(fault) => {
                        self.want_map();
                        return Err(self.unreached(&node, fault));
                    }
                },
                () = self.moved_from(slot, node.number()) => {}
            }
        }
    }

    /// The fault of a node that cannot be connected to, with where its address comes from.
    pub(crate) fn unreached(&self, node: &Node, fault: Fault) -> Fault {
        let source = if self.seeds.has(node.name()) {
            "an address of the URL"
        } else {
            "an address that the nodes of the cluster announce"
        };
        let name = format!("{}, {source}", node.name());
        match fault {
            Fault::NotNow(why) => Fault::NotNow(cause(format!("{name}, cannot be reached: {why}"))),
            Fault::LoginDenied(why) => Fault::LoginDenied(cause(format!("{name}: {why}"))),
            // It has the name.
            other => other,
        }
    }

    /// Completes when a slot is not at this node any more. Until then, the map is read repeatedly.
    async fn moved_from(&self, slot: u16, number: ServerNumber) {
        loop {
            let changes = self.nodes.shared.epochs.changes();
            if self.nodes.node(slot).node.number() != number {
                return;
            }
            tokio::select! {
                _ = self.nodes.shared.epochs.changes_after(changes) => {}
                // Longer than it takes to connect to a node that is there.
                () = tokio::time::sleep(MAP_PAUSE.first) => self.want_map(),
            }
        }
    }

    /// A node sends a command elsewhere.
    pub(super) fn sent_elsewhere(&self, node: &Node, elsewhere: &Elsewhere) -> Result<Next, Fault> {
        let next = self.told_elsewhere(node, elsewhere)?;
        if let Next::NewOwner(slot) = next {
            self.nodes.slot_changed(slot);
        }
        Ok(next)
    }

    /// The node with this number sends subscriptions elsewhere.
    pub(super) fn subscriptions_sent_elsewhere(
        &self,
        number: ServerNumber,
        redirects: &[Elsewhere],
    ) {
        let mut is_changed = false;
        if let Some(node) = self.nodes.numbered(number) {
            for redirect in redirects {
                // What is no redirect teaches nothing; the map is read anyway.
                let told = self.told_elsewhere(&node, redirect);
                is_changed |= matches!(told, Ok(Next::NewOwner(_)));
            }
        }
        // Once for all of them, because this looks at each channel of the client.
        if is_changed {
            self.nodes.changed();
        } else {
            // The client may have learned that before, when the channels were not subscribed yet.
            self.nodes.move_channels();
        }
    }

    /// Where a node sends a command. The caller has the channels of a slot with a new owner moved there.
    fn told_elsewhere(&self, node: &Node, elsewhere: &Elsewhere) -> Result<Next, Fault> {
        let Some(teller) = self.nodes.address_of(node) else {
            // The client has forgotten the node, because it has no slot any more or is one of a former cluster. What it says
            // teaches nothing, and the present owner of the slot is asked.
            return Ok(Next::Owner);
        };
        let parse = |text: &str| {
            Redirect::parse(text, &teller).ok_or_else(|| {
                self.want_map();
                let text = format!("{} sends the command to nowhere: {text:?}", node.name());
                Fault::NotNow(cause(text))
            })
        };
        match elsewhere {
            Elsewhere::Moved(text) => {
                let Redirect { slot, node } = parse(text)?;
                self.want_map();
                if !self.nodes.has_named(&node) {
                    // It is new in the cluster, or the teller is a node of another cluster at the address of one that is gone.
                    return Ok(Next::OwnerInNextMap);
                }
                let is_new = self.nodes.learn(slot, &node);
                Ok(if is_new {
                    Next::NewOwner(slot)
                } else {
                    Next::Owner
                })
            }
            Elsewhere::Ask(text) => {
                let Redirect { slot, node } = parse(text)?;
                Ok(Next::Ask(self.nodes.visit_for(slot, &node)))
            }
            Elsewhere::TryAgain => Ok(Next::Owner),
            Elsewhere::Nowhere => {
                let text = "the node finds the keys of one lock in several slots";
                Err(Fault::Protocol(cause(text)))
            }
        }
    }
}

/// What the subscriptions at the nodes tell.
impl Slots for Weak<Cluster> {
    fn sent_elsewhere(&self, number: ServerNumber, redirects: &[Elsewhere]) {
        if let Some(cluster) = self.upgrade() {
            cluster.subscriptions_sent_elsewhere(number, redirects);
        }
    }

    fn lost_slot(&self, _number: ServerNumber) {
        if let Some(cluster) = self.upgrade() {
            cluster.want_map();
        }
    }
}

/// Sleeps before the next try to send a command. Returns the pause after that, or an error if there is no time left.
async fn sleep_before(give_up: Instant, pause: Duration) -> Result<Duration, Fault> {
    let next = Instant::now() + pause;
    if next >= give_up {
        return Err(moving());
    }
    tokio::time::sleep_until(next).await;
    Ok((pause * 2).min(TRY_AGAIN_PAUSE.longest))
}

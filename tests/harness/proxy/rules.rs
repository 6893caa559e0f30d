//! Which faults are set: bookkeeping, without I/O and without a clock.
//!
//! A flow lasts until it is lifted or another one covers it. A trap waits for one request, a cut for
//! a number of bytes; they spring once and are gone.
//!
//! # Invariants
//! 1. Of the flows that match a connection and a direction, the one set last counts.
//! 2. A trap springs at most once, and for one connection.
//! 3. Every effect of a fault is counted in the [`Hits`] that its handle shows.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::connection::Caught;
use super::frame::{Frame, Side};
use super::select::{Flow, Role, Selector, Way, Which};

/// How often a fault had an effect; shared by the fault and its handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Hits(Arc<watch::Sender<u64>>);

impl Hits {
    pub(super) fn count(&self) {
        self.0.send_modify(|hits| *hits += 1);
    }

    pub(super) fn get(&self) -> u64 {
        *self.0.borrow()
    }

    pub(super) async fn reach(&self, hits: u64) {
        // No error: the sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|now| *now >= hits).await;
    }
}

/// How bytes move for the connections it selects.
#[derive(Clone, Debug)]
pub(super) struct FlowRule {
    pub(super) id: u64,
    pub(super) flow: Flow,
    pub(super) hits: Hits,
    on: Selector,
    way: Way,
}

/// What waits for a request.
#[derive(Debug)]
struct Trap {
    id: u64,
    on: Selector,
    which: Which,
    then: Then,
}

/// What is to happen to the request that a trap waits for.
#[derive(Debug)]
pub(super) enum Then {
    /// It goes through, its reply is dropped.
    Eat(Hits),
    /// It is kept back, and the receiver of this channel learns of it.
    Hold(oneshot::Sender<Caught>),
}

/// What waits for a number of bytes to have gone.
#[derive(Debug)]
struct Cut {
    id: u64,
    on: Selector,
    way: Way,
    left: usize,
    hits: Hits,
}

/// Where a message is: the facts that decide which faults concern it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) from: Side,
}

/// All faults of one proxy.
#[derive(Debug, Default)]
pub(super) struct Rules {
    last_id: u64,
    flows: Vec<FlowRule>,
    traps: Vec<Trap>,
    cuts: Vec<Cut>,
    refusal: Option<(u64, Hits)>,
}

impl Rules {
    pub(super) fn add_flow(&mut self, on: Selector, way: Way, flow: Flow) -> (u64, Hits) {
        let (id, hits) = self.next();
        if on.is_all() {
            // What can never count again need not be kept: chaos runs set flows for hours.
            self.flows
                .retain(|rule| way != Way::Both && way != rule.way);
        }
        self.flows.push(FlowRule {
            id,
            flow,
            hits: hits.clone(),
            on,
            way,
        });
        (id, hits)
    }

    pub(super) fn add_eat(&mut self, on: Selector, which: Which) -> (u64, Hits) {
        let (id, hits) = self.next();
        self.traps.push(Trap {
            id,
            on,
            which,
            then: Then::Eat(hits.clone()),
        });
        (id, hits)
    }

    pub(super) fn add_hold(&mut self, on: Selector, which: Which) -> oneshot::Receiver<Caught> {
        let (tell, caught) = oneshot::channel();
        let (id, _) = self.next();
        self.traps.push(Trap {
            id,
            on,
            which,
            then: Then::Hold(tell),
        });
        caught
    }

    pub(super) fn add_cut(&mut self, on: Selector, way: Way, after: usize) -> (u64, Hits) {
        let (id, hits) = self.next();
        self.cuts.push(Cut {
            id,
            on,
            way,
            left: after,
            hits: hits.clone(),
        });
        (id, hits)
    }

    pub(super) fn refuse(&mut self) -> (u64, Hits) {
        let (id, hits) = self.next();
        self.refusal = Some((id, hits.clone()));
        (id, hits)
    }

    pub(super) fn lift(&mut self, id: u64) {
        self.flows.retain(|rule| rule.id != id);
        self.traps.retain(|trap| trap.id != id);
        self.cuts.retain(|cut| cut.id != id);
        self.refusal.take_if(|(refusal, _)| *refusal == id);
    }

    pub(super) fn heal(&mut self) {
        *self = Self {
            last_id: self.last_id,
            ..Self::default()
        };
    }

    /// Whether a new connection is refused; counted if so.
    pub(super) fn refuses(&self) -> bool {
        self.refusal
            .iter()
            .inspect(|(_, hits)| hits.count())
            .count()
            > 0
    }

    pub(super) fn flow(&self, at: Place) -> Option<FlowRule> {
        let mut latest_first = self.flows.iter().rev();
        latest_first
            .find(|rule| rule.way.covers(at.from) && rule.on.matches(at.id, at.role))
            .cloned()
    }

    /// Counts a request. Gives what is to happen to it.
    pub(super) fn request(&mut self, at: Place, request: &Frame, has_reply: bool) -> Vec<Then> {
        let springs = |trap: &mut Trap| {
            let can = match &trap.then {
                Then::Eat(_) => has_reply,
                // The handle was dropped: nobody waits for it any more.
                Then::Hold(tell) => !tell.is_closed(),
            };
            can && trap.on.matches(at.id, at.role) && trap.which.is_met(request)
        };
        self.traps
            .extract_if(.., springs)
            .map(|trap| trap.then)
            .collect()
    }

    /// Counts bytes that are to go. If a cut is due, how many of them still go before it.
    pub(super) fn bytes(&mut self, at: Place, going: usize) -> Option<usize> {
        let is_due = |cut: &mut Cut| {
            if !cut.way.covers(at.from) || !cut.on.matches(at.id, at.role) {
                return false;
            }
            let left = cut.left.checked_sub(going);
            cut.left = left.unwrap_or(cut.left);
            left.is_none()
        };
        let due = self.cuts.extract_if(.., is_due);
        due.inspect(|cut| cut.hits.count())
            .map(|cut| cut.left)
            .min()
    }

    fn next(&mut self) -> (u64, Hits) {
        self.last_id += 1;
        (self.last_id, Hits::default())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proxy::Select;

    fn place(id: u64, role: Role) -> Place {
        Place {
            id,
            role,
            from: Side::Client,
        }
    }

    fn frame(text: &'static str) -> Frame {
        Frame {
            bytes: Bytes::from_static(text.as_bytes()),
            is_resp: true,
        }
    }

    #[test]
    fn the_flow_set_last_counts_until_it_is_lifted() {
        let mut rules = Rules::default();
        let _ = rules.add_flow(Select::ALL.at(1), Way::Both, Flow::Stall);
        let (pass, _) = rules.add_flow(Select::SUBSCRIBERS.at(1), Way::Up, Flow::Pass);
        let flow = |rules: &Rules, role| rules.flow(place(1, role)).map(|rule| rule.flow);
        assert_eq!(flow(&rules, Role::Subscriber), Some(Flow::Pass));
        assert_eq!(flow(&rules, Role::Commands), Some(Flow::Stall));
        rules.lift(pass);
        assert_eq!(flow(&rules, Role::Subscriber), Some(Flow::Stall));
        rules.heal();
        assert_eq!(flow(&rules, Role::Commands), None);
    }

    #[test]
    fn a_flow_for_all_replaces_what_it_covers() {
        let mut rules = Rules::default();
        for _ in 0..100 {
            let _ = rules.add_flow(Select::ALL.at(1), Way::Down, Flow::Stall);
            let _ = rules.add_flow(Select::ALL.at(1), Way::Up, Flow::Stall);
        }
        assert_eq!(rules.flows.len(), 2);
        let _ = rules.add_flow(Select::ALL.at(1), Way::Both, Flow::Pass);
        assert_eq!(rules.flows.len(), 1);
    }

    #[test]
    fn existing_and_new_are_told_apart_when_the_fault_is_set() {
        let (old, new) = (Select::EXISTING.at(5), Select::NEW.at(5));
        assert!(old.matches(4, Role::Commands) && !old.matches(5, Role::Commands));
        assert!(new.matches(5, Role::Commands) && !new.matches(4, Role::Commands));
        let subscriber = Select::SUBSCRIBERS.existing().at(5);
        assert!(subscriber.matches(4, Role::Subscriber) && !subscriber.matches(4, Role::Commands));
    }

    #[test]
    fn a_trap_springs_once_at_the_nth_request_that_counts() {
        let mut rules = Rules::default();
        let which = Which::nth(2).containing("evalsha");
        let _ = rules.add_eat(Select::COMMANDS.at(1), which);
        let mut sprung =
            |text, role, has_reply| rules.request(place(1, role), &frame(text), has_reply).len();
        assert_eq!(sprung("EVALSHA a", Role::Commands, true), 0);
        assert_eq!(sprung("PING", Role::Commands, true), 0);
        assert_eq!(sprung("EVALSHA b", Role::Subscriber, true), 0);
        assert_eq!(sprung("EVALSHA b", Role::Commands, false), 0);
        assert_eq!(sprung("EVALSHA b", Role::Commands, true), 1);
        assert_eq!(sprung("EVALSHA c", Role::Commands, true), 0);
    }

    #[test]
    fn a_cut_is_due_in_the_middle_of_what_exceeds_it() {
        let mut rules = Rules::default();
        let (_, hits) = rules.add_cut(Select::ALL.at(1), Way::Up, 10);
        assert_eq!(rules.bytes(place(1, Role::Commands), 10), None);
        assert_eq!(rules.bytes(place(1, Role::Commands), 3), Some(0));
        assert_eq!(rules.bytes(place(1, Role::Commands), 3), None);
        assert_eq!(hits.get(), 1);
    }
}

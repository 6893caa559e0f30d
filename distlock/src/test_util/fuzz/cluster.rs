//! What hostile nodes can make a client believe of their cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use super::values::values;
use crate::backend::redis::connection::Address;
use crate::backend::redis::reply::{self, Elsewhere};
use crate::backend::redis::servers::cluster::redirect::Redirect;
use crate::backend::redis::servers::cluster::slots::{OwnedSlots, SlotMap, SlotOwner};
use crate::backend::redis::servers::cluster::topology::{ClusterMap, cluster_map};
use crate::backend::redis::slot::SLOTS;
use crate::clock::Tick;

const LINGER: Duration = Duration::from_secs(10);

/// The answers of a node, one after the other: an array is taken for the map, an error may send a command elsewhere, and a
/// number lets so many milliseconds pass. After each, the map has its invariants, and names only nodes that can be connected
/// to.
pub fn cluster(bytes: &[u8]) {
    tells(values(bytes).take(64));
}

fn tells(answers: impl Iterator<Item = Value>) {
    let asked = node("10.0.0.1");
    let mut seen = Seen {
        map: SlotMap::new(vec![asked.clone()]),
        number: 0,
        now: Tick::default(),
        nodes: BTreeSet::from([asked.clone()]),
    };
    for value in answers {
        seen.number += 1;
        match value.extract_error() {
            Ok(Value::Int(millis)) => seen.passes(millis.unsigned_abs()),
            Ok(value) => seen.is_told(&value, &asked),
            Err(error) => match reply::elsewhere(&error) {
                Some(Elsewhere::Moved(text)) => seen.moves(&text, &asked),
                Some(Elsewhere::Ask(text)) => seen.asks(&text, &asked),
                Some(Elsewhere::TryAgain | Elsewhere::Nowhere) | None => {}
            },
        }
    }
}

fn node(host: &str) -> Address {
    Address::Tcp {
        host: host.to_owned(),
        port: 7000,
    }
}

/// What a client has seen so far.
struct Seen {
    map: SlotMap,
    number: u64,
    now: Tick,
    /// All nodes that were ever named.
    nodes: BTreeSet<Address>,
}

impl Seen {
    fn is_told(&mut self, reply: &Value, asked: &Address) {
        let Some(ClusterMap { owned, .. }) = cluster_map(reply, asked) else {
            return;
        };
        assert!(owned.len() <= usize::from(SLOTS));
        for OwnedSlots { slots, owner } in &owned {
            assert!(slots.start() <= slots.end() && *slots.end() < SLOTS);
            self.is_named(owner);
        }
        self.map.replace(&owned, self.number);
        // The first of those that name a slot counts. What changes, changes at an end of one of them.
        let ends = owned
            .iter()
            .flat_map(|owned| [*owned.slots.start(), *owned.slots.end()]);
        let beside = ends.flat_map(|slot| [slot.saturating_sub(1), slot, slot + 1]);
        for slot in beside.take(300) {
            let first = owned.iter().find(|owned| owned.slots.contains(&slot));
            let owner = self.map.owner(slot.min(SLOTS - 1)).owner;
            if slot < SLOTS {
                assert_eq!(owner, first.map(|owned| &owned.owner), "slot {slot}");
            }
            self.has_order(slot);
        }
        let again = self.map.replace(&owned, self.number + 1);
        assert!(!again, "the same answer changes the map again");
    }

    fn moves(&mut self, text: &str, asked: &Address) {
        let Some(Redirect { slot, node }) = Redirect::parse(text, asked) else {
            return;
        };
        self.is_named(&node);
        let former = self.map.owner(slot).owner.cloned();
        let is_new = self.map.learn(slot, &node, self.number);
        assert_eq!(is_new, former.as_ref() != Some(&node));
        assert_eq!(self.map.owner(slot).owner, Some(&node));
        if is_new {
            assert_eq!(
                self.map.lossy(slot),
                self.number,
                "the change may lose data"
            );
        }
        self.has_order(slot);
    }

    fn asks(&mut self, text: &str, asked: &Address) {
        let Some(Redirect { slot, node }) = Redirect::parse(text, asked) else {
            return;
        };
        self.is_named(&node);
        let before = self.map.owner(slot).owner.cloned();
        self.map.visit(&node, self.now);
        assert_eq!(
            self.map.owner(slot).owner,
            before.as_ref(),
            "it teaches nothing"
        );
        let forgotten = self.forgotten();
        assert!(!forgotten.contains(&node), "it was asked just now");
        // The command may get lost on its way.
        self.map.unsettle(slot, self.number);
        assert_eq!(self.map.owner(slot).owner, before.as_ref());
        self.has_order(slot);
    }

    fn passes(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis % 100_000));
        let forgotten = self.forgotten();
        let owners = self.map.owners();
        assert!(forgotten.iter().all(|node| !owners.contains(node)));
    }

    fn forgotten(&mut self) -> Vec<Address> {
        self.map.take_forgotten(self.nodes.iter(), self.now, LINGER)
    }

    fn is_named(&mut self, node: &Address) {
        let Address::Tcp { host, port } = node else {
            panic!("a path: {node}");
        };
        let is_odd =
            |c: char| !c.is_ascii() || c.is_whitespace() || c.is_control() || "@,/?#".contains(c);
        assert!(
            !host.is_empty() && *port != 0 && !host.contains(is_odd),
            "{node}"
        );
        self.nodes.insert(node.clone());
    }

    /// No change of a slot is later than the last one, and data is lost only with a change.
    fn has_order(&self, slot: u16) {
        let SlotOwner { owner, changed } = self.map.owner(slot);
        assert!(
            self.map.lossy(slot) <= changed && changed <= self.number,
            "slot {slot}"
        );
        assert!(owner.is_none_or(|owner| self.nodes.contains(owner)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_util::fuzz::values::any_value;

    proptest! {
        #[test]
        fn answers_of_any_shape_leave_the_map_in_order(answers in prop::collection::vec(any_value(), 1..4)) {
            super::tells(answers.into_iter());
        }

        #[test]
        fn redirect_of_any_text_is_followed_or_not_understood(text in "[0-9 :?.\\[\\]a-z\\PC]{0,40}") {
            super::cluster(format!("-MOVED {text}\r\n-ASK {text}\r\n").as_bytes());
        }
    }
}

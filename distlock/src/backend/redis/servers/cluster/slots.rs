//! State machine 4: which node of a cluster has which slot, as far as this client knows.
//!
//! Each name lies in one of [`SLOTS`] slots, and each slot belongs to one node at a time. The client reads the whole map
//! from a node, and learns of single slots when a node redirects it.
//!
//! This is plain data: no connection, no clock, no `.await`.
//!
//! # Invariants
//! 1. The ranges cover all slots, in order and without gaps.
//! 2. A slot has the number of its last change: the number grows whenever the slot gets another owner. While it stays the
//!    same, the commands for the slot go to the same node.
//! 3. A node that has a slot, or that was asked for one a moment ago, is not forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::backend::redis::connection::Address;
use crate::backend::redis::slot::SLOTS;
use crate::clock::Tick;

/// Slots that a node has, as it or another node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedSlots {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) owner: Address,
}

/// Neighbouring slots that have the same owner since the same change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    /// `None` if no node is known to have the slots.
    owner: Option<Address>,
    /// The number of the change that gave the slots this owner.
    changed: u64,
    /// The number of the last change with which data may have been lost.
    lossy: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotOwner<'a> {
    /// `None` if no node is known to have it.
    pub(crate) owner: Option<&'a Address>,
    /// The number of the change that gave it this owner.
    pub(crate) changed: u64,
}

/// The nodes of a cluster, and their slots.
#[derive(Debug)]
pub(crate) struct SlotMap {
    /// The nodes that the user named. They are asked when no connected node answers.
    seeds: Vec<Address>,
    /// By their first slots. Each range ends where the next one begins.
    ranges: BTreeMap<u16, SlotRange>,
    /// When nodes were last asked by way of a redirect that teaches nothing. Such a node may have no slot yet.
    visited: HashMap<Address, Tick>,
}

impl SlotMap {
    /// A map in which no slot has an owner.
    pub(crate) fn new(seeds: Vec<Address>) -> Self {
        let nobody = SlotRange {
            owner: None,
            changed: 0,
            lossy: 0,
        };
        Self {
            seeds,
            ranges: BTreeMap::from([(0, nobody)]),
            visited: HashMap::new(),
        }
    }

    /// The node that has a slot, as far as that is known.
    pub(crate) fn owner(&self, slot: u16) -> SlotOwner<'_> {
        let range = self.ranges.range(..=slot).next_back();
        range.map_or(SlotOwner::default(), |(_, range)| SlotOwner {
            owner: range.owner.as_ref(),
            changed: range.changed,
        })
    }

    /// The number of the last change with which data of the slot may have been lost.
    pub(crate) fn lossy(&self, slot: u16) -> u64 {
        let range = self.ranges.range(..=slot).next_back();
        range.map_or(0, |(_, range)| range.lossy)
    }

    /// A node has told that this slot belongs to `owner`. Returns whether that is new; the change has this number then.
    pub(crate) fn learn(&mut self, slot: u16, owner: &Address, number: u64) -> bool {
        // The number of the slot comes from an answer, so it may be any.
        if slot >= SLOTS || self.owner(slot).owner == Some(owner) {
            return false;
        }
        let range = SlotRange {
            owner: Some(owner.clone()),
            changed: number,
            // The former owner says the same whether it has handed the slot over with all its data, or whether a replica that
            // lacks some of it has taken its place.
            lossy: number,
        };
        self.set(slot..=slot, range);
        true
    }

    /// It is unknown whether a command for this slot is still to be carried out by a node that is not its owner. From this
    /// change on, nothing is known of the order between that command and later ones.
    pub(crate) fn unsettle(&mut self, slot: u16, number: u64) {
        let owner = self.owner(slot).owner.cloned();
        // The data is where it was: only the order of the commands is unknown.
        let lossy = self.lossy(slot);
        if slot < SLOTS {
            let changed = number;
            let range = SlotRange {
                owner,
                changed,
                lossy,
            };
            self.set(slot..=slot, range);
        }
    }

    /// Replaces the whole map. A slot that no range contains belongs to nobody, and one that several contain belongs to the
    /// owner of the first. Returns whether a slot has another owner; these changes have this number then.
    pub(crate) fn replace(&mut self, owned: &[OwnedSlots], number: u64) -> bool {
        let mut is_changed = false;
        for (slots, owner) in without_overlaps(owned) {
            is_changed |= self.give(slots, owner, number);
        }
        // Single slots that redirects have taught split the ranges.
        self.merge();
        is_changed
    }

    /// Gives slots to an owner. Those that it has keep their numbers.
    fn give(&mut self, slots: RangeInclusive<u16>, owner: Option<&Address>, number: u64) -> bool {
        let mut first = *slots.start();
        let last = *slots.end();
        let mut is_changed = false;
        while first <= last {
            let next = self.ranges.range(first + 1..).next();
            let end = next.map_or(SLOTS, |(next, _)| *next).min(last + 1);
            if self.owner(first).owner != owner {
                let range = SlotRange {
                    owner: owner.cloned(),
                    changed: number,
                    // A map does not say whether the former owner has handed its data over, or has failed.
                    lossy: number,
                };
                self.set(first..=end - 1, range);
                is_changed = true;
            }
            first = end;
        }
        is_changed
    }

    /// Makes a range of these slots.
    fn set(&mut self, slots: RangeInclusive<u16>, range: SlotRange) {
        let (first, last) = slots.into_inner();
        let at = |map: &Self, slot: u16| {
            let SlotOwner { owner, changed } = map.owner(slot);
            SlotRange {
                owner: owner.cloned(),
                changed,
                lossy: map.lossy(slot),
            }
        };
        // Before the ranges inside are removed: the last of them may go on behind these slots.
        if last + 1 < SLOTS {
            let after = at(self, last + 1);
            self.ranges.insert(last + 1, after);
        }
        let inside: Vec<u16> = self.ranges.range(first..=last).map(|(at, _)| *at).collect();
        for at in inside {
            self.ranges.remove(&at);
        }
        self.ranges.insert(first, range);
    }

    /// Merges neighbours that are equal.
    fn merge(&mut self) {
        let mut before: Option<SlotRange> = None;
        self.ranges.retain(|_, range| {
            let is_new = before.as_ref() != Some(range);
            before = Some(range.clone());
            is_new
        });
    }

    /// The nodes that have slots.
    pub(crate) fn owners(&self) -> BTreeSet<&Address> {
        self.ranges
            .values()
            .filter_map(|range| range.owner.as_ref())
            .collect()
    }

    /// The nodes that the user named and that have no slots, as far as that is known.
    pub(crate) fn seeds_without_slots(&self) -> Vec<Address> {
        let owners = self.owners();
        let others = self.seeds.iter().filter(|seed| !owners.contains(seed));
        others.cloned().collect()
    }

    /// A node is asked by way of a redirect that teaches nothing, or a seed is asked for the map.
    pub(crate) fn visit(&mut self, node: &Address, now: Tick) {
        self.visited.insert(node.clone(), now);
    }

    /// Those of the nodes that have no slot and were not asked within `linger`. Nothing is remembered of them.
    pub(crate) fn take_forgotten<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a Address>,
        now: Tick,
        linger: Duration,
    ) -> Vec<Address> {
        self.visited
            .retain(|_, visited| now.since(*visited) < linger);
        let owners = self.owners();
        let is_needed = |node: &&Address| owners.contains(node) || self.visited.contains_key(*node);
        nodes.filter(|node| !is_needed(node)).cloned().collect()
    }
}

/// The owner of each slot, in parts that do not overlap, together all slots.
fn without_overlaps(
    owned: &[OwnedSlots],
) -> impl Iterator<Item = (RangeInclusive<u16>, Option<&Address>)> {
    // One place for each slot, since what a node answers may overlap.
    let mut owners: Vec<Option<usize>> = vec![None; usize::from(SLOTS)];
    for (at, one) in owned.iter().enumerate() {
        for slot in one.slots.clone() {
            if let Some(owner) = owners.get_mut(usize::from(slot)) {
                owner.get_or_insert(at);
            }
        }
    }
    let mut slot = 0;
    std::iter::from_fn(move || {
        let first = slot;
        let owner = *owners.get(usize::from(first))?;
        while owners.get(usize::from(slot)) == Some(&owner) {
            slot += 1;
        }
        Some((first..=slot - 1, owner.map(|at| &owned[at].owner)))
    })
}

#[cfg(test)]
mod tests;

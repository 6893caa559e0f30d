//! What a node answers to `CLUSTER SLOTS`.
//!
//! The answer is input from outside: a range that makes no sense is left out, and the redirects of the nodes teach its
//! slots.

use std::collections::BTreeSet;

use redis::Value;

use super::slots::OwnedSlots;
use crate::backend::redis::connection::Address;
use crate::backend::redis::reply::{parts, text};
use crate::backend::redis::servers::announced::announced;
use crate::backend::redis::slot::SLOTS;

/// A cluster, as one of its nodes describes it.
pub(crate) struct ClusterMap {
    pub(crate) owned: Vec<OwnedSlots>,
    pub(super) named: NamedNodes,
}

/// The masters with slots, and their replicas.
#[derive(Default)]
pub(super) struct NamedNodes {
    /// A node keeps its id for as long as it belongs to its cluster, at whatever address it is.
    ids: BTreeSet<Vec<u8>>,
    addresses: BTreeSet<Address>,
}

impl NamedNodes {
    /// Whether these nodes and the others are of one cluster, which has a node in common. The result is `None` if one of the two
    /// answers told no ids, which servers other than Redis and Valkey may leave out.
    pub(super) fn is_cluster_of(&self, others: &Self) -> Option<bool> {
        let are_known = !self.ids.is_empty() && !others.ids.is_empty();
        are_known.then(|| !self.ids.is_disjoint(&others.ids))
    }

    /// Whether one of them has this address. All addresses count as theirs if they told no ids.
    pub(super) fn has(&self, address: &Address) -> bool {
        self.ids.is_empty() || self.addresses.contains(address)
    }
}

/// What the answer of the node `asked` says. The result is `None` as for [`owned_slots`].
pub(crate) fn cluster_map(reply: &Value, asked: &Address) -> Option<ClusterMap> {
    Some(ClusterMap {
        owned: owned_slots(reply, asked)?,
        named: named_nodes(reply, asked),
    })
}

fn named_nodes(reply: &Value, asked: &Address) -> NamedNodes {
    let mut named = NamedNodes::default();
    for range in parts(reply) {
        // Behind the first slot and the last one.
        for node in parts(range).iter().skip(2) {
            let [_host, _port, Value::BulkString(id), ..] = parts(node) else {
                continue;
            };
            if !id.is_empty() && named.ids.insert(id.clone()) {
                named.addresses.extend(address_of(node, asked));
            }
        }
    }
    named
}

/// The address of a node, which begins with its host and its port. Further parts are its id and, since Redis 7, a list of its other
/// addresses.
fn address_of(node: &Value, asked: &Address) -> Option<Address> {
    let [host, Value::Int(port), ..] = parts(node) else {
        return None;
    };
    let host = match host {
        Value::Nil => "",
        host => text(host)?,
    };
    announced(host, u16::try_from(*port).ok()?, asked)
}

/// The slots and their masters, as the node `asked` names them. The result is `None` if the answer names no master. The node
/// has then left its cluster, or the answer cannot be understood.
fn owned_slots(reply: &Value, asked: &Address) -> Option<Vec<OwnedSlots>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    // No honest answer is longer: each range has at least one slot.
    let ranges = ranges.iter().take(usize::from(SLOTS));
    let owned: Vec<_> = ranges.filter_map(|range| one_range(range, asked)).collect();
    (!owned.is_empty()).then_some(owned)
}

/// The first slot, the last one, the master and then its replicas.
fn one_range(range: &Value, asked: &Address) -> Option<OwnedSlots> {
    let [Value::Int(first), Value::Int(last), master, ..] = parts(range) else {
        return None;
    };
    let first = u16::try_from(*first).ok()?;
    let last = u16::try_from(*last).ok()?;
    if first > last || last >= SLOTS {
        return None;
    }
    Some(OwnedSlots {
        slots: first..=last,
        owner: address_of(master, asked)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str) -> Address {
        Address::Tcp {
            host: host.to_owned(),
            port: 7000,
        }
    }

    fn asked() -> Address {
        tcp("127.0.0.1")
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![
            host,
            Value::Int(port),
            text("id"),
            Value::Array(vec![]),
        ]);
        let replica = Value::Array(vec![text("10.9.9.9"), Value::Int(1), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    fn read(reply: Vec<Value>) -> Option<Vec<(u16, u16, String)>> {
        let owned = owned_slots(&Value::Array(reply), &asked())?;
        let told = owned.iter().map(|owned| {
            let slots = &owned.slots;
            (*slots.start(), *slots.end(), owned.owner.to_string())
        });
        Some(told.collect())
    }

    #[test]
    fn masters_are_read_and_a_missing_host_is_that_of_the_node_that_was_asked() {
        let reply = vec![
            range(0, 5_460, text("10.0.0.1"), 7001),
            range(5_461, 10_922, Value::Nil, 7002),
            range(10_923, 10_923, text(""), 7003),
            range(10_924, 10_924, text("?"), 7003),
            range(10_925, 16_383, Value::SimpleString("::1".to_owned()), 7004),
        ];
        let owned = read(reply).unwrap();
        let owned: Vec<_> = owned
            .iter()
            .map(|(first, last, at)| (*first, *last, &**at))
            .collect();
        assert_eq!(
            owned,
            [
                (0, 5_460, "10.0.0.1:7001"),
                (5_461, 10_922, "127.0.0.1:7002"),
                (10_923, 10_923, "127.0.0.1:7003"),
                (10_924, 10_924, "127.0.0.1:7003"),
                (10_925, 16_383, "[::1]:7004"),
            ]
        );
    }

    #[test]
    fn ranges_that_make_no_sense_are_left_out() {
        let odd = [
            range(2, 1, text("h"), 7001),
            range(0, 16_384, text("h"), 7001),
            range(-1, 1, text("h"), 7001),
            range(0, i64::MAX, text("h"), 7001),
            range(0, 1, text("h"), 0),
            range(0, 1, text("h"), 70_000),
            range(0, 1, text("h"), -1),
            range(0, 1, text("a b"), 7001),
            range(0, 1, Value::BulkString(vec![0xff]), 7001),
            range(0, 1, Value::Int(7), 7001),
            Value::Array(vec![Value::Int(0), Value::Int(1)]),
            Value::Array(vec![Value::Int(0), Value::Int(1), Value::Array(vec![])]),
            Value::Array(vec![]),
            Value::Nil,
        ];
        let good = range(7, 9, text("h"), 7001);
        let reply = odd.iter().cloned().chain([good]).collect();
        assert_eq!(read(reply).unwrap(), [(7, 9, "h:7001".to_owned())]);
        assert_eq!(read(odd.to_vec()), None);
        assert_eq!(read(Vec::new()), None);
        assert_eq!(owned_slots(&Value::Okay, &asked()), None);
    }

    /// The nodes of an answer with one range for each of these pairs of a master and a replica.
    fn named(pairs: &[[&str; 2]]) -> NamedNodes {
        let node = |id: &str| Value::Array(vec![text("h"), Value::Int(7001), text(id)]);
        let range = |[master, replica]: &[&str; 2]| {
            let slots = [Value::Int(0), Value::Int(1)];
            Value::Array(
                slots
                    .into_iter()
                    .chain([node(master), node(replica)])
                    .collect(),
            )
        };
        named_nodes(&Value::Array(pairs.iter().map(range).collect()), &asked())
    }

    #[test]
    fn cluster_is_the_same_as_long_as_one_node_is_left_also_a_replica() {
        let known = named(&[["a", "b"], ["c", "d"]]);
        for (told, expected) in [
            (named(&[["e", "f"], ["d", "g"]]), Some(true)),
            (named(&[["e", "f"]]), Some(false)),
            (named(&[["", ""]]), None),
            (named(&[]), None),
            (named_nodes(&Value::Okay, &asked()), None),
        ] {
            assert_eq!(known.is_cluster_of(&told), expected);
            assert_eq!(told.is_cluster_of(&known), expected);
        }
    }
}

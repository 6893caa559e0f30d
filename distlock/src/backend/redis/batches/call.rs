//! The call of the script that does a batch.

use super::operation::{BatchKind, Operation, Verb};
use crate::backend::redis::names;
use crate::backend::redis::reply;
use crate::backend::redis::script::{self, Call, Script};
use crate::config::READERS_PATIENCE;

impl BatchKind {
    /// The script of such a batch.
    pub(crate) fn script(self) -> &'static Script {
        match self {
            Self::Locks => &script::LOCK_BATCH,
            Self::Readers => &script::RW_READ_BATCH,
        }
    }

    /// Brings the operations of a batch into the order in which they are sent. Any order is right: none of them waits for another.
    /// Readers that come join those that leave, so the writers that wait are not told of a lock that is free for a moment.
    pub(crate) fn arrange(self, batch: &mut [Operation]) {
        if self == Self::Readers {
            // Those that are looked at together are neighbours.
            batch.sort_by(|one, other| group(one).cmp(&group(other)));
        }
    }

    /// Adds the keys and arguments of a batch in its order.
    pub(crate) fn add(self, batch: &[Operation], call: Call) -> Call {
        match self {
            Self::Locks => add_locks(batch, call),
            Self::Readers => add_readers(batch, call),
        }
    }
}

fn add_locks(batch: &[Operation], call: Call) -> Call {
    let names = || batch.iter().flat_map(Operation::names);
    let call = call.these_keys(names().count(), names());
    batch.iter().fold(call, |call, operation| {
        let several = operation.locks.len() > 1;
        let call = if several {
            call.arg(operation.locks.len())
        } else {
            call
        };
        operation.locks.iter().fold(call, |call, lock| {
            let call = call.owner(lock.owner);
            match operation.verb {
                Verb::Acquire => call.arg(lock.lease),
                Verb::Release => call.arg(names::lock_channel(lock.key.name())),
            }
        })
    })
}

/// Readers with the same verb, lock and lease are looked at together, and refused together.
fn group(operation: &Operation) -> (Verb, Option<(&str, u64)>) {
    let verb = operation.verb;
    let lock = operation.locks.first().map(|lock| match verb {
        Verb::Acquire => (&**lock.key.name(), lock.lease),
        // The lease of an attempt that is withdrawn says nothing.
        Verb::Release => (&**lock.key.name(), 0),
    });
    (verb, lock)
}

fn add_readers(batch: &[Operation], call: Call) -> Call {
    let groups = || batch.chunk_by(|one, other| group(one) == group(other));
    let locks = groups().filter_map(|readers| {
        let (verb, lock) = group(readers.first()?);
        Some((verb, lock?, readers))
    });
    let keys = locks
        .clone()
        .flat_map(|(_, (name, _), _)| names::rw_keys(name));
    let keys: Vec<String> = keys.collect();
    let call = call.keys(keys.iter().map(|key| &**key));
    let call = call.arg(reply::millis(READERS_PATIENCE));
    locks.fold(call, |call, (verb, (name, lease), readers)| {
        let call = call.arg(names::rw_stem(name));
        let call = match verb {
            Verb::Acquire => call.arg(lease),
            Verb::Release => call.arg(names::rw_channel(name)),
        };
        let owners = readers.iter().flat_map(|reader| &reader.locks);
        owners.fold(call.arg(readers.len()), |call, lock| call.owner(lock.owner))
    })
}

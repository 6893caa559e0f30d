//! The rule that a cluster has a primitive in one slot.

use super::{
    ended, fair_ours, fair_queue, fair_timeouts, fence, latch_channel, latch_opened, lock_channel,
    mark, permits, rw_channel, rw_mark, rw_stem, rw_turn, semaphore_channel, semaphore_owners,
};
use crate::backend::redis::slot::hashed_part;
use crate::resource::kind::{Family, Kind};

/// The names that a primitive uses beside its key. An owner's names are among them for one owner.
pub(super) fn beside(kind: Kind, name: &str) -> Vec<String> {
    const OWNER: &str = "00000000-0000-0000-0000-000000000000:1";
    let mut names = Vec::new();
    match kind.family() {
        Family::Lock => {
            names.push(lock_channel(name));
            if kind == Kind::Fenced {
                names.push(fence(name));
            }
            if kind.is_fair() {
                names.push(format!("{}:{OWNER}", lock_channel(name)));
                names.extend([fair_queue(name), fair_timeouts(name), fair_ours(name)]);
            }
        }
        Family::ReadWrite => {
            names.extend([rw_channel(name), rw_turn(name), rw_mark(name)]);
            names.push(format!("{}{OWNER}:rwlock_timeout:1", rw_stem(name)));
        }
        Family::Semaphore => {
            names.extend([semaphore_channel(name), semaphore_owners(name)]);
            names.push(mark(name, OWNER));
        }
        Family::Permit => {
            names.extend([semaphore_channel(name), permits(name)]);
            names.push(mark(name, OWNER));
            names.push(ended(name, OWNER));
        }
        Family::Latch => {
            names.extend([latch_channel(name), latch_opened(name)]);
            names.push(mark(name, OWNER));
        }
    }
    names
}

/// Why a cluster cannot have a primitive under this name: not all of its names lie in one slot. They have to, because a
/// script uses several of them. `None` if they do.
///
/// Names are compared by the part that decides about the slot, since one that contains an owner would otherwise be in the
/// key's slot for some owners only.
pub(crate) fn scattered(kind: Kind, name: &str) -> Option<&'static str> {
    // The usual name: all others wrap it in braces.
    if !name.contains(['{', '}']) {
        return None;
    }
    let part = hashed_part(name);
    if beside(kind, name)
        .iter()
        .all(|other| hashed_part(other) == part)
    {
        return None;
    }
    Some(match kind.family() {
        Family::Latch => {
            "the names of a count-down latch whose key has braces are not in one slot of the cluster; use a key without \
             `{` and `}`"
        }
        _ => {
            "its braces put the names of this lock into several slots of the cluster; use a key without `{` and `}`, or \
             with a hash tag such as `{cart:1}:lock`"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_cluster_refuses_are_those_that_lie_in_several_slots() {
        use Kind::*;
        let all = [
            Reentrant,
            NonReentrant,
            Spin,
            Fenced,
            Fair,
            NonReentrantFair,
            Read,
            Write,
            Semaphore,
            ExpirableSemaphore,
            CountDownLatch,
        ];
        for name in [
            "k",
            "order:42",
            "a b  c",
            "über:straße 注文",
            "redisson_lock__channel:k",
            "k:lock",
        ] {
            for kind in all {
                assert_eq!(scattered(kind, name), None, "{kind:?} {name:?}");
            }
        }
        // With a hash tag, which Redisson keeps, except in the channel of a latch.
        for name in [
            "{cart:1}:lock",
            "tail:{cart:1}",
            "a{b}c",
            "{a}{b}",
            "a{b}}",
            "x{y{z}}",
            "{カート}:1",
        ] {
            for kind in all {
                assert_eq!(
                    scattered(kind, name).is_some(),
                    kind == CountDownLatch,
                    "{kind:?} {name:?}"
                );
            }
        }
        // Braces that are no hash tag, or are one only in names that are wrapped.
        for name in ["a{b", "a}b", "{}x", "{", "}", "}{", "{}", "{}{a}"] {
            for kind in all {
                assert!(scattered(kind, name).is_some(), "{kind:?} {name:?}");
            }
        }
    }
}

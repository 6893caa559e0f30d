//! The names of keys and channels in Redis. They are Redisson's, byte for byte, unless the comment says otherwise.

use super::slot::hashed_part;
use crate::backend::{Seen, Target};
use crate::resource::kind::{Family, Kind, Line};

/// `what:{name}`, which is in the same cluster slot as `name`. A name with a `{` in it is taken to have a hash tag
/// already.
fn prefixed(what: &str, name: &str) -> String {
    // Without `format!`, which is slower: each release names its channel.
    let mut text = String::with_capacity(what.len() + name.len() + ":{}".len());
    text.push_str(what);
    if name.contains('{') {
        text.push(':');
        text.push_str(name);
    } else {
        text.push_str(":{");
        text.push_str(name);
        text.push('}');
    }
    text
}

/// `{name}:what`, with the same rule.
fn suffixed(name: &str, what: &str) -> String {
    if name.contains('{') {
        format!("{name}:{what}")
    } else {
        format!("{{{name}}}:{what}")
    }
}

/// A name that only this library uses. Redisson wraps `name` to `{name}`, so `name` and `{name}` share its names. Names of ours
/// differ for the two keys, because what is stored beside one of them says nothing about the other.
fn own(name: &str, what: &str) -> String {
    if name.contains('{') {
        format!("{name}:tagged:{what}")
    } else {
        suffixed(name, what)
    }
}

/// The channel on which the release of a lock is published.
pub(super) fn lock_channel(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

/// The list of a fair lock's waiters, in order of arrival.
pub(super) fn fair_queue(name: &str) -> String {
    prefixed("redisson_lock_queue", name)
}

/// The sorted set of a fair lock's waiters, by the time from which each counts as dead.
pub(super) fn fair_timeouts(name: &str) -> String {
    prefixed("redisson_lock_timeout", name)
}

/// The sorted set of those waiters that are this library's. Redisson has no such key. It describes the queue, and so belongs to
/// the same keys: `name` and `{name}` have one queue.
pub(super) fn fair_ours(name: &str) -> String {
    suffixed(name, "distlock_waiters")
}

/// The last fencing token of a lock.
pub(super) fn fence(name: &str) -> String {
    prefixed("redisson_lock_token", name)
}

/// The same if somebody who frees the lock by force has seen one. Otherwise the user may have no right to it.
pub(super) fn fence_seen(name: &str, seen: Option<&Seen>) -> Option<String> {
    let token = seen.and_then(|seen| seen.number);
    token.map(|_| fence(name))
}

/// The sorted set of a semaphore's acquired permits, by the end of their leases.
pub(super) fn permits(name: &str) -> String {
    suffixed(name, "timeout")
}

/// The keys of users that may be meant by the name of a key in the server in which holds are: the name itself, or the semaphore
/// whose acquired permits it has.
pub(super) fn holding(name: &str) -> impl Iterator<Item = &str> {
    let wrapped = name.strip_suffix(":timeout");
    let inner = wrapped.and_then(|name| name.strip_prefix('{')?.strip_suffix('}'));
    std::iter::once(name).chain(wrapped).chain(inner)
}

/// The channel on which the release of a read or a write lock is published.
pub(super) fn rw_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

/// The beginning of the names of a read lock's timeouts; `<owner>:rwlock_timeout:<number of the entry>` follows.
pub(super) fn rw_stem(name: &str) -> String {
    suffixed(name, "")
}

/// Whose turn it is at a read/write lock: a waiting writer's, or the readers'. Redisson has no such key.
pub(super) fn rw_turn(name: &str) -> String {
    own(name, "rwlock_turn")
}

/// The mark that readers of this library are waiting. Redisson has no such key.
pub(super) fn rw_mark(name: &str) -> String {
    own(name, "rwlock_readers_wait")
}

/// A read/write lock, its turn, and its mark.
pub(super) fn rw_keys(name: &str) -> [String; 3] {
    [name.to_owned(), rw_turn(name), rw_mark(name)]
}

/// The channel on which the number of a semaphore's free permits is published.
pub(super) fn semaphore_channel(name: &str) -> String {
    prefixed(SEMAPHORE_CHANNEL, name)
}

/// The channel of a count-down latch: the only name that is wrapped in braces even if it has some already.
pub(super) fn latch_channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// The id of the last opening of a latch, kept for some seconds. Redisson has no such key.
pub(super) fn latch_opened(name: &str) -> String {
    own(name, "distlock_opened")
}

/// The owners that have permits of a semaphore, with the number of each. Redisson has no such key.
pub(super) fn semaphore_owners(name: &str) -> String {
    own(name, "distlock_owners")
}

/// The mark of a request to a semaphore or a latch, which lets the request take effect once, or of an owner of permits
/// that was withdrawn. Redisson has no such key.
pub(super) fn mark(name: &str, owner: &str) -> String {
    own(name, &format!("{owner}:request"))
}

/// The mark of an owner of expirable permits that was withdrawn. Redisson has no such key.
pub(super) fn ended(name: &str, owner: &str) -> String {
    own(name, &format!("{owner}:ended"))
}

/// The channel that a waiter of this target subscribes to. Each waiter of a fair lock has a separate one.
pub(super) fn channel(target: &Target) -> String {
    let name = target.resource.key.name();
    match (target.resource.kind.family(), target.resource.kind.line()) {
        (Family::Lock, Line::Server) => {
            let mut channel = lock_channel(name);
            let owner = target.owner.text();
            channel.push(':');
            channel.push_str(&owner);
            channel
        }
        (Family::Lock, _) => lock_channel(name),
        (Family::ReadWrite, _) => rw_channel(name),
        (Family::Semaphore | Family::Permit, _) => semaphore_channel(name),
        (Family::Latch, _) => latch_channel(name),
    }
}

/// The names that a primitive uses beside its key. An owner's names are among them for one owner.
fn beside(kind: Kind, name: &str) -> Vec<String> {
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
pub(super) fn scattered(kind: Kind, name: &str) -> Option<&'static str> {
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

/// Redisson's name for the channels of semaphores.
const SEMAPHORE_CHANNEL: &str = "redisson_sc";

/// Whether this is a payload that is published on such a channel: `0`, `1`, or a semaphore's number of free permits.
pub(super) fn is_message(channel: &str, payload: &[u8]) -> bool {
    let is_number = || {
        let text = std::str::from_utf8(payload).ok();
        // Redisson publishes negative numbers as well. No waiter can be granted a permit then.
        text.is_some_and(|text| !text.starts_with('+') && text.parse::<u64>().is_ok())
    };
    let of_semaphore = |channel: &str| {
        let rest = channel.strip_prefix(SEMAPHORE_CHANNEL);
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    matches!(payload, b"0" | b"1") || of_semaphore(channel) && is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_permits_means_each_semaphore_that_has_them() {
        for key in ["seats", "{shop}:seats", "{seats}", "a{b"] {
            let permits = permits(key);
            let meant: Vec<_> = holding(&permits).collect();
            assert!(meant.contains(&key), "{permits} is {meant:?}");
        }
        assert_eq!(holding("seats").collect::<Vec<_>>(), ["seats"]);
    }

    #[test]
    fn only_channels_of_semaphores_have_counts() {
        let lock = "redisson_lock__channel:{k}";
        let semaphore = "redisson_sc:{k}";
        for payload in ["0", "1"] {
            assert!(
                is_message(lock, payload.as_bytes()) && is_message(semaphore, payload.as_bytes())
            );
        }
        for payload in ["2", "2147483647"] {
            assert!(
                !is_message(lock, payload.as_bytes()) && is_message(semaphore, payload.as_bytes())
            );
        }
        for payload in [
            "",
            "-1",
            "+2",
            "2.0",
            "1e3",
            "2 ",
            "two",
            "99999999999999999999",
        ] {
            assert!(
                !is_message(lock, payload.as_bytes()) && !is_message(semaphore, payload.as_bytes())
            );
        }
    }

    #[test]
    fn a_name_is_wrapped_unless_it_has_a_brace() {
        for (name, channel) in [
            ("order:42", "redisson_lock__channel:{order:42}"),
            ("{cart:1}:lock", "redisson_lock__channel:{cart:1}:lock"),
            ("a{b", "redisson_lock__channel:a{b"),
            ("a}b", "redisson_lock__channel:{a}b}"),
        ] {
            assert_eq!(lock_channel(name), channel);
        }
    }

    #[test]
    fn names_of_a_read_write_lock_are_redissons_and_two_of_our_own() {
        assert_eq!(rw_channel("k"), "redisson_rwlock:{k}");
        assert_eq!(rw_stem("k"), "{k}:");
        assert_eq!(rw_turn("k"), "{k}:rwlock_turn");
        assert_eq!(rw_mark("k"), "{k}:rwlock_readers_wait");
        assert_eq!(rw_channel("{c}:k"), "redisson_rwlock:{c}:k");
        assert_eq!(rw_stem("{c}:k"), "{c}:k:");
        assert_eq!(rw_turn("{c}:k"), "{c}:k:tagged:rwlock_turn");
        assert_eq!(rw_mark("{c}:k"), "{c}:k:tagged:rwlock_readers_wait");
    }

    #[test]
    fn every_name_beside_a_key_belongs_to_it_and_the_key_does_not() {
        use crate::backend::side_keys::{belongs_to_another, is_reserved};
        use Kind::*;
        for name in [
            "order:42",
            "{cart:1}:lock",
            "a{b",
            "request",
            "order:timeout",
        ] {
            assert!(!belongs_to_another(name), "{name:?}");
            for kind in [
                Fenced,
                Fair,
                Read,
                Semaphore,
                ExpirableSemaphore,
                CountDownLatch,
            ] {
                let keys = beside(kind, name).into_iter();
                let is_channel = |name: &String| {
                    [
                        "redisson_lock__channel",
                        "redisson_rwlock",
                        "redisson_sc",
                        "redisson_countdownlatch",
                    ]
                    .iter()
                    .any(|channel| name.starts_with(channel))
                };
                for key in keys.filter(|name| !is_channel(name)) {
                    assert!(belongs_to_another(&key), "{kind:?} {key:?}");
                    // As a lock has it in Redisson as well.
                    let is_permits = key == permits(name);
                    assert!(is_reserved(&key) || is_permits, "{kind:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn names_that_are_ours_alone_differ_for_a_key_and_the_same_key_in_braces() {
        type Own = fn(&str) -> String;
        let own: [Own; 6] = [
            rw_turn,
            rw_mark,
            semaphore_owners,
            latch_opened,
            |name| mark(name, "id:7"),
            |name| ended(name, "id:7"),
        ];
        for name in ["q", "a}b", "x:tagged", "}"] {
            let braced = format!("{{{name}}}");
            for own in own {
                assert_ne!(own(name), own(&braced), "{name}");
            }
        }
        for own in own {
            assert_eq!(hashed_part(&own("q")), hashed_part(&own("{q}")));
        }
        // It belongs to the queue, which Redisson has under one name.
        assert_eq!(fair_queue("q"), fair_queue("{q}"));
        assert_eq!(fair_ours("q"), fair_ours("{q}"));
    }

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

    #[test]
    fn a_latch_wraps_its_channel_always_and_a_mark_lies_beside_its_number() {
        assert_eq!(semaphore_channel("pool"), "redisson_sc:{pool}");
        assert_eq!(semaphore_channel("{a}:b"), "redisson_sc:{a}:b");
        for (name, channel) in [
            ("jobs", "redisson_countdownlatch__channel__{jobs}"),
            ("{a}:b", "redisson_countdownlatch__channel__{{a}:b}"),
        ] {
            assert_eq!(latch_channel(name), channel);
        }
        assert_eq!(mark("pool", "id:7"), "{pool}:id:7:request");
        assert_eq!(mark("{a}:b", "id:7"), "{a}:b:tagged:id:7:request");
        assert_eq!(ended("pool", "id:7"), "{pool}:id:7:ended");
        assert_eq!(ended("{a}:b", "id:7"), "{a}:b:tagged:id:7:ended");
        assert_eq!(semaphore_owners("pool"), "{pool}:distlock_owners");
        assert_eq!(semaphore_owners("{pool}"), "{pool}:tagged:distlock_owners");
        assert_eq!(latch_opened("jobs"), "{jobs}:distlock_opened");
        assert_eq!(latch_opened("{jobs}"), "{jobs}:tagged:distlock_opened");
    }
}

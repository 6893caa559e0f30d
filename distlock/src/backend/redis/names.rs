//! How keys and channels are called in Redis: Redisson's names, byte for byte.

use crate::backend::Target;
use crate::kind::{Family, Line};

/// `what:{name}`, so that both lie in one slot. A name with a `{` in it is taken to bear a hash tag of its own.
fn prefixed(what: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{what}:{name}")
    } else {
        format!("{what}:{{{name}}}")
    }
}

/// `{name}:what`, likewise.
pub(super) fn suffixed(name: &str, what: &str) -> String {
    if name.contains('{') {
        format!("{name}:{what}")
    } else {
        format!("{{{name}}}:{what}")
    }
}

/// The channel on which the end of a lock's hold is published.
pub(super) fn lock_channel(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

/// The owners that wait for a fair lock, in order of arrival.
pub(super) fn fair_queue(name: &str) -> String {
    prefixed("redisson_lock_queue", name)
}

/// When each of them counts as dead.
pub(super) fn fair_timeouts(name: &str) -> String {
    prefixed("redisson_lock_timeout", name)
}

/// Those of them that are ours; Redisson knows nothing of it.
pub(super) fn fair_ours(name: &str) -> String {
    suffixed(name, "distlock_waiters")
}

/// The last fencing token of a lock.
pub(super) fn fence(name: &str) -> String {
    prefixed("redisson_lock_token", name)
}

/// The permits of a semaphore that are out.
pub(super) fn permits(name: &str) -> String {
    suffixed(name, "timeout")
}

/// The channel on which the end of a read or write lock's hold is published.
pub(super) fn rw_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

/// What the names of a read lock's timeouts begin with; `<owner>:rwlock_timeout:<number of the hold>` follows.
pub(super) fn rw_stem(name: &str) -> String {
    suffixed(name, "")
}

/// Whose turn it is at a read/write lock, among our own clients. Redisson has no such key.
pub(super) fn rw_turn(name: &str) -> String {
    suffixed(name, "rwlock_turn")
}

/// That readers of our own clients wait. Redisson has no such key.
pub(super) fn rw_mark(name: &str) -> String {
    suffixed(name, "rwlock_readers_wait")
}

/// The channel on which the permits of a semaphore that are free are published.
pub(super) fn semaphore_channel(name: &str) -> String {
    prefixed(SEMAPHORE_CHANNEL, name)
}

/// The channel of a count-down latch: the one name that is always wrapped.
pub(super) fn latch_channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// The mark by which an owner's requests for a number count once. A key of our own.
pub(super) fn mark(name: &str, owner: &str) -> String {
    suffixed(name, &format!("{owner}:request"))
}

/// The channel that a waiter of this target listens to.
pub(super) fn channel(target: &Target) -> String {
    let name = target.resource.key.name();
    match (target.resource.kind.family(), target.resource.kind.line()) {
        (Family::Lock, Line::Server) => {
            let (mut channel, owner) = (lock_channel(name), target.owner.text());
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

/// Redisson's name for the channels of semaphores.
const SEMAPHORE_CHANNEL: &str = "redisson_sc";

/// Is this what is said on such a channel: `0` or `1`, and for a semaphore also how many permits are free?
pub(super) fn says(channel: &str, payload: &[u8]) -> bool {
    let is_number = || {
        let text = std::str::from_utf8(payload).ok();
        // Redisson tells negative ones as well: no news for who waits.
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
    fn a_count_is_said_of_semaphores_alone() {
        let (lock, semaphore) = ("redisson_lock__channel:{k}", "redisson_sc:{k}");
        for payload in ["0", "1"] {
            assert!(says(lock, payload.as_bytes()) && says(semaphore, payload.as_bytes()));
        }
        for payload in ["2", "2147483647"] {
            assert!(!says(lock, payload.as_bytes()) && says(semaphore, payload.as_bytes()));
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
            assert!(!says(lock, payload.as_bytes()) && !says(semaphore, payload.as_bytes()));
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
        assert_eq!(mark("{a}:b", "id:7"), "{a}:b:id:7:request");
    }
}

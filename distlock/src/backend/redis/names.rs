//! The names of keys and channels in Redis. They are Redisson's, byte for byte, unless the comment says otherwise.

mod one_slot;
#[cfg(test)]
mod tests;

pub(super) use self::one_slot::scattered;
use crate::backend::{Seen, Target};
use crate::resource::kind::{Family, Line};

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

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

/// The last fencing token of a lock.
pub(super) fn fence(name: &str) -> String {
    prefixed("redisson_lock_token", name)
}

/// The channel that a waiter of this target listens to.
pub(super) fn channel(target: &Target) -> String {
    let name = target.key.name();
    match (target.kind.family(), target.kind.line()) {
        (Family::Lock, Line::Server) => {
            let (mut channel, owner) = (lock_channel(name), target.owner.text());
            channel.push(':');
            channel.push_str(&owner);
            channel
        }
        (Family::Lock, _) => lock_channel(name),
        (Family::ReadWrite, _) => prefixed("redisson_rwlock", name),
        (Family::Semaphore | Family::Permit, _) => prefixed("redisson_sc", name),
        // The one name that is always wrapped.
        (Family::Latch, _) => format!("redisson_countdownlatch__channel__{{{name}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

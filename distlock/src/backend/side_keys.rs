//! The names that the server stores beside a key, as far as they show that they are such names.

use uuid::Uuid;

/// What names begin with that belong to a lock of Redisson or of this crate.
const BEFORE: [&str; 4] = [
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_unlock_latch:",
];

/// What they end with.
const AFTER: [&str; 5] = [
    ":distlock_waiters",
    ":distlock_owners",
    ":distlock_opened",
    ":rwlock_turn",
    ":rwlock_readers_wait",
];

/// What they end with after an owner.
const AFTER_OWNER: [&str; 2] = [":request", ":ended"];

/// The permits of an expirable semaphore. A lock may have such a name as well, in Redisson and here.
const PERMITS: &str = ":timeout";

/// Whether this is the name of a key that belongs to a primitive under another key.
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "in memory such names are known by their values")
)]
pub(crate) fn belongs_to_another(name: &str) -> bool {
    is_reserved(name) || name.contains('{') && name.ends_with(PERMITS)
}

/// Whether no lock may have this name, because it can only be that of a key beside another one.
pub(crate) fn is_reserved(name: &str) -> bool {
    // All of them have the key in braces, or its own braces.
    name.contains('{')
        && (BEFORE.iter().any(|before| name.starts_with(before))
            || AFTER.iter().any(|after| name.ends_with(after))
            || AFTER_OWNER
                .iter()
                .any(|after| name.strip_suffix(after).is_some_and(ends_with_owner))
            || name.contains(":rwlock_timeout:"))
}

/// Whether a text ends with `:<uuid>:<number>`.
fn ends_with_owner(text: &str) -> bool {
    let Some((before, number)) = text.rsplit_once(':') else {
        return false;
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let id = before.rsplit_once(':').map(|(_, id)| id);
    is_number
        && id.is_some_and(|id| {
            // The parser takes other forms as well, which no owner has.
            id.len() == uuid::fmt::Hyphenated::LENGTH && Uuid::try_parse(id).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_user_may_choose_are_not_reserved() {
        for name in [
            "order:42",
            "{cart:1}:lock",
            "a{b",
            "request",
            "{cart:1}:request",
            "{cart:1}:7:ended",
            "{cart:1}:00000000000000000000000000000007:1:request",
            "order:timeout",
            "{order:1}:timeout",
            "redisson_lock_timeout:k",
            "distlock_owners",
            "k:rwlock_turn",
        ] {
            assert!(!is_reserved(name), "{name}");
        }
        // It may be that of a semaphore's permits, and is no lock to a look at all keys.
        assert!(belongs_to_another("{order:1}:timeout"));
        for name in ["order:timeout", "{cart:1}:lock", "{cart:1}:request"] {
            assert!(!belongs_to_another(name), "{name}");
        }
    }
}

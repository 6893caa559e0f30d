//! How keys and channels are called in Redis: Redisson's names, byte for byte.

/// The channel on which the end of a lock's hold is published.
///
/// A name with a `{` in it is taken to bear a hash tag of its own; any other is made the tag, so that channel and key
/// lie in one slot.
pub(super) fn lock_channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
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

//! What a waiter learns from a key's channel.

/// The state of a subscription.
///
/// Messages are hints: a waiter repeats its attempt, or looks at the key, to learn what happened. Several messages in a row may show as one
/// change of the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Whether the server has confirmed the subscription, so that messages arrive.
    pub active: bool,
    /// Changes with each message, and whenever the subscription becomes active or is dropped. This wakes those who watch.
    pub version: u64,
    /// Changes with each message. The difference to the version changes only when the subscription becomes active or is
    /// dropped.
    pub messages: u64,
}

impl Signal {
    /// Whether messages arrived all the time since `earlier`.
    pub(crate) fn was_active_since(self, earlier: Self) -> bool {
        let changes = |signal: Self| signal.version.wrapping_sub(signal.messages);
        earlier.active && self.active && changes(self) == changes(earlier)
    }
}

//! How clients of a cluster tell each other that a lock is free.

/// How clients of a cluster tell each other that a lock is free. See [`Builder::pub_sub`](crate::Builder::pub_sub).
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum PubSub {
    /// By sharded messages (SPUBLISH, SSUBSCRIBE) if the servers have them, and by plain ones otherwise. Redisson does the
    /// same since version 3.22. The default.
    #[default]
    Auto,
    /// By sharded and by plain messages, for a time in which old and new clients use the same locks. Each release is sent to
    /// every node. Servers without sharded messages get plain ones only.
    Both,
    /// By plain messages (PUBLISH, SUBSCRIBE), as Redisson did before version 3.22, and does with
    /// `shardedSubscriptionMode: OFF`. Each release is sent to every node.
    Plain,
}

//! What lock servers say of themselves, for people who run them.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// What one lock server says of itself: [`Client::server_facts`](crate::Client::server_facts).
///
/// Each fact is known or unknown independently, because a user may have the right to ask for one and not for another.
///
/// # Examples
/// See [`Client::server_facts`](crate::Client::server_facts).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerFacts {
    /// The address, without user and password.
    pub server: String,
    /// How the client has found the server.
    pub layout: ServerLayout,
    /// What the server answers to `HELLO`: `server`, `version`, `proto`, `mode` and `role`. It needs no right.
    pub hello: Result<BTreeMap<String, String>, UnknownFact>,
    /// The fields of `INFO`, such as `maxmemory_policy`. They need the right `+info`.
    pub info: Result<BTreeMap<String, String>, UnknownFact>,
    /// The fields of `CLUSTER INFO`, of a node of a cluster. They need the right `+cluster|info`. `None` for any other server.
    pub cluster_info: Option<Result<BTreeMap<String, String>, UnknownFact>>,
    /// How long each of several `PING` took, one after the other.
    pub pings: Result<Vec<Duration>, UnknownFact>,
    /// The server's clock minus that of this machine, in milliseconds; with an error of up to half a round trip. It needs the
    /// right `+time`.
    pub clock_ahead_ms: Result<i64, UnknownFact>,
    /// The rights that the client's user lacks for each primitive, for keys with the client's prefix. A server before
    /// Redis 7.0 does not tell.
    pub rights: Result<Vec<PrimitiveRights>, UnknownFact>,
    /// How many listeners got a message that a script has published, for which nobody waits. The error says why it was not
    /// published: then nobody is told when a key is free, and waiters find it free when they look.
    pub published: Result<u64, UnknownFact>,
    /// Whether a script may use a key that it does not declare. Read/write locks need that. The error says why not.
    pub undeclared_keys: Result<(), UnknownFact>,
    /// Whether the server tells at once that a hold may be lost
    /// ([`track_holds`](crate::Builder::track_holds)). It needs the rights `+client|tracking` and `+client|caching`. The error says
    /// why not: then each loss is found at the next renewal.
    pub tracking: Result<(), UnknownFact>,
}

/// How a client finds a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerLayout {
    /// The URL names the server.
    Single,
    /// Sentinels name the server.
    Sentinel,
    /// The server is a node of a cluster.
    Cluster,
}

/// What a user lacks of the rights that the page [`least_privilege`](crate::guide::least_privilege) lists for a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrimitiveRights {
    /// The title of the list on that page, such as `fenced lock`. That of the first list is `locks`.
    pub primitive: &'static str,
    /// The rights that the user lacks, as an ACL rule names them: `+hset`, `~key`, `&channel`. The names of keys and channels
    /// are those of one key.
    ///
    /// If the user may not use this key at all, the locks' list has its pattern `~key`, and no list has the commands and
    /// channels that name it: which of them the user may use with its own keys cannot be told.
    pub missing: Vec<String>,
}

/// Why a fact is not known: the user lacks a right, the server is too old, or it did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFact(String);

impl UnknownFact {
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a memory server has no facts")
    )]
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for UnknownFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for UnknownFact {}

//! What lock servers say of themselves, for people who run them.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// What one lock server says of itself: [`Client::server_facts`](crate::Client::server_facts).
///
/// Each fact is known or unknown independently, because a user may have the right to ask for one and not for another.
///
/// With the feature `serde` it can be serialized. A fact is then `{"value": ..}`, or `{"unknown": "why"}` if it is not known.
/// The pings are whole microseconds, under the name `pings_us`.
///
/// # Examples
/// See [`Client::server_facts`](crate::Client::server_facts).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ServerFacts {
    /// The address, without user and password.
    pub server: String,
    /// How the client has found the server.
    pub layout: ServerLayout,
    /// What the server answers to `HELLO`: `server`, `version`, `proto`, `mode` and `role`. It needs no right.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub hello: Result<BTreeMap<String, String>, UnknownFact>,
    /// The fields of `INFO`, such as `maxmemory_policy`. They need the right `+info`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub info: Result<BTreeMap<String, String>, UnknownFact>,
    /// What `CONFIG GET` tells of `appendfsync`, `min-replicas-to-write` and `timeout`. It needs the right `+config|get`, and many
    /// hosted servers tell nobody.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub config: Result<BTreeMap<String, String>, UnknownFact>,
    /// The fields of `CLUSTER INFO`, of a node of a cluster. They need the right `+cluster|info`. `None` for any other server.
    #[cfg_attr(feature = "serde", serde(serialize_with = "some_fact"))]
    pub cluster_info: Option<Result<BTreeMap<String, String>, UnknownFact>>,
    /// How long each of several `PING` took, one after the other. A server that refuses writes, because its last snapshot or its last
    /// write to a file has failed, refuses them as well (`MISCONF`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "pings_us", serialize_with = "micros")
    )]
    pub pings: Result<Vec<Duration>, UnknownFact>,
    /// The server's clock minus that of this machine, in milliseconds; with an error of up to half a round trip. It needs the
    /// right `+time`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub clock_ahead_ms: Result<i64, UnknownFact>,
    /// The rights that the client's user lacks for each primitive, for keys with the client's prefix. A server before
    /// Redis 7.0 does not tell.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub rights: Result<Vec<PrimitiveRights>, UnknownFact>,
    /// How many listeners got a message that a script has published, for which nobody waits. The error says why it was not
    /// published: then no message says that a key is free, and waiters find out when they look.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub published: Result<u64, UnknownFact>,
    /// Whether a script may use a key that it does not declare. Read/write locks need that. The error says why not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub undeclared_keys: Result<(), UnknownFact>,
    /// Whether the server tells at once that a hold may be lost
    /// ([`track_holds`](crate::Builder::track_holds)). It needs the rights `+client|tracking` and `+client|caching`. The error says
    /// why not: then each loss is found at the next renewal.
    #[cfg_attr(feature = "serde", serde(serialize_with = "fact"))]
    pub tracking: Result<(), UnknownFact>,
}

/// How a client finds a server.
///
/// Serialized, it is its name in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PrimitiveRights {
    /// The title of the list on that page, such as `fenced lock`. That of the first list is `locks`.
    pub primitive: &'static str,
    /// The rights that the user lacks, as an ACL rule names them: `+hset`, `~key`, `&channel`. The names of keys and channels
    /// are those of one key.
    ///
    /// If the user may not use this key at all, the locks' list has its pattern `~key`, and no list has the commands and
    /// channels that name it: it is not known which of them the user may use with its own keys.
    pub missing: Vec<String>,
}

/// Why a fact is not known: the user lacks a right, the server is too old, or it did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

#[cfg(feature = "serde")]
fn fact<T: serde::Serialize, S: serde::Serializer>(
    fact: &Result<T, UnknownFact>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Fact<'a, T> {
        Value(&'a T),
        Unknown(&'a UnknownFact),
    }
    let fact = match fact {
        Ok(value) => Fact::Value(value),
        Err(reason) => Fact::Unknown(reason),
    };
    serde::Serialize::serialize(&fact, serializer)
}

#[cfg(feature = "serde")]
fn some_fact<T: serde::Serialize, S: serde::Serializer>(
    some: &Option<Result<T, UnknownFact>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match some {
        Some(known) => fact(known, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(feature = "serde")]
fn micros<S: serde::Serializer>(
    times: &Result<Vec<Duration>, UnknownFact>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let times = times.as_ref().map(|times| times.iter().map(micros));
    fact(&times.map(Vec::from_iter).map_err(Clone::clone), serializer)
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn facts_are_serialized_as_values_or_as_why_they_are_not_known() {
        let denied = || UnknownFact::new("the user lacks +info");
        let missing = PrimitiveRights {
            primitive: "fenced lock",
            missing: vec![String::from("+hset")],
        };
        let facts = ServerFacts {
            server: String::from("localhost:6379"),
            layout: ServerLayout::Sentinel,
            hello: Ok(BTreeMap::from([(String::from("proto"), String::from("3"))])),
            info: Err(denied()),
            config: Ok(BTreeMap::from([(
                String::from("timeout"),
                String::from("0"),
            )])),
            cluster_info: None,
            pings: Ok(vec![Duration::from_micros(250)]),
            clock_ahead_ms: Ok(-7),
            rights: Ok(vec![missing]),
            published: Ok(2),
            undeclared_keys: Ok(()),
            tracking: Err(denied()),
        };
        let expected = serde_json::json!({
            "server": "localhost:6379",
            "layout": "sentinel",
            "hello": {"value": {"proto": "3"}},
            "info": {"unknown": "the user lacks +info"},
            "config": {"value": {"timeout": "0"}},
            "cluster_info": null,
            "pings_us": {"value": [250]},
            "clock_ahead_ms": {"value": -7},
            "rights": {"value": [{"primitive": "fenced lock", "missing": ["+hset"]}]},
            "published": {"value": 2},
            "undeclared_keys": {"value": null},
            "tracking": {"unknown": "the user lacks +info"},
        });
        assert_eq!(serde_json::to_value(&facts).unwrap(), expected);
    }
}

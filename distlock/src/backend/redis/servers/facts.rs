//! What the servers say of themselves. Each question is asked separately, because a user may have the right to ask one and not
//! the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue, Value, cmd};

use super::node::Node;
use crate::backend::redis::{names, script};
use crate::backend::{PrimitiveRights, ServerFacts, ServerLayout, UnknownFact};
use crate::resource::key::Key;

/// How often the round trip is measured.
const PINGS: usize = 9;

/// What a primitive needs: the lists of the guide's page `least_privilege`, each command as one that the server can check.
/// `K` is a key and `C` a channel of the primitive.
struct Needs {
    primitive: &'static str,
    commands: &'static [&'static str],
    keys: fn(&str) -> Vec<String>,
    channels: fn(&str) -> Vec<String>,
}

const LOCKS: Needs = Needs {
    primitive: "locks",
    commands: &[
        "PING",
        "EVALSHA x 0",
        "EVAL x 0",
        "EXISTS K",
        "HEXISTS K f",
        "HGET K f",
        "HSET K f v",
        "HDEL K f",
        "HKEYS K",
        "HLEN K",
        "PEXPIRE K 1",
        "PTTL K",
        "DEL K",
    ],
    keys: |name| vec![name.to_owned()],
    channels: |name| vec![names::lock_channel(name)],
};

/// The locks' commands for messages that are not sharded.
const PLAIN_MESSAGES: &[&str] = &["SUBSCRIBE C", "UNSUBSCRIBE C", "PUBLISH C m"];

const CLUSTER: Needs = Needs {
    primitive: "Redis Cluster",
    commands: &["CLUSTER SLOTS", "ASKING"],
    keys: |_| Vec::new(),
    channels: |_| Vec::new(),
};

/// These replace [`PLAIN_MESSAGES`] in a cluster whose messages are sharded.
const SHARDED_MESSAGES: &[&str] = &["SSUBSCRIBE C", "SUNSUBSCRIBE C", "SPUBLISH C m"];

/// What counts listeners, and what replaces it where messages are sharded.
const LISTENERS: [&str; 2] = ["PUBSUB NUMSUB", "PUBSUB SHARDNUMSUB"];

const OTHERS: [Needs; 6] = [
    Needs {
        primitive: "looks at locks",
        commands: &[
            "TIME",
            "TYPE K",
            "GETRANGE K 0 1",
            "HSCAN K 0",
            "LLEN K",
            "LRANGE K 0 1",
            "ZSCORE K a",
            "ZCOUNT K 0 1",
            "ZRANGEBYSCORE K 0 1",
            "SCAN 0",
            "CLIENT LIST",
            LISTENERS[0],
        ],
        keys: |name| {
            vec![
                names::fence(name),
                names::fair_queue(name),
                names::fair_timeouts(name),
            ]
        },
        channels: |_| Vec::new(),
    },
    Needs {
        primitive: "fenced lock",
        commands: &["GET K", "SET K v", "INCR K", "TIME"],
        keys: |name| vec![names::fence(name)],
        channels: |_| Vec::new(),
    },
    Needs {
        primitive: "fair lock, also non-reentrant",
        commands: &[
            "TIME",
            "PEXPIREAT K 1",
            "LINDEX K 0",
            "LINSERT K BEFORE a b",
            "LLEN K",
            "LRANGE K 0 1",
            "LREM K 0 a",
            "RPUSH K v",
            "ZADD K 1 a",
            "ZCARD K",
            "ZRANGE K 0 1",
            "ZREM K a",
            "ZSCORE K a",
        ],
        keys: |name| {
            vec![
                names::fair_queue(name),
                names::fair_timeouts(name),
                names::fair_ours(name),
            ]
        },
        channels: |name| vec![names::lock_channel(name) + ":owner"],
    },
    Needs {
        primitive: "read/write lock",
        commands: &["GET K", "SET K v", "HMGET K f", "HRANDFIELD K"],
        keys: |name| vec![names::rw_turn(name), names::rw_mark(name)],
        channels: |name| vec![names::rw_channel(name)],
    },
    Needs {
        primitive: "semaphore, count-down latch",
        commands: &["GET K", "SET K v", "INCRBY K 1"],
        keys: |name| vec![names::semaphore_owners(name)],
        channels: |name| vec![names::semaphore_channel(name), names::latch_channel(name)],
    },
    Needs {
        primitive: "expirable semaphore",
        commands: &[
            "GET K",
            "SET K v",
            "INCRBY K 1",
            "DECRBY K 1",
            "TIME",
            "ZADD K 1 a",
            "ZCARD K",
            "ZCOUNT K 0 1",
            "ZRANGEBYSCORE K 0 1",
            "ZREM K a",
            "ZSCORE K a",
        ],
        keys: |name| vec![names::permits(name)],
        channels: |name| vec![names::semaphore_channel(name)],
    },
];

/// A right, and the command by which the server checks it.
struct Checked {
    right: String,
    words: Vec<String>,
    /// Whether it names a key or a channel, so that the user may lack its pattern and not the command.
    has_name: bool,
}

impl Needs {
    /// What the server is asked. `messages` are the commands for the channels.
    fn checks(&self, name: &str, messages: &[&str], is_first: bool) -> Vec<Checked> {
        let keys = (self.keys)(name);
        let channels = (self.channels)(name);
        // The commands are checked with the key that the locks' own rights admit, so that a missing pattern is reported once.
        let words = |command: &str, channel: &str| -> Vec<String> {
            let words = command.split(' ');
            let word = |word: &str| match word {
                "K" => name.to_owned(),
                "C" => channel.to_owned(),
                word => word.to_owned(),
            };
            words.map(word).collect()
        };
        let of_messages = is_first.then_some(messages).into_iter().flatten();
        let is_sharded = messages == SHARDED_MESSAGES;
        let commands = self.commands.iter().chain(of_messages);
        let commands = commands.map(|command| match *command {
            command if command == LISTENERS[0] && is_sharded => LISTENERS[1],
            command => command,
        });
        let channel = names::lock_channel(name);
        let commands = commands.map(|command| Checked {
            right: right(command),
            words: words(command, &channel),
            has_name: command.split(' ').any(|word| ["K", "C"].contains(&word)),
        });
        let keys = keys.iter().map(|key| Checked {
            right: format!("~{key}"),
            words: vec!["EXISTS".to_owned(), key.clone()],
            has_name: true,
        });
        // The last of them publishes.
        let publish = messages.last().copied().unwrap_or_default();
        let channels = channels.iter().map(|channel| Checked {
            right: format!("&{channel}"),
            words: words(publish, channel),
            has_name: true,
        });
        commands.chain(keys).chain(channels).collect()
    }
}

/// The rule that allows a command: `+cluster|slots`.
fn right(command: &str) -> String {
    let mut words = command.split(' ');
    let name = words.next().unwrap_or_default().to_lowercase();
    match words.next() {
        Some(part) if ["client", "cluster", "pubsub"].contains(&name.as_str()) => {
            format!("+{name}|{}", part.to_lowercase())
        }
        _ => format!("+{name}"),
    }
}

/// The facts of one server. The rights are those for a key, and scripts are tried with the key `near`, which the server has.
pub(super) async fn of(
    node: &Node,
    layout: ServerLayout,
    sharded: bool,
    (key, near): (&Key, &Key),
) -> ServerFacts {
    let is_cluster = layout == ServerLayout::Cluster;
    // Otherwise each question would wait for the connection separately.
    if let Err(fault) = node.connected_epoch().await {
        return unreached(node, layout, &UnknownFact::new(fault.why()));
    }
    let cluster_info = if is_cluster {
        Some(text(node, "CLUSTER INFO").await.map(|text| fields(&text)))
    } else {
        None
    };
    let (published, undeclared_keys) = match probe(node, sharded, near).await {
        Ok(probed) => probed,
        Err(unknown) => (Err(unknown.clone()), Err(unknown)),
    };
    ServerFacts {
        server: node.name().to_owned(),
        layout,
        hello: hello(node).await,
        info: text(node, "INFO").await.map(|text| fields(&text)),
        cluster_info,
        pings: pings(node).await,
        clock_ahead_ms: clock_ahead(node).await,
        rights: rights(node, is_cluster, sharded, key).await,
        published,
        undeclared_keys,
    }
}

/// The facts of a server that cannot be connected to.
fn unreached(node: &Node, layout: ServerLayout, why: &UnknownFact) -> ServerFacts {
    ServerFacts {
        server: node.name().to_owned(),
        layout,
        hello: Err(why.clone()),
        info: Err(why.clone()),
        cluster_info: None,
        pings: Err(why.clone()),
        clock_ahead_ms: Err(why.clone()),
        rights: Err(why.clone()),
        published: Err(why.clone()),
        undeclared_keys: Err(why.clone()),
    }
}

/// Asks one question, of several words.
async fn ask<T: FromRedisValue>(node: &Node, command: Cmd) -> Result<T, UnknownFact> {
    let answer = node.send(command).await;
    let answer = answer.map_err(|fault| UnknownFact::new(fault.why()))?;
    redis::from_redis_value(answer).map_err(UnknownFact::new)
}

async fn text(node: &Node, question: &str) -> Result<String, UnknownFact> {
    let mut words = question.split(' ');
    let mut command = cmd(words.next().unwrap_or_default());
    command.arg(words.collect::<Vec<_>>());
    ask(node, command).await
}

/// The lines `name:value`.
fn fields(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn hello(node: &Node) -> Result<BTreeMap<String, String>, UnknownFact> {
    let mut command = cmd("HELLO");
    command.arg(3);
    let answer: BTreeMap<String, Value> = ask(node, command).await?;
    let field = |(name, value): (String, Value)| {
        let value = redis::from_redis_value::<String>(value).ok()?;
        Some((name, value))
    };
    Ok(answer.into_iter().filter_map(field).collect())
}

async fn pings(node: &Node) -> Result<Vec<Duration>, UnknownFact> {
    let mut pings = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let sent = Instant::now();
        ask::<Value>(node, cmd("PING")).await?;
        pings.push(sent.elapsed());
    }
    Ok(pings)
}

/// The server's clock minus ours, in milliseconds.
async fn clock_ahead(node: &Node) -> Result<i64, UnknownFact> {
    let sent = SystemTime::now();
    let (seconds, micros): (i64, i64) = ask(node, cmd("TIME")).await?;
    let round_trip = sent.elapsed().unwrap_or_default();
    let ours = (sent + round_trip / 2)
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ours = i64::try_from(ours.as_millis()).unwrap_or(i64::MAX);
    let theirs = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    Ok(theirs.saturating_sub(ours))
}

/// What the server says to a script that publishes, and to one that uses a key that it does not declare.
type Probed = (Result<u64, UnknownFact>, Result<(), UnknownFact>);

async fn probe(node: &Node, sharded: bool, near: &Key) -> Result<Probed, UnknownFact> {
    let publish = if sharded {
        script::Publish::Sharded
    } else {
        script::Publish::Plain
    };
    let name = near.name();
    let call = script::PROBE.by_source(publish).key(name);
    let call = call.arg(names::lock_channel(name));
    let call = call.arg(names::rw_stem(name) + NOBODY);
    let (heard, untold, refused): (Option<u64>, Option<String>, Option<String>) =
        ask(node, call.into_cmd()).await?;
    let published = heard.ok_or_else(|| UnknownFact::new(untold.unwrap_or_default()));
    let undeclared = refused.map_or(Ok(()), |why| Err(UnknownFact::new(why)));
    Ok((published, undeclared))
}

/// The owner whose entries are asked for, as nobody is called.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000:0";

async fn rights(
    node: &Node,
    is_cluster: bool,
    sharded: bool,
    key: &Key,
) -> Result<Vec<PrimitiveRights>, UnknownFact> {
    let messages = if sharded {
        SHARDED_MESSAGES
    } else {
        PLAIN_MESSAGES
    };
    let cluster = is_cluster.then_some(&CLUSTER);
    let primitives = [&LOCKS].into_iter().chain(cluster).chain(&OTHERS);
    let primitives: Vec<_> = primitives
        .enumerate()
        .map(|(at, needs)| (needs.primitive, needs.checks(key.name(), messages, at == 0)))
        .collect();
    let call = script::RIGHTS_CHECK
        .by_source(script::Publish::Plain)
        .keys(std::iter::empty());
    let checks = primitives.iter().flat_map(|(_, checks)| checks);
    let call = checks.fold(call, |call, check| call.arg(json(&check.words)));
    let allowed: Option<Vec<u8>> = ask(node, call.into_cmd()).await?;
    let Some(allowed) = allowed else {
        return Err(UnknownFact::new(
            "servers before Redis 7.0 cannot tell what a user may do",
        ));
    };
    Ok(missing(primitives, &allowed, key.name()))
}

/// The rights that are missing for a key, by the server's answers in their order.
fn missing(
    primitives: Vec<(&'static str, Vec<Checked>)>,
    allowed: &[u8],
    name: &str,
) -> Vec<PrimitiveRights> {
    let pattern = format!("~{name}");
    let is_of_key = |check: &Checked| check.words.iter().any(|word| word == name);
    let of_locks = primitives.first().map(|(_, checks)| checks.iter());
    let mut of_key = of_locks
        .into_iter()
        .flatten()
        .zip(allowed)
        .filter(|(check, _)| is_of_key(check));
    // A user who may do nothing at all with the key may use other keys: of the commands it cannot be told which it lacks.
    let is_of_others = of_key.all(|(_, allowed)| *allowed == 0);
    let mut allowed = allowed.iter();
    let of_primitive = |(primitive, checks): (&'static str, Vec<Checked>)| {
        let denied = checks
            .into_iter()
            .zip(allowed.by_ref())
            .filter(|(_, allowed)| **allowed == 0)
            .map(|(check, _)| check);
        let is_told = |check: &Checked| {
            if is_of_others {
                !check.has_name || check.right == pattern
            } else {
                true
            }
        };
        PrimitiveRights {
            primitive,
            missing: denied.filter(is_told).map(|check| check.right).collect(),
        }
    };
    primitives.into_iter().map(of_primitive).collect()
}

/// The words as an array of JSON. Of the bytes that a key may have, these have to be escaped.
fn json(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let mut quoted = String::from('"');
        for c in word.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => quoted.push(c),
            }
        }
        quoted + "\""
    });
    format!("[{}]", quoted.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_that_the_guide_lists() {
        let guide = include_str!("../../../guide/least_privilege.md");
        for needs in [&LOCKS, &CLUSTER].into_iter().chain(&OTHERS) {
            let begins = match needs.primitive {
                "locks" => "&redisson_lock__channel:shop:*\n".to_owned(),
                title => format!("\n{title}\n"),
            };
            let (_, rest) = guide.split_once(&begins).unwrap();
            let lines = rest.lines().take_while(|line| line.starts_with("  "));
            let words = lines.flat_map(str::split_whitespace);
            let mut listed: Vec<_> = words.filter(|word| word.starts_with('+')).collect();
            let messages = match needs.primitive {
                "locks" => PLAIN_MESSAGES,
                _ => &[],
            };
            let checked = needs.commands.iter().chain(messages);
            let mut checked: Vec<_> = checked.map(|command| right(command)).collect();
            listed.sort_unstable();
            checked.sort();
            assert_eq!(checked, listed, "{}", needs.primitive);
        }
    }

    #[test]
    fn words_are_escaped() {
        let words = ["a\"b\\".to_owned(), "\n".to_owned()];
        assert_eq!(json(&words), r#"["a\"b\\","\u000a"]"#);
    }
}

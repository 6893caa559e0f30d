//! Which commands, keys and channels each primitive needs, and which of them the user may not use.

use redis::Cmd;

use crate::backend::PrimitiveRights;
use crate::backend::redis::{names, script};

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

/// What a server is asked about the rights of its user, for one key.
pub(super) struct RightsCheck {
    name: String,
    /// The locks come first.
    primitives: Vec<PrimitiveChecks>,
}

/// The rights that one primitive needs.
struct PrimitiveChecks {
    primitive: &'static str,
    checks: Vec<Checked>,
}

impl RightsCheck {
    /// The rights for all primitives under this name.
    pub(super) fn of(name: &str, is_cluster: bool, sharded: bool) -> Self {
        let messages = if sharded {
            SHARDED_MESSAGES
        } else {
            PLAIN_MESSAGES
        };
        let cluster = is_cluster.then_some(&CLUSTER);
        let primitives = [&LOCKS].into_iter().chain(cluster).chain(&OTHERS);
        let primitives = primitives.enumerate().map(|(at, needs)| PrimitiveChecks {
            primitive: needs.primitive,
            checks: needs.checks(name, messages, at == 0),
        });
        Self {
            name: name.to_owned(),
            primitives: primitives.collect(),
        }
    }

    /// The question for the server. It answers nil, or a byte for each check, in their order.
    pub(super) fn question(&self) -> Cmd {
        let call = script::RIGHTS_CHECK
            .call(script::Form::Source, script::Publish::Plain)
            .keys(std::iter::empty());
        let checks = self.primitives.iter().flat_map(|one| &one.checks);
        checks
            .fold(call, |call, check| {
                call.arg(check.words.len()).arg(&check.words)
            })
            .into_cmd()
    }

    /// The rights that are missing, by the bytes of the answer.
    pub(super) fn missing(self, allowed: &[u8]) -> Vec<PrimitiveRights> {
        let Self { name, primitives } = self;
        let pattern = format!("~{name}");
        let is_of_key = |check: &Checked| check.words.contains(&name);
        let of_locks = primitives.first().map(|locks| locks.checks.iter());
        let mut of_key = of_locks
            .into_iter()
            .flatten()
            .zip(allowed)
            .filter(|(check, _)| is_of_key(check));
        // If the user may do nothing at all with the key, the server refuses the key and not a command. The user may have other
        // keys, so a refused command says nothing about the right to it.
        let is_of_others = of_key.all(|(_, allowed)| *allowed == 0);
        let mut allowed = allowed.iter();
        let of_primitive = |PrimitiveChecks { primitive, checks }: PrimitiveChecks| {
            let denied = checks
                .into_iter()
                .zip(allowed.by_ref())
                .filter(|(_, allowed)| **allowed == 0)
                .map(|(check, _)| check);
            let is_told =
                |check: &Checked| !is_of_others || !check.has_name || check.right == pattern;
            PrimitiveRights {
                primitive,
                missing: denied.filter(is_told).map(|check| check.right).collect(),
            }
        };
        primitives.into_iter().map(of_primitive).collect()
    }
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
}

//! What the facts of a server mean.

mod info;
mod writes;

use std::fmt::Display;
use std::time::Duration;

use distlock::{ServerFacts, ServerLayout};

use self::info::{Info, field, number};
use self::writes::{persistence, replicas};
use super::{Finding, Verdict};

/// Longer round trips are reported: each acquisition takes at least one.
const SLOW: Duration = Duration::from_millis(20);

/// A round trip near the response timeout of the clients, 2 s by default: commands are sent again.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// Clocks may differ by so much: a third of the time that a waiter of a fair lock has, 5 s by default.
const CLOCKS_DIFFER_MS: u64 = 1_600;

/// How often clients send a command over a connection that is idle, by default, in seconds.
const PING_INTERVAL: u64 = 30;

/// The oldest version that speaks RESP3.
const OLDEST: u32 = 6;

/// The slots of a cluster.
const SLOTS: &str = "16384";

/// All findings of one server, in the order in which one reads them.
pub(super) fn check(facts: &ServerFacts, prefix: Option<&str>) -> Vec<Finding> {
    // Every user may send these two.
    if let (Err(unknown), Err(_)) = (&facts.pings, &facts.hello) {
        return vec![unreached(facts.layout, unknown)];
    }
    let mut findings = vec![version(facts), protocol(facts)];
    findings.extend(rights(facts, prefix));
    // Otherwise all scripts are refused for their key, which is reported above.
    if (prefix.is_some() || !is_of_some_keys(facts)) && !lacks_key(facts) {
        findings.extend([messages(facts), undeclared_keys(facts)]);
    }
    findings.push(losses(facts));
    let config = facts.config.as_ref().ok();
    let refusal = facts.pings.as_ref().err().map(ToString::to_string);
    let ping = refusal.as_deref().map_or(Ok(()), Err);
    match &facts.info {
        Ok(info) => findings.extend([
            eviction(info),
            memory(info),
            persistence(info, config, ping),
            replicas(info, config, facts.layout),
        ]),
        Err(unknown) => {
            for check in ["eviction", "memory", "persistence", "replicas"] {
                findings.push(
                    not_known(check, unknown).advice(
                        "The user needs the right +info for this line. Locks do not need it. Waiters of a latch do, if \
                         Redisson opens it while they are not connected: without it they are told that it is lost.",
                    ),
                );
            }
        }
    }
    match &facts.cluster_info {
        None => {}
        Some(Ok(info)) => findings.push(cluster(info)),
        Some(Err(unknown)) => {
            findings.push(not_known("cluster", unknown).advice(
                "The user needs the right +cluster|info for this line. Locks do not need it.",
            ))
        }
    }
    findings.extend([idle(facts), latency(facts), clock(facts)]);
    findings
}

/// A server that nothing could be asked of.
fn unreached(layout: ServerLayout, why: impl Display) -> Finding {
    let advice = match layout {
        ServerLayout::Cluster => {
            "Nobody can use the locks of its slots from here. The nodes of the cluster announce this address: look at \
             cluster-announce-ip, cluster-announce-hostname and cluster-announce-port of the node, and at the network between."
        }
        ServerLayout::Sentinel => {
            "Nobody can use its locks from here. The Sentinels name this address: look at replica-announce-ip and \
             replica-announce-port of the server, and at the network between."
        }
        _ => {
            "No client can use its locks. The text says what the server or the network has refused."
        }
    };
    Finding::new("connection", Verdict::Bad, why.to_string()).advice(advice)
}

fn not_known(check: &'static str, why: impl Display) -> Finding {
    Finding::new(check, Verdict::Unknown, why.to_string())
}

fn version(facts: &ServerFacts) -> Finding {
    let of_info = |name| facts.info.as_ref().ok().and_then(|info| info.get(name));
    let of_hello = || {
        facts
            .hello
            .as_ref()
            .ok()
            .and_then(|hello| hello.get("version"))
    };
    let valkey = of_info("valkey_version");
    let Some(version) = valkey
        .or_else(|| of_info("redis_version"))
        .or_else(of_hello)
    else {
        return not_known("version", "the server does not tell its version");
    };
    let name = match valkey {
        Some(_) => "Valkey",
        None => "Redis",
    };
    let value = format!("{name} {version}");
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < OLDEST => Finding::new("version", Verdict::Bad, value)
            .advice("Locks need Redis 6.0 or later, or Valkey."),
        _ => Finding::new("version", Verdict::Ok, value),
    }
}

fn protocol(facts: &ServerFacts) -> Finding {
    match &facts.hello {
        // The client has connected by it.
        Ok(_) => Finding::new("protocol", Verdict::Ok, "RESP3"),
        Err(unknown) => not_known("protocol", unknown),
    }
}

fn rights(facts: &ServerFacts, prefix: Option<&str>) -> Vec<Finding> {
    let primitives = match &facts.rights {
        Ok(primitives) => primitives,
        Err(unknown) => {
            return vec![not_known("rights", unknown).advice(
                "Compare the user's rights with the page `least_privilege` of the guide.",
            )];
        }
    };
    if prefix.is_none() && is_of_some_keys(facts) {
        let value =
            "the user may use only some keys, and a key without a prefix is not one of them";
        return vec![
            Finding::new("rights", Verdict::Unknown, value)
                .advice("Give the prefix of its keys by --prefix, for example --prefix shop:"),
        ];
    }
    let lacking: Vec<_> = primitives
        .iter()
        .filter(|primitive| !primitive.missing.is_empty())
        .map(|primitive| {
            let missing = primitive.missing.join(" ");
            let value = format!("{}: the user lacks {missing}", primitive.primitive);
            match primitive.primitive {
                "locks" | "Redis Cluster" => Finding::new("rights", Verdict::Bad, value).advice(
                    "Every primitive needs them. Add them by ACL SETUSER, or correct --prefix, which has to be the prefix of the \
                     user's keys.",
                ),
                "looks at locks" => Finding::new("rights", Verdict::Ok, value)
                    .advice("Locks do not need them. `distlock ls`, `who`, `watch` and `release` do, and so does the console."),
                _ => Finding::new("rights", Verdict::Warn, value)
                    .advice("Only this primitive needs them. If nobody uses it, there is nothing to do."),
            }
        })
        .collect();
    if lacking.is_empty() {
        vec![Finding::new(
            "rights",
            Verdict::Ok,
            "the user may do what every primitive needs",
        )]
    } else {
        lacking
    }
}

/// Whether the user may not use any key, and a key without a prefix is none of its own.
fn is_of_some_keys(facts: &ServerFacts) -> bool {
    let primitives = facts.rights.iter().flatten();
    let mut missing = primitives.flat_map(|one| &one.missing);
    missing.any(|right| right.starts_with(['~', '&']))
}

/// Whether the user may not use the key that was asked for.
fn lacks_key(facts: &ServerFacts) -> bool {
    let primitives = facts.rights.iter().flatten();
    let mut of_locks = primitives.filter(|one| one.primitive == "locks");
    of_locks.any(|one| one.missing.iter().any(|right| right.starts_with('~')))
}

fn messages(facts: &ServerFacts) -> Finding {
    match &facts.published {
        Ok(_) => Finding::new("messages", Verdict::Ok, "a script may publish"),
        Err(refused) => {
            let value = format!("nothing is published: {refused}");
            Finding::new("messages", Verdict::Warn, value).advice(
                "A release frees its key, but nobody is told: waiters look at their keys every 5 s. Give the user the right to \
                 publish and the channels of its keys, or use a plan whose scripts may call PUBLISH.",
            )
        }
    }
}

fn undeclared_keys(facts: &ServerFacts) -> Finding {
    match &facts.undeclared_keys {
        Ok(()) => Finding::new(
            "undeclared",
            Verdict::Ok,
            "a script may use keys that it does not declare",
        ),
        Err(refused) => {
            let value = format!("a script may not use a key that it does not declare: {refused}");
            Finding::new("undeclared", Verdict::Warn, value).advice(
                "Read/write locks do not work: each reader has a key of its own, which scripts find in the lock. All other \
                 primitives work. Start Dragonfly with --default_lua_flags=allow-undeclared-keys. A user needs the pattern of \
                 keys that begin with a brace, such as ~{shop:*",
            )
        }
    }
}

fn losses(facts: &ServerFacts) -> Finding {
    match &facts.tracking {
        Ok(()) => Finding::new(
            "losses",
            Verdict::Ok,
            "the server tells at once that a hold may be lost",
        ),
        Err(refused) => {
            let value = format!("the server does not tell at once that a hold is lost: {refused}");
            Finding::new("losses", Verdict::Warn, value).advice(
                "A hold whose key was deleted or freed by force is told at its next renewal, up to a third of its lease later. Give \
                 the user the rights +client|tracking and +client|caching, or use a server or plan that has CLIENT TRACKING.",
            )
        }
    }
}

fn eviction(info: &Info) -> Finding {
    let policy = field(info, "maxmemory_policy");
    let has_limit = number(info, "maxmemory") > 0;
    match (policy, has_limit) {
        ("", _) => not_known("eviction", "the server does not tell its maxmemory-policy"),
        ("noeviction", _) => Finding::new("eviction", Verdict::Ok, "maxmemory-policy noeviction"),
        (policy, true) => Finding::new("eviction", Verdict::Bad, format!("maxmemory-policy {policy}")).advice(
            "When the memory is full the server deletes keys, and a lock that is deleted is held by nobody: two owners at a \
             time. Set maxmemory-policy noeviction, or use a server of its own for locks.",
        ),
        (policy, false) => {
            let value = format!("maxmemory-policy {policy}, without a limit of memory");
            Finding::new("eviction", Verdict::Warn, value)
                .advice("As soon as somebody sets maxmemory, locks may be deleted. Set maxmemory-policy noeviction.")
        }
    }
}

fn memory(info: &Info) -> Finding {
    let used = number(info, "used_memory");
    let most = number(info, "maxmemory");
    // Without a limit `most` is 0, and there is no part of it.
    let percent = used.saturating_mul(100).checked_div(most);
    match percent {
        None => Finding::new("memory", Verdict::Ok, "no limit"),
        Some(percent) if percent >= 90 => {
            Finding::new("memory", Verdict::Warn, format!("{percent} % of maxmemory")).advice(
                "A full server with the policy noeviction still grants locks, but refuses the writes of other programs. Raise maxmemory, or find what fills it.",
            )
        }
        Some(percent) => Finding::new("memory", Verdict::Ok, format!("{percent} % of maxmemory")),
    }
}

fn cluster(info: &Info) -> Finding {
    let state = field(info, "cluster_state");
    let served = field(info, "cluster_slots_ok");
    match state {
        "ok" if served == SLOTS => {
            let masters = field(info, "cluster_size");
            let nodes = field(info, "cluster_known_nodes");
            let value = format!("{masters} masters among {nodes} nodes, all slots are served");
            Finding::new("cluster", Verdict::Ok, value)
        }
        state => {
            let value = format!("state {state}, {served} of {SLOTS} slots are served");
            Finding::new("cluster", Verdict::Bad, value)
                .advice("Locks in the other slots cannot be acquired. Look at CLUSTER NODES for the node that has failed.")
        }
    }
}

/// How long a connection may be idle.
fn idle(facts: &ServerFacts) -> Finding {
    let config = match &facts.config {
        Ok(config) => config,
        Err(unknown) => {
            return not_known("idle", unknown).advice(
                "The user needs the right +config|get for this line. With it, `doctor` also reads appendfsync and \
                 min-replicas-to-write. Locks do not need it.",
            );
        }
    };
    let closed =
        |seconds| format!("the server closes connections after {seconds} s without a command");
    match config.get("timeout").and_then(|seconds| seconds.parse::<u64>().ok()) {
        None => not_known("idle", "the server does not tell its timeout"),
        Some(0) => Finding::new("idle", Verdict::Ok, "the server closes no idle connection"),
        Some(seconds) if seconds <= PING_INTERVAL => Finding::new("idle", Verdict::Warn, closed(seconds)).advice(
            "Clients send a command every 30 s by default. Shorter pauses end their connections, and the next command waits for \
             another one. Set timeout 0, or a shorter `ping_interval` in their URL.",
        ),
        Some(seconds) => Finding::new("idle", Verdict::Ok, closed(seconds)),
    }
}

fn latency(facts: &ServerFacts) -> Finding {
    let mut pings = match &facts.pings {
        Ok(pings) => pings.clone(),
        Err(unknown) => return not_known("latency", unknown),
    };
    pings.sort_unstable();
    let (Some(median), Some(longest)) = (pings.get(pings.len() / 2), pings.last()) else {
        return not_known("latency", "no answer was timed");
    };
    let value = format!("median {}, longest {}", millis(*median), millis(*longest));
    match () {
        () if *longest >= TOO_SLOW => Finding::new("latency", Verdict::Bad, value).advice(
            "Renewals come late, and holds may be lost. Look for slow commands (SLOWLOG), for a machine that swaps, and at the \
             network.",
        ),
        () if *median >= SLOW => Finding::new("latency", Verdict::Warn, value)
            .advice("Each acquisition takes at least one round trip. Put the server nearer to its clients."),
        () => Finding::new("latency", Verdict::Ok, value),
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn clock(facts: &ServerFacts) -> Finding {
    let ahead = match &facts.clock_ahead_ms {
        Ok(ahead) => *ahead,
        Err(unknown) => {
            return not_known("clock", unknown).advice(
                "The user needs the right +time for this line. Plain locks do not need it.",
            );
        }
    };
    let value = format!("{ahead:+} ms beside this machine");
    if ahead.unsigned_abs() > CLOCKS_DIFFER_MS {
        Finding::new("clock", Verdict::Warn, value).advice(
            "Leases do not depend on it. Fair locks with waiters of Redisson, and permits whose ends Redisson has written, do. \
             Have both machines follow the time of the network (NTP).",
        )
    } else {
        Finding::new("clock", Verdict::Ok, value)
    }
}

#[cfg(test)]
mod tests;

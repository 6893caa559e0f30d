//! What a server keeps, and whether it takes writes: its files, its snapshots and its replicas.

use distlock::ServerLayout;

use super::info::{Info, field, number};
use crate::doctor::{Finding, Verdict};

/// `config` is `None` if the server does not tell its settings. `ping` is whether it has answered `PING`, or why it has not.
pub(super) fn persistence(info: &Info, config: Option<&Info>, ping: Result<(), &str>) -> Finding {
    let is_on = field(info, "aof_enabled") == "1";
    let write = field(info, "aof_last_write_status");
    if field(info, "rdb_last_bgsave_status") == "err" {
        return failed_snapshot(info, ping);
    }
    match (is_on, write) {
        (true, "ok" | "") => append_only_file(config),
        (true, write) => {
            let value = format!("append-only file, its last write: {write}");
            Finding::new("persistence", Verdict::Bad, value).advice(
                "The server cannot write, and refuses commands that change something. Look at its disk and its log.",
            )
        }
        (false, _) => Finding::new("persistence", Verdict::Warn, "no append-only file").advice(
            "A server that crashes comes back without its latest locks, and grants them again while their holders are at \
             work. Set appendonly yes, or have clients wait after a restart, by `restart_grace` in their URL.",
        ),
    }
}

fn append_only_file(config: Option<&Info>) -> Finding {
    let file = |verdict, value| Finding::new("persistence", verdict, value);
    match config.map(|config| field(config, "appendfsync")) {
        Some("always") => file(Verdict::Ok, "append-only file, appendfsync always"),
        Some("no") => file(Verdict::Warn, "append-only file, appendfsync no").advice(
            "If the machine crashes, the file lacks the locks of some half a minute. Set appendfsync everysec or always, or have clients \
             wait after a restart, by `restart_grace` in their URL.",
        ),
        _ => file(Verdict::Ok, "append-only file").advice(
            "If the machine crashes, the file lacks the locks of about the last second, except with appendfsync always. Clients can \
             wait after a restart, by `restart_grace` in their URL.",
        ),
    }
}

/// A server that refuses writes for a failed snapshot refuses `PING` as well. Without an answer the refusals tell whether it has refused
/// commands since its start. Servers before Redis 6.2 do not tell them.
fn failed_snapshot(info: &Info, ping: Result<(), &str>) -> Finding {
    let has_refused = info.contains_key("errorstat_MISCONF");
    let (verdict, value, advice) = match ping {
        Ok(()) => (
            Verdict::Warn,
            "its last snapshot has failed",
            "It refuses no command for that. With save points and stop-writes-on-bgsave-error yes, which are the defaults, it would \
             (MISCONF).",
        ),
        Err(why) if why.contains("MISCONF") => (
            Verdict::Bad,
            "its last snapshot has failed, and it refuses commands for that",
            "The server refuses commands that change something until a snapshot succeeds (MISCONF).",
        ),
        Err(_) if has_refused => (
            Verdict::Bad,
            "its last snapshot has failed, and it has refused commands for that",
            "With save points and stop-writes-on-bgsave-error yes, which are the defaults, the server refuses commands that change \
             something until a snapshot succeeds (MISCONF). If the settings have changed since a refusal, CONFIG RESETSTAT forgets it.",
        ),
        Err(_) => (
            Verdict::Warn,
            "its last snapshot has failed",
            "Whether it refuses commands for that is not known, because PING was not answered. With save points and \
             stop-writes-on-bgsave-error yes, which are the defaults, it does (MISCONF).",
        ),
    };
    let look = "Look at its disk, its memory and its log.";
    Finding::new("persistence", verdict, value).advice(format!("{advice} {look}"))
}

/// `config` is `None` if the server does not tell its settings.
pub(super) fn replicas(info: &Info, config: Option<&Info>, layout: ServerLayout) -> Finding {
    let role = field(info, "role");
    let count = number(info, "connected_slaves");
    if role != "master" {
        return Finding::new("replicas", Verdict::Bad, format!("the role is {role}")).advice(
            "Locks are granted by masters. A replica refuses them: use the URL of the master.",
        );
    }
    if let Some(good) = info.get("min_slaves_good_slaves")
        && let Some(finding) = too_few_replicas(info, config, good)
    {
        return finding;
    }
    let value = match count {
        0 => "none".to_owned(),
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    };
    match (count, layout) {
        (0, ServerLayout::Single) => Finding::new("replicas", Verdict::Ok, value)
            .advice("Nothing takes over while the server is away. Sentinel or a cluster would."),
        (0, _) => Finding::new("replicas", Verdict::Warn, value)
            .advice("If this server fails, nothing can take over. Add a replica."),
        _ => Finding::new("replicas", Verdict::Ok, value).advice(
            "A replica that takes over may not have the latest grants. With replicas=connected&replicas_timeout=1s in their URL, clients are \
             granted only what the connected replicas have, as Redisson's are by default.",
        ),
    }
}

/// The server tells the number of its good replicas only if it needs some for a write. If its settings do not tell how many, the
/// refusals tell whether there were too few.
fn too_few_replicas(info: &Info, config: Option<&Info>, good: &str) -> Option<Finding> {
    let refuses = "The server refuses commands that change something until enough replicas follow it (NOREPLICAS). Look at the replicas \
                   and at the network between.";
    if good == "0" {
        let value = "min-replicas-to-write is set, and no replica follows";
        return Some(Finding::new("replicas", Verdict::Bad, value).advice(refuses));
    }
    let needed = config.map_or(0, |config| number(config, "min-replicas-to-write"));
    if needed > 0 {
        let is_short = good.parse::<u64>().is_ok_and(|good| good < needed);
        return is_short.then(|| {
            let value = format!("good replicas: {good}; min-replicas-to-write is {needed}");
            Finding::new("replicas", Verdict::Bad, value).advice(refuses)
        });
    }
    // Servers before Redis 6.2 do not tell.
    info.contains_key("errorstat_NOREPLICAS").then(|| {
        let value = format!("good replicas: {good}; with fewer than min-replicas-to-write it has refused commands");
        Finding::new("replicas", Verdict::Warn, value).advice(
            "Compare with CONFIG GET min-replicas-to-write. If the number is below it, the server refuses commands that change \
             something (NOREPLICAS): look at the replicas and at the network between. If not, that was earlier, and CONFIG RESETSTAT \
             forgets it.",
        )
    })
}

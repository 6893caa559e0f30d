//! What the servers say of themselves. Each question is a command of its own, because a user may have the right to ask one and
//! not the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::OptionFuture;
use redis::{Cmd, FromRedisValue, Value, cmd};

use super::node::Node;
use super::rights::RightsCheck;
use crate::backend::redis::tracking::COMMANDS as TRACKING;
use crate::backend::redis::{names, script};
use crate::backend::{PrimitiveRights, ServerFacts, ServerLayout, UnknownFact};
use crate::resource::key::Key;
use crate::sync::all;

/// How often the round trip is measured.
const PINGS: usize = 9;

/// The settings that are asked for, each by its name: passwords are among all of them.
const SETTINGS: [&str; 3] = ["appendfsync", "min-replicas-to-write", "timeout"];

/// The facts of one server. The rights are those for `key`. Scripts are tried with `near`, which lives on the server.
pub(super) async fn of(
    node: &Node,
    layout: ServerLayout,
    sharded: bool,
    key: &Key,
    near: &Key,
) -> ServerFacts {
    let is_cluster = layout == ServerLayout::Cluster;
    // Otherwise each question would wait for the connection separately.
    if let Err(fault) = node.connected_epoch().await {
        return unreached(node, layout, &UnknownFact::new(fault.why()));
    }
    let cluster_info = async {
        let text = text(node, "CLUSTER INFO").await;
        text.map(|text| fields(&text))
    };
    // Sent together: they take as long as the longest of them, and not a round trip each.
    let (hello, info, cluster_info, config, probed, rights, tracking) = tokio::join!(
        hello(node),
        text(node, "INFO"),
        OptionFuture::from(is_cluster.then_some(cluster_info)),
        config(node),
        probe(node, sharded, near),
        rights(node, is_cluster, sharded, key),
        tracking(node),
    );
    let Probed {
        published,
        undeclared_keys,
    } = probed.unwrap_or_else(|unknown| Probed {
        published: Err(unknown.clone()),
        undeclared_keys: Err(unknown),
    });
    ServerFacts {
        server: node.name().to_owned(),
        layout,
        hello,
        info: info.map(|text| fields(&text)),
        config,
        cluster_info,
        // One after the other, since they are timed.
        pings: pings(node).await,
        clock_ahead_ms: clock_ahead(node).await,
        rights,
        published,
        undeclared_keys,
        tracking,
    }
}

/// The settings of [`SETTINGS`] that the server has. Servers before Redis 7.0 take one name for each command.
async fn config(node: &Node) -> Result<BTreeMap<String, String>, UnknownFact> {
    let questions = SETTINGS.map(|name| {
        let mut question = cmd("CONFIG");
        question.arg("GET").arg(name);
        ask::<BTreeMap<String, String>>(node, question)
    });
    let answers: Result<Vec<_>, _> = all(questions).await.into_iter().collect();
    Ok(answers?.into_iter().flatten().collect())
}

/// Whether the server tracks keys for this connection. If it did not before, it does from now on.
async fn tracking(node: &Node) -> Result<(), UnknownFact> {
    if !node.is_to_track() {
        return Err(UnknownFact::new("the setting `track_holds` is `false`"));
    }
    for command in TRACKING {
        text(node, command).await?;
    }
    Ok(())
}

/// The facts of a server that cannot be connected to.
fn unreached(node: &Node, layout: ServerLayout, why: &UnknownFact) -> ServerFacts {
    ServerFacts {
        server: node.name().to_owned(),
        layout,
        hello: Err(why.clone()),
        info: Err(why.clone()),
        config: Err(why.clone()),
        cluster_info: None,
        pings: Err(why.clone()),
        clock_ahead_ms: Err(why.clone()),
        rights: Err(why.clone()),
        published: Err(why.clone()),
        undeclared_keys: Err(why.clone()),
        tracking: Err(why.clone()),
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
    // The server has read its clock about half-way.
    let ours = (sent + round_trip / 2)
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ours = i64::try_from(ours.as_millis()).unwrap_or(i64::MAX);
    // Saturating: the numbers are input, and a server may say that its clock shows anything.
    let theirs = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    Ok(theirs.saturating_sub(ours))
}

/// What the server says to a script that publishes, and to one that uses a key that it does not declare.
struct Probed {
    published: Result<u64, UnknownFact>,
    undeclared_keys: Result<(), UnknownFact>,
}

async fn probe(node: &Node, sharded: bool, near: &Key) -> Result<Probed, UnknownFact> {
    let publish = if sharded {
        script::Publish::Sharded
    } else {
        script::Publish::Plain
    };
    let name = near.name();
    let call = script::PROBE.call(script::Form::Source, publish).key(name);
    let call = call.arg(names::lock_channel(name));
    let call = call.arg(names::rw_stem(name) + NOBODY);
    let (heard, untold, refused): (Option<u64>, Option<String>, Option<String>) =
        ask(node, call.into_cmd()).await?;
    Ok(Probed {
        published: heard.ok_or_else(|| UnknownFact::new(untold.unwrap_or_default())),
        undeclared_keys: refused.map_or(Ok(()), |why| Err(UnknownFact::new(why))),
    })
}

/// The owner whose entries are asked for. No owner has this name.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000:0";

async fn rights(
    node: &Node,
    is_cluster: bool,
    sharded: bool,
    key: &Key,
) -> Result<Vec<PrimitiveRights>, UnknownFact> {
    let check = RightsCheck::of(key.name(), is_cluster, sharded);
    let allowed: Option<Vec<u8>> = ask(node, check.question()).await?;
    let Some(allowed) = allowed else {
        return Err(UnknownFact::new(
            "servers before Redis 7.0 cannot tell what a user may do",
        ));
    };
    Ok(check.missing(&allowed))
}

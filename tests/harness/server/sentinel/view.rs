//! What the Sentinels say of the servers, and the servers of themselves.

use std::collections::HashMap;

use crate::server::RedisServer;

use super::{SERVICE, SentinelSet};

/// One entry of an answer of a Sentinel: its fields by name.
type Entry = HashMap<String, String>;

impl SentinelSet {
    /// The server that this Sentinel names as the master.
    pub(super) async fn named_by(&self, sentinel: &RedisServer) -> Result<usize, String> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let (_, port): (String, String) = sentinel.try_text(&question).await?;
        self.announced_by(&port)
    }

    /// The server that all running Sentinels name.
    pub(super) async fn agreed_master(&self) -> Result<usize, String> {
        let mut named = Vec::new();
        for sentinel in self.running_sentinels() {
            named.push(self.named_by(sentinel).await?);
        }
        match named[..] {
            [] => Err("no Sentinel runs".to_owned()),
            [first, ..] if named.iter().all(|other| *other == first) => Ok(first),
            _ => Err(format!("the Sentinels name the servers {named:?}")),
        }
    }

    /// The master, if nothing is under way any more: what [`SentinelSet::wait_until_stable`] waits for.
    pub(super) async fn stable_master(&self) -> Result<usize, String> {
        let master = self.agreed_master().await?;
        for sentinel in self.running_sentinels() {
            self.agrees(sentinel, master).await?;
        }
        let port = self.announced[master].to_string();
        for (index, server) in self.running_servers() {
            let info: HashMap<String, String> = server.try_info("replication").await?;
            let expected: &[_] = if index == master {
                &[("role", "master")]
            } else {
                &[
                    ("role", "slave"),
                    ("master_port", &port),
                    ("master_link_status", "up"),
                ]
            };
            is(&format!("server {index}"), &info, expected)?;
        }
        if self.servers[master].runs() {
            Ok(master)
        } else {
            Err(format!(
                "the Sentinels name server {master}, which does not run"
            ))
        }
    }

    /// Whether a Sentinel sees this master, all the others as its replicas, and nothing amiss with those that run.
    ///
    /// What a Sentinel has heard from the servers about their roles and links is up to 10 s old, so it does not count here.
    async fn agrees(&self, sentinel: &RedisServer, master: usize) -> Result<(), String> {
        let who = format!("Sentinel {}", sentinel.port());
        let [replicas, others] =
            [&self.servers, &self.sentinels].map(|all| (all.len() - 1).to_string());
        let seen: Entry = sentinel.try_text(&["SENTINEL", "MASTER", SERVICE]).await?;
        let expected = [
            ("num-slaves", &*replicas),
            ("num-other-sentinels", &*others),
        ];
        let what = format!("the master of {who}");
        is_well(&what, &seen)?;
        is(&what, &seen, &expected)?;
        let seen: Vec<Entry> = sentinel
            .try_text(&["SENTINEL", "REPLICAS", SERVICE])
            .await?;
        for replica in &seen {
            let index = self.announced_by(&replica["port"])?;
            if index == master {
                return Err(format!("{who} sees the master as a replica, too"));
            }
            if self.servers[index].runs() {
                is_well(&format!("server {index} of {who}"), replica)?;
            }
        }
        let seen: Vec<Entry> = sentinel
            .try_text(&["SENTINEL", "SENTINELS", SERVICE])
            .await?;
        for (other, port) in self.sentinels.iter().zip(&self.announced_sentinels) {
            let port = port.to_string();
            if other.runs() && other.port() != sentinel.port() {
                let entry = seen.iter().find(|entry| entry["port"] == port);
                let entry = entry.ok_or_else(|| format!("{who} does not see Sentinel {port}"))?;
                is_well(&format!("Sentinel {port} of {who}"), entry)?;
            }
        }
        Ok(())
    }

    fn announced_by(&self, port: &str) -> Result<usize, String> {
        let mut announced = self.announced.iter();
        let index = announced.position(|announced| announced.to_string() == port);
        index.ok_or_else(|| format!("a Sentinel names the port {port}, which is no server's"))
    }

    fn running_servers(&self) -> impl Iterator<Item = (usize, &RedisServer)> {
        let servers = self.servers.iter().enumerate();
        servers.filter(|(_, server)| server.runs())
    }

    pub(super) fn running_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.runs())
    }
}

/// Whether a Sentinel is connected to a server or to another Sentinel, and has nothing to say against it.
fn is_well(whose: &str, seen: &Entry) -> Result<(), String> {
    let flags = seen.get("flags").map_or("", String::as_str);
    let is_bad =
        |flag| ["s_down", "o_down", "disconnected", "failover_in_progress"].contains(&flag);
    if flags.split(',').any(is_bad) {
        return Err(format!("{whose}: flags are {flags}"));
    }
    Ok(())
}

/// Compares fields, and tells the first that differs.
fn is(whose: &str, seen: &Entry, expected: &[(&str, &str)]) -> Result<(), String> {
    let differs = expected
        .iter()
        .find(|(name, value)| seen.get(*name).is_none_or(|seen| seen != value));
    match differs {
        None => Ok(()),
        Some((name, value)) => {
            let seen = seen.get(*name);
            Err(format!("{whose}: {name} is {seen:?} and not {value:?}"))
        }
    }
}

//! What the nodes say of the cluster.

use std::collections::{BTreeMap, HashMap};

use super::RedisCluster;
use super::builder::Node;

/// How one node sees the cluster: `CLUSTER NODES`, by id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View(BTreeMap<String, Seen>);

/// One node as another one sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    flags: Vec<String>,
    /// The id of the master, of a replica.
    pub(super) master: Option<String>,
    /// The age of its slots: of two nodes that claim one, the others believe that with the higher number.
    pub(super) epoch: u64,
    is_connected: bool,
    /// The first and the last of each run of slots.
    slots: Vec<(usize, usize)>,
    /// Whether a slot is on its way to or from another node.
    is_migrating: bool,
}

/// A node's part in the cluster, on which all must agree: its master, and its slots.
type Part<'a> = (&'a str, Option<&'a str>, &'a [(usize, usize)]);

impl Seen {
    fn of(line: &str) -> Option<(String, Self)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, master, _, _, epoch, link, slots @ ..] = &words[..] else {
            return None;
        };
        let seen = Self {
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().ok()?,
            is_connected: *link == "connected",
            slots: slots.iter().filter_map(|slots| run(slots)).collect(),
            is_migrating: slots.iter().any(|slots| slots.starts_with('[')),
        };
        Some(((*id).to_owned(), seen))
    }

    pub(super) fn is_master(&self) -> bool {
        self.master.is_none()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().flat_map(|(first, last)| *first..=*last)
    }

    fn owns(&self, slot: usize) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|(first, last)| (*first..=*last).contains(&slot))
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }
}

/// `first-last` or one slot. A slot that moves stands in brackets, and does not count.
fn run(slots: &str) -> Option<(usize, usize)> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Some((first.parse().ok()?, last.parse().ok()?))
}

impl View {
    pub(super) fn get(&self, node: &Node) -> Option<&Seen> {
        self.0.get(&node.id)
    }

    pub(super) fn owner(&self, slot: usize) -> Option<&str> {
        let mut owners = self.0.iter().filter(|(_, seen)| seen.owns(slot));
        owners.next().map(|(id, _)| id.as_str())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let nodes = self.0.iter();
        nodes
            .map(|(id, seen)| (id.as_str(), seen.master.as_deref(), &seen.slots[..]))
            .collect()
    }
}

impl RedisCluster {
    /// How a node sees the cluster.
    pub(super) async fn view_of(&self, node: &Node) -> Result<View, String> {
        let text: String = node.server.try_text(&["CLUSTER", "NODES"]).await?;
        Ok(View(text.lines().filter_map(Seen::of).collect()))
    }

    /// How all running nodes see the cluster, if they agree on the replicas of each master and on the owners of the slots.
    pub(super) async fn agreed_view(&self) -> Result<View, String> {
        let mut agreed: Option<View> = None;
        for (index, node) in self.running() {
            let view = self.view_of(node).await?;
            match &agreed {
                Some(first) if first.parts() != view.parts() => {
                    return Err(format!("node {index} sees {view:?}, another one {first:?}"));
                }
                Some(_) => {}
                None => agreed = Some(view),
            }
        }
        agreed.ok_or_else(|| "no node runs".to_owned())
    }

    /// What [`RedisCluster::wait_until_stable`] waits for.
    pub(super) async fn is_stable(&self) -> Result<(), String> {
        let agreed = self.agreed_view().await?;
        for (index, node) in self.running() {
            let info: String = node.server.try_text(&["CLUSTER", "INFO"]).await?;
            if !info.contains("cluster_state:ok") {
                return Err(format!("node {index} sees that not all slots are served"));
            }
            let view = self.view_of(node).await?;
            self.sees_well(index, &view)?;
            let own = agreed.get(node).ok_or("a node does not see itself")?;
            let info = node.server.try_info("replication").await?;
            if let Some(why) = self.is_out_of_role(own.master.as_deref(), &info) {
                return Err(format!("node {index}: {why}"));
            }
        }
        Ok(())
    }

    /// Whether a node sees all members and nobody else: the running ones connected, the others failed.
    fn sees_well(&self, index: usize, view: &View) -> Result<(), String> {
        let members = self.nodes.iter().filter(|node| node.is_member);
        for node in members.clone() {
            let seen = view.get(node);
            let seen = seen.ok_or_else(|| format!("node {index} does not see {}", node.id))?;
            let is_bad = ["fail", "fail?", "handshake", "noaddr"]
                .into_iter()
                .any(|flag| seen.has(flag));
            let is_well = if node.server.runs() {
                seen.is_connected && !is_bad && !seen.is_migrating
            } else {
                seen.has("fail")
            };
            if !is_well {
                return Err(format!("node {index} sees {}: {seen:?}", node.id));
            }
        }
        if view.0.len() > members.count() {
            return Err(format!("node {index} sees a node that is no member"));
        }
        Ok(())
    }

    /// What a node says of itself that does not go with its part in the cluster.
    fn is_out_of_role(
        &self,
        master: Option<&str>,
        info: &HashMap<String, String>,
    ) -> Option<String> {
        let is = |name: &str, value: &str| info.get(name).is_some_and(|seen| seen == value);
        let is_in_role = match master {
            None => is("role", "master"),
            Some(master) => {
                let master = self.nodes.iter().find(|node| node.id == master)?;
                let port = master.announced().to_string();
                // A master that is down has no link.
                let link = !master.server.runs() || is("master_link_status", "up");
                is("role", "slave") && is("master_port", &port) && link
            }
        };
        (!is_in_role).then(|| format!("its master should be {master:?}, and it says {info:?}"))
    }

    /// The members that were neither killed nor stopped.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.is_member && node.server.runs())
    }

    pub(super) fn index_of(&self, id: &str) -> Result<usize, String> {
        let index = self.nodes.iter().position(|node| node.id == id);
        index.ok_or_else(|| format!("{id} is no node of this cluster"))
    }
}

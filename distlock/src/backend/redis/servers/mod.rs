//! Where a key lives, and on which connection: the one place that knows how many servers there are.

mod announced;
pub(crate) mod cluster;
mod confirmations;
mod facts;
mod failed;
mod layout;
mod logins;
mod masters;
mod no_effect;
mod node;
mod rights;
mod route;
mod scan;
mod sentinel;
mod shared;

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use self::failed::NodeFault;
use self::layout::Layout;
pub(super) use self::node::Node;
pub(super) use self::scan::{ScannedPage, ScannedServer};
use super::connection::Epochs;
use super::connection::url::Url;
use super::names;
use super::tracking::Heard;
#[cfg(feature = "test-util")]
use crate::backend::ConnectionSeen;
use crate::backend::{Fault, ServerFacts, ServerLayout};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::resource::identity::Identity;
use crate::resource::key::Key;
use crate::resource::kind::Kind;
use crate::sync::all;

pub(super) struct Servers {
    layout: Layout,
}

/// How many keys are tried until one lies on a node. A node that has fewer slots than one of so many is rare.
const MOST_KEYS_TRIED: u32 = 10_000;

impl Servers {
    /// The servers of a URL. Nothing is sent.
    pub(super) fn new(
        url: Url,
        identity: &Arc<Identity>,
        config: &Config,
        clock: Clock,
    ) -> Result<Self, Error> {
        no_effect::refuse(&url, config)?;
        let layout = Layout::of(url, identity, config, clock)?;
        Ok(Self { layout })
    }

    /// Connects. Returns when a server has answered, or after this time.
    pub(super) async fn connect(&self, patience: Duration) -> Result<(), Error> {
        let connected = match &self.layout {
            Layout::Single { node, .. } => {
                let connected = node.link().connected(patience).await;
                connected.map(drop).map_err(|fault| NodeFault {
                    node: node.name().to_owned(),
                    fault,
                })
            }
            Layout::Cluster(cluster) => cluster.open(patience).await,
        };
        connected.map_err(|NodeFault { node, fault }| fault.into_connection_error(node, patience))
    }

    /// Begins to connect. The caller does not wait for it.
    pub(super) fn begin_to_connect(&self) {
        match &self.layout {
            Layout::Single { node, .. } => node.begin_to_connect(),
            Layout::Cluster(cluster) => cluster.begin_to_open(),
        }
    }

    /// Completes when it is known which servers there are.
    pub(super) async fn are_known(&self) -> Result<(), Fault> {
        match &self.layout {
            Layout::Single { .. } => Ok(()),
            Layout::Cluster(cluster) => cluster.is_opened().await,
        }
    }

    /// What the servers tell of tracked keys.
    pub(super) fn heard(&self) -> &Heard {
        &self.layout.shared().heard
    }

    /// The id of the run of the server of a key; `None` if the user may not ask for it.
    pub(super) async fn run_of(&self, key: &Key) -> Result<Option<Arc<str>>, Fault> {
        self.are_known().await?;
        let of_node = |node: &Node| (Arc::clone(node.link()), node.response_timeout());
        // Copied out of the closure: the node of a slot may be forgotten while the link is asked.
        let (link, patience) = self.route(key).with_node(of_node);
        link.server_run(patience).await
    }

    /// How long the server of a key has to wait before it may grant, since it was started only recently.
    pub(super) fn grace_left(&self, key: &Key) -> Option<Duration> {
        self.route(key).with_node(|node| node.link().grace_left())
    }

    /// Whether what the server of a key grants needs a confirmation by replicas.
    pub(super) fn confirms(&self, key: &Key) -> bool {
        self.route(key).with_node(Node::confirms)
    }

    /// What each server that has keys says of itself, all asked at once.
    pub(super) async fn facts(&self, key: &Key) -> Vec<ServerFacts> {
        // Otherwise each answer of a server that is not known yet says why there is none.
        let _are_known = self.are_known().await;
        let (layout, sharded) = match &self.layout {
            Layout::Single {
                sentinels: None, ..
            } => (ServerLayout::Single, false),
            Layout::Single { .. } => (ServerLayout::Sentinel, false),
            Layout::Cluster(cluster) => {
                let sharded = cluster.nodes.has_sharded_messages();
                (ServerLayout::Cluster, sharded)
            }
        };
        let nodes = self.masters();
        let near: Vec<Key> = nodes.iter().map(|node| self.key_at(node, key)).collect();
        let of_node = nodes
            .iter()
            .zip(&near)
            .map(|(node, near)| facts::of(node, layout, sharded, key, near));
        all(of_node).await
    }

    /// A key that this node has, as far as that is known, whose name begins with that of `key`.
    fn key_at(&self, node: &Node, key: &Key) -> Key {
        let others = (0..MOST_KEYS_TRIED).filter_map(|number| {
            let name = format!("{}:{number}", key.name());
            Key::new("", &name).ok()
        });
        // By trial: a slot is a checksum of the name, so no name can be made for it.
        let found = iter::once(key.clone())
            .chain(others)
            .find(|key| self.route(key).home().server == node.number());
        found.unwrap_or_else(|| key.clone())
    }

    /// Whether all that listen to a message are connected to the server that publishes it. In a cluster that is so for
    /// sharded messages alone.
    pub(super) fn count_all_listeners(&self) -> bool {
        match &self.layout {
            Layout::Cluster(cluster) => cluster.nodes.has_sharded_messages(),
            Layout::Single { .. } => true,
        }
    }

    /// Whether one server has all keys.
    pub(super) fn is_one_server(&self) -> bool {
        matches!(self.layout, Layout::Single { .. })
    }

    /// Why a primitive cannot have this name here.
    pub(super) fn refuses(&self, kind: Kind, name: &str) -> Option<&'static str> {
        match &self.layout {
            Layout::Single { .. } => None,
            Layout::Cluster(_) => names::scattered(kind, name),
        }
    }

    /// Why the client is disconnected from the server of a key; `None` if it is connected.
    pub(super) fn disconnected(&self, key: &Key) -> Option<Fault> {
        self.route(key).with_node(|node| node.link().disconnected())
    }

    /// The changes of [`epoch`](Servers::epoch), for all keys.
    pub(super) fn epochs(&self) -> &Epochs {
        &self.layout.shared().epochs
    }

    /// Sets the function that says whether the end of a connection concerns anybody.
    pub(super) fn set_stake(&self, has_stake: impl Fn() -> bool + Send + Sync + 'static) {
        self.layout.shared().stake.set(has_stake);
    }

    /// The number of channels that are subscribed, or have yet to be unsubscribed.
    #[cfg(feature = "test-util")]
    pub(super) fn channels(&self) -> usize {
        self.layout.shared().subscriptions.channels()
    }

    /// The connections to servers that have keys.
    #[cfg(feature = "test-util")]
    pub(super) fn connections(&self) -> Vec<ConnectionSeen> {
        let nodes = match &self.layout {
            Layout::Single { node, .. } => vec![Arc::clone(node)],
            Layout::Cluster(cluster) => cluster.nodes.all(),
        };
        let links = nodes.iter().flat_map(|node| node.links());
        links.map(|link| link.seen()).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Layout::Cluster(cluster) = &self.layout {
            cluster.end_opening();
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.name()).finish()
    }
}

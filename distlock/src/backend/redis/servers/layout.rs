//! Which servers a URL stands for: one server, the master that Sentinels name, or the nodes of a cluster.

use std::sync::Arc;

use tokio::sync::watch;

use super::cluster::Cluster;
use super::logins;
use super::node::Node;
use super::sentinel::Sentinels;
use super::shared::Shared;
use crate::backend::redis::connection::url::{Target, Url};
use crate::backend::redis::connection::{Address, Connector, Expected, Locate};
use crate::backend::redis::messages::{PubSubMode, ServerNumber};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::resource::identity::Identity;
use crate::telemetry;

/// The servers of a client, by how they are arranged.
pub(super) enum Layout {
    /// One server has all keys: that of the URL, or the master of a service.
    Single {
        node: Arc<Node>,
        shared: Box<Shared>,
        /// What listens to the Sentinels of the service ends when this is dropped.
        sentinels: Option<watch::Sender<()>>,
    },
    /// Each node has the keys of some slots.
    Cluster(Arc<Cluster>),
}

/// The number of a single server. Nodes of a cluster have higher ones.
pub(super) const ONE: ServerNumber = 0;

impl Layout {
    /// The servers of a URL. Nothing is sent.
    pub(super) fn of(
        url: Url,
        identity: &Arc<Identity>,
        config: &Config,
        clock: Clock,
    ) -> Result<Self, Error> {
        let name = config.name.with_id(identity.id());
        let credentials = logins::of_servers(url.login, config)?;
        let own = Arc::clone(identity);
        let connector = |db| Connector::new(db, credentials, own, name, url.tls, config);
        let is_alone = matches!(url.target, Target::Server { .. });
        if !is_alone && config.confirmation.is_none() {
            telemetry::not_confirmed(&url.target);
        }
        match url.target {
            Target::Server { address, db } => {
                let shared = Shared::new(connector(db)?, config, clock);
                Ok(Self::one(address, shared))
            }
            Target::Sentinel {
                sentinels,
                service,
                db,
                login,
                tls,
            } => {
                let credentials = logins::of_sentinels(login, config)?;
                let map = &config.address_map;
                let to_servers = connector(db)?.mapping(map, &[]);
                let to_sentinels = to_servers.for_sentinels(credentials, tls, config)?;
                let to_sentinels = to_sentinels.mapping(map, &sentinels);
                let shared = Shared::new(to_servers, config, clock);
                let to_servers = Arc::clone(&shared.connector);
                let (lives, client) = watch::channel(());
                let sentinels =
                    Sentinels::new(service, sentinels, to_sentinels, to_servers, client, config);
                Ok(Self::behind(&sentinels, lives, shared))
            }
            Target::Cluster { seeds, db } => {
                let connector = connector(db)?.mapping(&config.address_map, &seeds);
                let shared = Shared::new(connector, config, clock);
                Ok(Self::Cluster(Cluster::new(seeds, shared, config.pub_sub)))
            }
        }
    }

    fn one(address: Address, shared: Shared) -> Self {
        let server: Arc<dyn Locate> = Arc::new(address);
        let messages = Arc::clone(&server);
        let mode = PubSubMode::Plain;
        let node = Node::new(server, messages, Expected::Server, &shared, ONE, mode);
        Self::Single {
            node: Arc::new(node),
            shared: Box::new(shared),
            sentinels: None,
        }
    }

    fn behind(sentinels: &Arc<Sentinels>, lives: watch::Sender<()>, shared: Shared) -> Self {
        let messages = Arc::new(sentinels.following());
        let server = Arc::clone(sentinels);
        let mode = PubSubMode::Plain;
        let node = Node::new(server, messages, Expected::Master, &shared, ONE, mode);
        sentinels.follow(node.links().map(Arc::downgrade));
        Self::Single {
            node: Arc::new(node),
            shared: Box::new(shared),
            sentinels: Some(lives),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        match self {
            Self::Single { shared, .. } => shared,
            Self::Cluster(cluster) => cluster.shared(),
        }
    }
}

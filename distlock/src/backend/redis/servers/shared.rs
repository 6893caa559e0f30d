//! What the servers of one client share: how they are connected to, and what they are asked for.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::connection::{
    ConnectedGauge, Connector, Epochs, NameWatch, Pings, ServerCheck, Stake,
};
use crate::backend::redis::messages::Subscriptions;
use crate::backend::redis::tracking::Heard;
use crate::clock::Clock;
use crate::config::{Config, Confirmation};

pub(super) struct Shared {
    pub(super) connector: Arc<Connector>,
    pub(super) names: Arc<NameWatch>,
    pub(super) epochs: Arc<Epochs>,
    pub(super) clock: Clock,
    pub(super) subscriptions: Subscriptions,
    pub(super) response_timeout: Duration,
    /// Whether small commands are sent at once.
    pub(super) nodelay: bool,
    /// Whether servers are to tell of changes of the keys of holds.
    pub(super) track_holds: bool,
    /// What the servers have told.
    pub(super) heard: Arc<Heard>,
    /// The longest pause between two tries to connect.
    pub(super) longest_pause: Duration,
    /// What has to confirm each grant.
    pub(super) confirmation: Option<Confirmation>,
    /// How long a server has to be up before it may grant.
    pub(super) restart_grace: Duration,
    /// The signs of life that connections ask for.
    pub(super) pings: Pings,
    /// Whether the end of a connection concerns anybody.
    pub(super) stake: Arc<Stake>,
    /// What each connection for commands finds out.
    pub(super) check: Arc<ServerCheck>,
    /// What shows the outages of all servers, where these come and go. Otherwise each has a separate gauge.
    pub(super) gauge: Option<Arc<ConnectedGauge>>,
}

impl Shared {
    pub(super) fn new(connector: Connector, config: &Config, clock: Clock) -> Self {
        let connector = Arc::new(connector);
        Self {
            names: NameWatch::new(&connector, config.look_up_interval),
            epochs: Arc::default(),
            subscriptions: Subscriptions::new(clock.clone(), config.response_timeout),
            clock,
            response_timeout: config.response_timeout,
            nodelay: config.nodelay,
            track_holds: config.track_holds,
            heard: Arc::default(),
            longest_pause: config.longest_reconnect_pause(),
            confirmation: config.confirmation,
            restart_grace: config.restart_grace,
            pings: Pings {
                every: config.ping_interval,
                patience: config.response_timeout,
            },
            stake: Arc::default(),
            // Its questions fit into the connect timeout, so that a server that does not answer them is connected to.
            check: ServerCheck::new(config.response_timeout.min(connector.timeout() / 4)),
            connector,
            gauge: None,
        }
    }
}

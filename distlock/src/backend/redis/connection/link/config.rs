//! What a link needs to connect.

use std::sync::Arc;
use std::time::Duration;

use redis::PushInfo;

use super::epochs::Epochs;
use super::name_watch::NameWatch;
use super::outage::OutageLog;
use super::pings::Pings;
use super::together::Together;
use crate::backend::redis::connection::addresses::{Endpoint, Locate};
use crate::backend::redis::connection::connect::{Connector, Expected, ServerCheck};

/// Called with the number of a connection, and with what the server sends over it unrequested.
pub(crate) type OnPush = Arc<dyn Fn(u64, PushInfo) + Send + Sync>;

/// What a link needs to connect.
pub(crate) struct LinkConfig {
    /// What the connection is for, as the log says it.
    pub(crate) what: &'static str,
    /// Says which server to connect to.
    pub(crate) server: Arc<dyn Locate>,
    /// The connections to the same server.
    pub(crate) together: Arc<Together>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) names: Arc<NameWatch>,
    pub(crate) expected: Expected,
    /// Whether small commands are sent at once.
    pub(crate) nodelay: bool,
    /// The signs of life that it asks for.
    pub(crate) pings: Pings,
    /// The longest pause between two tries to connect.
    pub(crate) longest_pause: Duration,
    pub(crate) outages: Arc<OutageLog>,
    pub(crate) epochs: Arc<Epochs>,
    /// How long the server has to be up before it may grant. Its time is asked for only if this is not zero.
    pub(crate) restart_grace: Duration,
    /// Finds out whether the server has all that locks need.
    pub(crate) check: Option<Arc<ServerCheck>>,
    pub(crate) on_push: OnPush,
}

impl LinkConfig {
    /// A connection was made to this address. Which node of a cluster is where is told by the others, and which server is the
    /// master by Sentinels. The names of the others are looked up again.
    pub(super) fn watch_name(&self, endpoint: &Endpoint) {
        if matches!(self.expected, Expected::Server | Expected::Sentinel) {
            self.names.watch(&self.together, endpoint);
        }
        let is_for_commands = self.check.is_some();
        if self.expected == Expected::Server && is_for_commands {
            self.names.look_for_other_masters(&self.together, endpoint);
        }
    }
}

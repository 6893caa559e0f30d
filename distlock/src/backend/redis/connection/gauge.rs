//! The gauge of the metrics that says whether servers are connected.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::telemetry;

/// The gauge of what the user has named: a server, all nodes of a cluster, or all Sentinels of a service. Nodes come and go, and an
/// exporter keeps each name for ever, so they have no separate gauges.
#[derive(Debug)]
pub(crate) struct ConnectedGauge {
    pub(super) name: String,
    /// Whether the client needs one of the servers, and not each of them.
    needs_one: bool,
    pub(super) servers: Mutex<ServerCounts>,
}

/// How many servers are connected, and how many are in an outage. Those that were never reached may be neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerCounts {
    up: usize,
    pub(super) out: usize,
}

/// As what a gauge counts a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedAs {
    Up,
    Out,
}

impl ConnectedGauge {
    /// A gauge that shows whether one of the servers is in an outage.
    pub(crate) fn of_each(name: String) -> Arc<Self> {
        Self::new(name, false)
    }

    /// A gauge that shows whether all servers are in an outage: one is enough.
    pub(crate) fn of_any(name: String) -> Arc<Self> {
        Self::new(name, true)
    }

    fn new(name: String, needs_one: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            needs_one,
            servers: Mutex::default(),
        })
    }

    pub(super) fn is_connected(&self, servers: ServerCounts) -> bool {
        servers.out == 0 || self.needs_one && servers.up > 0
    }

    pub(super) fn show(&self) {
        loop {
            let servers = *self.servers.lock();
            // Outside of the mutex: a recorder of metrics may run any code.
            telemetry::note_connected(&self.name, self.is_connected(servers));
            // If another thread has changed it since, that thread's value may have been shown before this one.
            if *self.servers.lock() == servers {
                return;
            }
        }
    }
}

impl ServerCounts {
    pub(super) fn number(&mut self, counted: CountedAs) -> &mut usize {
        match counted {
            CountedAs::Up => &mut self.up,
            CountedAs::Out => &mut self.out,
        }
    }
}

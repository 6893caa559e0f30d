//! What the log says about the connections to a server: once that an outage began, now and then that it lasts, and once
//! that it is over.

use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::telemetry;

/// The time between two log lines about the same lasting failure.
pub(super) const REPEATED_AFTER: Duration = Duration::from_secs(30);

/// The outages of one server, as seen by all connections of one client.
#[derive(Debug)]
pub(super) struct OutageLog {
    /// The address, without user and password.
    server: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether there was ever a connection. Before that, the caller of `connect` gets the error.
    was_reached: bool,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    logged: Instant,
    /// The connections that are lost and not back.
    lost: Vec<&'static str>,
}

impl OutageLog {
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            state: Mutex::default(),
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// A connection was lost, or a try to replace it has failed.
    pub(super) fn failed(&self, connection: &'static str, reason: &dyn Display) {
        let now = Instant::now();
        let lasted = {
            let mut state = self.state.lock();
            if !state.was_reached {
                return;
            }
            let is_new = state.outage.is_none();
            let outage = state.outage.get_or_insert_with(|| Outage {
                since: now,
                logged: now,
                lost: Vec::new(),
            });
            if !outage.lost.contains(&connection) {
                outage.lost.push(connection);
            }
            if !is_new && now.duration_since(outage.logged) < REPEATED_AFTER {
                return;
            }
            outage.logged = now;
            (!is_new).then(|| now.duration_since(outage.since))
        };
        // Outside of the mutex: a subscriber of the log may run any code.
        match lasted {
            None => telemetry::outage_began(&self.server, connection, reason),
            Some(lasted) => telemetry::outage_lasts(&self.server, lasted, reason),
        }
    }

    /// A connection is established. The outage is over when none is lost.
    pub(super) fn established(&self, connection: &'static str) {
        let ended = {
            let mut state = self.state.lock();
            state.was_reached = true;
            if let Some(outage) = &mut state.outage {
                outage.lost.retain(|lost| *lost != connection);
            }
            state.outage.take_if(|outage| outage.lost.is_empty())
        };
        if let Some(outage) = ended {
            telemetry::outage_over(&self.server, outage.since.elapsed());
        }
    }
}

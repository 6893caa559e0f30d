//! Which addresses of a name were asked whether another master is there, and which ones the log names.
//!
//! This is plain data: no connection, no clock, no `.await`.

use std::net::SocketAddr;

use crate::config::MOST_NAMES_KEPT;

/// The addresses of a name that were looked at.
#[derive(Debug, Default)]
pub(crate) struct LookedAt {
    /// Since the last connection.
    asked: Vec<SocketAddr>,
    /// Those of other masters that the log already names.
    told: Vec<SocketAddr>,
}

impl LookedAt {
    /// A connection was made: each address is asked again.
    pub(crate) fn connected(&mut self) {
        self.asked.clear();
    }

    /// Whether this address is to be asked.
    pub(crate) fn is_to_ask(&mut self, at: SocketAddr) -> bool {
        add(&mut self.asked, at)
    }

    /// Another master is there. Returns whether this is new.
    pub(crate) fn is_to_tell(&mut self, at: SocketAddr) -> bool {
        add(&mut self.told, at)
    }
}

/// Returns whether it was added. Of a name whose answers change all the time, no more addresses are kept.
fn add(addresses: &mut Vec<SocketAddr>, at: SocketAddr) -> bool {
    let is_new = addresses.len() < MOST_NAMES_KEPT && !addresses.contains(&at);
    if is_new {
        addresses.push(at);
    }
    is_new
}

//! State machine 7: where the connections to one server lead, whose name may stand for several addresses and for others later.
//!
//! All connections to a server lead to one address. The connection for commands decides which one, and the others follow it.
//!
//! This is plain data: no connection, no clock, no `.await`.
//!
//! # Invariants
//! 1. What leads the connections away is a number of answers in a row that do not have their address. An answer that has it
//!    ends the row, and no answer changes nothing.
//! 2. The connections are led away at most once in [`MOVE_AGAIN_AFTER`].

use std::net::SocketAddr;

use tokio::time::Instant;

use super::endpoint::Endpoint;
use crate::config::{ANSWERS_TO_MOVE, MOVE_AGAIN_AFTER};

/// Where the connections to one server lead.
#[derive(Debug, Default)]
pub(crate) struct Destination {
    /// Where the last connection for commands was made to.
    at: Option<Endpoint>,
    /// The answers in a row that did not have this address.
    missing: u32,
    /// When another server was taken, the one at `at`.
    moved: Option<Instant>,
    /// Whether the log has reported that the answers change too often.
    was_told: bool,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    /// The connections were led away a short while ago. Whether this is to be told.
    Rotates {
        is_new: bool,
    },
    /// The connections are to lead to one of the new addresses, if a server is there.
    Leave,
}

impl Destination {
    /// Where the last connection for commands was made to.
    pub(crate) fn at(&self) -> Option<&Endpoint> {
        self.at.as_ref()
    }

    /// The order in which to try the addresses that the name has now. The last one is the first.
    pub(crate) fn order(&self, endpoints: Vec<Endpoint>, now: Instant) -> Vec<Endpoint> {
        let Some(at) = self.at.as_ref() else {
            return endpoints;
        };
        let is_same = |endpoint: &&Endpoint| endpoint.address == at.address;
        // A server was found there a moment ago. The answers may still be older than that.
        let was_moved = self.has_moved(now) && endpoints.iter().any(|one| is_same(&one));
        let first = (was_moved || endpoints.contains(at)).then(|| at.clone());
        let others = endpoints.into_iter().filter(|endpoint| endpoint != at);
        first.into_iter().chain(others).collect()
    }

    /// A connection for commands was made.
    pub(crate) fn connected(&mut self, endpoint: Endpoint) {
        if self.at.as_ref() != Some(&endpoint) {
            self.at = Some(endpoint);
            self.missing = 0;
        }
    }

    /// The name stands for these addresses.
    pub(crate) fn answered(&mut self, addresses: &[SocketAddr], now: Instant) -> Next {
        if addresses.is_empty() {
            return Next::Stay;
        }
        let at = self.at.as_ref().and_then(|endpoint| endpoint.at);
        if at.is_none_or(|at| addresses.contains(&at)) {
            self.missing = 0;
            return Next::Stay;
        }
        // Saturating: the client of a name that rotates stays, and counts for as long as it lives.
        self.missing = self.missing.saturating_add(1);
        if self.missing < ANSWERS_TO_MOVE {
            return Next::Stay;
        }
        if !self.has_moved(now) {
            return Next::Leave;
        }
        Next::Rotates {
            is_new: !std::mem::replace(&mut self.was_told, true),
        }
    }

    /// A server was found at one of the new addresses. The connections lead there from now on.
    pub(crate) fn moved(&mut self, to: Endpoint, now: Instant) {
        self.connected(to);
        self.moved = Some(now);
    }

    fn has_moved(&self, now: Instant) -> bool {
        self.moved
            .is_some_and(|at| now.duration_since(at) < MOVE_AGAIN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::redis::connection::addresses::address::Address;

    fn address(at: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], at))
    }

    fn endpoint(at: u16) -> Endpoint {
        Endpoint {
            address: Address::Tcp {
                host: "locks".to_owned(),
                port: 6379,
            },
            mapped: None,
            at: Some(address(at)),
        }
    }

    fn connected(at: u16) -> (Destination, Instant) {
        let mut destination = Destination::default();
        destination.connected(endpoint(at));
        (destination, Instant::now())
    }

    #[test]
    fn three_answers_in_a_row_without_the_address_lead_away_from_it() {
        let (mut destination, now) = connected(1);
        for _ in 0..2 {
            assert_eq!(destination.answered(&[address(2)], now), Next::Stay);
            assert_eq!(destination.answered(&[address(2)], now), Next::Stay);
            assert_eq!(
                destination.answered(&[address(2), address(1)], now),
                Next::Stay
            );
        }
        assert_eq!(destination.answered(&[address(2)], now), Next::Stay);
        assert_eq!(destination.answered(&[address(3)], now), Next::Stay);
        // No answer is none.
        assert_eq!(destination.answered(&[], now), Next::Stay);
        assert_eq!(destination.answered(&[address(2)], now), Next::Leave);
        // Nobody was there.
        assert_eq!(destination.answered(&[address(2)], now), Next::Leave);
        destination.moved(endpoint(2), now);
        assert_eq!(destination.answered(&[address(2)], now), Next::Stay);
    }

    #[test]
    fn answers_that_rotate_lead_away_once_in_a_while_and_are_told_once() {
        let (mut destination, now) = connected(1);
        let mut moves = Vec::new();
        let mut told = 0;
        // Each answer stays for five looks.
        for second in (0..600_u64).step_by(5) {
            let now = now + std::time::Duration::from_secs(second);
            let at = u16::try_from(second / 25 % 3).unwrap() + 1;
            match destination.answered(&[address(at)], now) {
                Next::Stay => {}
                Next::Rotates { is_new } => told += u32::from(is_new),
                Next::Leave => {
                    destination.moved(endpoint(at), now);
                    moves.push(second);
                }
            }
        }
        assert_eq!(told, 1);
        assert!(moves.len() > 3, "{moves:?}");
        for pair in moves.windows(2) {
            assert!(pair[1] - pair[0] >= 60, "{moves:?}");
        }
    }

    #[test]
    fn address_that_was_used_last_is_tried_first_if_the_name_still_has_it_or_it_is_new() {
        let (mut destination, now) = connected(2);
        let order = |destination: &Destination, of: &[u16], now| {
            let of = of.iter().map(|at| endpoint(*at)).collect();
            let order = destination.order(of, now);
            let ports = order.iter().map(|one| one.at.map_or(0, |at| at.port()));
            ports.collect::<Vec<_>>()
        };
        assert_eq!(order(&destination, &[1, 2, 3], now), [2, 1, 3]);
        assert_eq!(order(&destination, &[1, 3], now), [1, 3]);
        destination.moved(endpoint(4), now);
        assert_eq!(order(&destination, &[1, 3], now), [4, 1, 3]);
        assert_eq!(order(&destination, &[1, 3], now + MOVE_AGAIN_AFTER), [1, 3]);
        let elsewhere = Endpoint {
            address: Address::Unix("socket".into()),
            mapped: None,
            at: None,
        };
        assert_eq!(destination.order(vec![elsewhere.clone()], now), [elsewhere]);
    }
}

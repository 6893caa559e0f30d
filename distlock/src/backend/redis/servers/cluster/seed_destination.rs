//! Where the name of a seed has led, and what follows from an answer that leads elsewhere.
//!
//! This is plain data: no connection, no clock, no `.await`.
//!
//! # Invariants
//! 1. A number of answers in a row without any known address is a reason to ask where they lead. An answer with one ends the row.
//! 2. The client goes to another cluster at most once in [`MOVE_AGAIN_AFTER`].

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::config::{ANSWERS_TO_MOVE, MOVE_AGAIN_AFTER};

/// Of a name whose answers change all the time, no more addresses are kept.
const MOST_ADDRESSES: usize = 1_000;

/// Where the name of a seed has led.
#[derive(Debug, Default)]
pub(super) struct SeedDestination {
    /// Addresses of nodes of the cluster.
    known: Vec<SocketAddr>,
    /// The answers in a row that had none of them.
    missing: u32,
    moved: Option<Instant>,
    /// Whether the log has reported that the answers change too often.
    was_told: bool,
}

/// What follows from an answer that leads to another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// The client goes there.
    Go,
    /// It has gone to another one a short while ago. Whether this is to be told.
    Stay { is_new: bool },
}

impl SeedDestination {
    /// The name leads to these addresses of the cluster.
    pub(super) fn new(known: Vec<SocketAddr>) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// The name stands for these addresses. Returns whether it is to be asked which cluster is there.
    pub(super) fn answered(&mut self, addresses: &[SocketAddr]) -> bool {
        if addresses.is_empty() || addresses.iter().any(|at| self.known.contains(at)) {
            self.missing = 0;
            return false;
        }
        self.missing = self.missing.saturating_add(1);
        self.missing >= ANSWERS_TO_MOVE
    }

    /// These are addresses of the same cluster.
    pub(super) fn is_same(&mut self, addresses: &[SocketAddr]) {
        self.missing = 0;
        if self.known.len() >= MOST_ADDRESSES {
            self.known.clear();
        }
        self.known.extend(addresses);
    }

    /// Another cluster is there. If the client goes there, these addresses are its.
    pub(super) fn is_other(&mut self, addresses: &[SocketAddr], now: Instant) -> Elsewhere {
        let has_moved = |at: Instant| now.duration_since(at) < MOVE_AGAIN_AFTER;
        if self.moved.is_some_and(has_moved) {
            return Elsewhere::Stay {
                is_new: !std::mem::replace(&mut self.was_told, true),
            };
        }
        *self = Self {
            known: addresses.to_vec(),
            missing: 0,
            moved: Some(now),
            was_told: self.was_told,
        };
        Elsewhere::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn answers_without_a_known_address_are_looked_into_after_some_in_a_row() {
        let mut destination = SeedDestination::new(vec![at(1), at(2)]);
        for _ in 0..10 {
            assert!(!destination.answered(&[at(2), at(9)]));
            assert!(!destination.answered(&[at(9)]));
            assert!(!destination.answered(&[at(9)]));
        }
        assert!(destination.answered(&[at(9)]));
        // Nothing was found there.
        assert!(destination.answered(&[at(9)]));
        assert!(!destination.answered(&[]));
        // It is a node of the same cluster.
        destination.is_same(&[at(9)]);
        for _ in 0..10 {
            assert!(!destination.answered(&[at(9)]));
            assert!(!destination.answered(&[at(1)]));
        }
    }

    #[test]
    fn client_goes_to_another_cluster_once_in_a_while_and_tells_once() {
        let mut destination = SeedDestination::new(vec![at(1)]);
        let now = Instant::now();
        assert_eq!(destination.is_other(&[at(2)], now), Elsewhere::Go);
        assert!(!destination.answered(&[at(2)]));
        for is_new in [true, false] {
            let again = destination.is_other(&[at(1)], now);
            assert_eq!(again, Elsewhere::Stay { is_new });
        }
        let later = now + MOVE_AGAIN_AFTER;
        assert_eq!(destination.is_other(&[at(1)], later), Elsewhere::Go);
    }
}

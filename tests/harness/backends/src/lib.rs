//! Backends that fail or are wrong on purpose: decorators that a test puts between a client and its backend.
//!
//! | module | what it provides |
//! | --- | --- |
//! | [`faults`] | commands that are delayed, lost, executed twice or late, and subscriptions that receive nothing |
//! | [`flaws`] | mistakes that a lock library could contain, one at a time; the tests have to find each of them |
//! | [`hostile_nodes`] | a cluster whose nodes answer what a fuzzer wants |
//!
//! [`Disturbed`] builds the first two into a client. No published crate depends on this one.

pub mod faults;
pub mod flaws;
pub mod hostile_nodes;

use std::sync::Arc;

use distlock::Builder;

use crate::faults::Faults;
use crate::flaws::{Flaw, Flawed};

/// Adds decorators to the backend of a client that is being built.
pub trait Disturbed {
    /// Injects these faults into the commands of the client.
    #[must_use]
    fn faults(self, faults: &Faults) -> Self;

    /// Makes the client's backend contain this mistake. A mistake of the server's scripts is placed behind the faults,
    /// any other in front of them, so call this after [`faults`](Disturbed::faults).
    #[must_use]
    fn flaw(self, flaw: Flaw) -> Self;
}

impl Disturbed for Builder {
    fn faults(self, faults: &Faults) -> Self {
        let faults = faults.clone();
        self.decorate_backend(false, move |inner, clock, response_timeout| {
            faults.around(inner, clock.clone(), response_timeout)
        })
    }

    fn flaw(self, flaw: Flaw) -> Self {
        self.decorate_backend(flaw.is_in_a_script(), move |inner, clock, _| {
            Arc::new(Flawed::new(inner, clock.clone(), flaw))
        })
    }
}

//! Backends that fail, or are wrong, on purpose: decorators that a test puts between a client and its backend.
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`faults`] | commands that are delayed, lost, doubled or late, and subscriptions that hear nothing |
//! | [`flaws`] | mistakes that a lock can have, one at a time: whatever looks for them must find each |
//!
//! [`Disturbed`] builds them into a client. No crate that is published depends on this one.

pub mod faults;
pub mod flaws;

use std::sync::Arc;

use distlock::Builder;

use crate::faults::Faults;
use crate::flaws::{Flaw, Flawed};

/// What a test puts between a client and its backend.
pub trait Disturbed {
    /// The commands of the client meet these faults.
    #[must_use]
    fn faults(self, faults: &Faults) -> Self;

    /// The client's backend makes this mistake: behind the faults where the mistake is one of the server's scripts, in
    /// front of them otherwise, so set it after them.
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

//! State machine 6: whether a link has a connection, and whether a task makes one.
//!
//! This is plain data: no clock, no `.await`. The link changes it under one lock, so that no step comes between a look at
//! the phase and what follows from it.
//!
//! # Invariants
//! 1. There is at most one connection. While there is one, no task connects.
//! 2. At most one task connects.
//! 3. What belongs to a connection (its number above all) changes together with the phase, and only if the connection is
//!    taken.

use crate::backend::Fault;

/// Whether there is a connection `C`.
#[derive(Clone, Debug)]
pub(crate) enum Phase<C> {
    Up(C),
    Down {
        /// The last failure to connect.
        failure: Option<Fault>,
        /// Whether a task connects.
        connects: bool,
    },
}

impl<C> Phase<C> {
    /// No connection, and nobody makes one.
    pub(crate) const fn new() -> Self {
        Self::Down {
            failure: None,
            connects: false,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// The last failure to connect, if there is no connection.
    pub(crate) fn failure(&self) -> Option<&Fault> {
        match self {
            Self::Up(_) => None,
            Self::Down { failure, .. } => failure.as_ref(),
        }
    }

    /// Whether a task connects.
    pub(crate) fn connects(&self) -> bool {
        matches!(self, Self::Down { connects: true, .. })
    }

    /// Somebody found no connection, perhaps a while ago. Returns whether the caller has to start the task that connects.
    pub(crate) fn begin_to_connect(&mut self) -> bool {
        match self {
            Self::Down { connects, .. } => !std::mem::replace(connects, true),
            Self::Up(_) => false,
        }
    }

    /// The task that connects has failed, and goes on.
    pub(crate) fn failed(&mut self, fault: Fault) {
        if let Self::Down { failure, .. } = self {
            *failure = Some(fault);
        }
    }

    /// The task that connects has ended without a connection.
    pub(crate) fn gave_up(&mut self) {
        if let Self::Down { connects, .. } = self {
            *connects = false;
        }
    }

    /// The task that connects has ended with this connection. Returns whether it is taken: there is no other one.
    pub(crate) fn establish(&mut self, connection: C) -> bool {
        let is_needed = !self.is_up();
        if is_needed {
            *self = Self::Up(connection);
        }
        is_needed
    }

    /// The connection for which `is_meant` returns true is lost. Returns whether it was the current one.
    pub(crate) fn lose(&mut self, is_meant: impl FnOnce(&C) -> bool) -> bool {
        let is_current = matches!(self, Self::Up(connection) if is_meant(connection));
        if is_current {
            *self = Self::new();
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn caller_that_found_no_connection_before_one_stood_starts_no_task() {
        let mut phase = Phase::new();
        // Two callers have looked and found no connection. One of them is slow.
        assert!(!phase.is_up());
        assert!(phase.begin_to_connect());
        assert!(phase.establish(1));
        assert!(!phase.begin_to_connect(), "a second connection");
        assert!(phase.lose(|number| *number == 1) && phase.begin_to_connect());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Want,
        Fail,
        GiveUp,
        Establish,
        Lose(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Want),
            1 => Just(Step::Fail),
            1 => Just(Step::GiveUp),
            3 => Just(Step::Establish),
            3 => (0_u64..3).prop_map(Step::Lose),
        ]
    }

    proptest! {
        #[test]
        fn there_is_one_connection_or_at_most_one_task(steps in prop::collection::vec(step(), 0..40)) {
            let mut phase = Phase::new();
            let mut tasks = 0_u32;
            let mut last = 0_u64;
            for step in steps {
                match step {
                    Step::Want => tasks += u32::from(phase.begin_to_connect()),
                    Step::Fail if tasks > 0 => {
                        phase.failed(Fault::WrongType(None));
                        prop_assert!(phase.failure().is_some());
                    }
                    Step::GiveUp if tasks > 0 => {
                        phase.gave_up();
                        tasks -= 1;
                    }
                    Step::Establish if tasks > 0 => {
                        last += 1;
                        tasks -= 1;
                        prop_assert!(phase.establish(last), "not needed");
                        prop_assert!(phase.failure().is_none());
                    }
                    Step::Lose(behind) => {
                        let was_up = phase.is_up();
                        let lost = phase.lose(|number| *number + behind == last);
                        prop_assert_eq!(lost, was_up && behind == 0);
                    }
                    Step::Fail | Step::GiveUp | Step::Establish => {}
                }
                prop_assert!(tasks <= 1, "two tasks connect");
                prop_assert!(tasks == 0 || !phase.is_up(), "a task connects beside a connection");
                prop_assert_eq!(phase.connects(), tasks == 1);
            }
        }
    }
}

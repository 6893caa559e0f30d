//! The list of a run's faults, which its seed makes. It is printed if the run fails, and shrunk while the run still fails.

use std::fmt;
use std::time::Duration;

/// A fault and its time.
#[derive(Clone, Debug)]
pub struct PlannedFault<F> {
    /// Since the beginning of the run. It begins later if the fault before it still lasts.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// The fault.
    pub fault: F,
}

/// The faults of a run, in the order of their times.
#[derive(Clone, Debug)]
pub struct FaultPlan<F> {
    /// The seed of this list and of the operations.
    pub seed: u64,
    /// The time in which faults happen.
    pub lasts: Duration,
    /// The faults.
    pub steps: Vec<PlannedFault<F>>,
}

impl<F: Clone> FaultPlan<F> {
    /// Removes ever smaller parts of the list as long as the rest still `fails`.
    #[must_use]
    pub fn shrink(mut self, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut part = self.steps.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < self.steps.len() {
                let mut shorter = self.clone();
                shorter.steps.drain(at..(at + part).min(self.steps.len()));
                if fails(&shorter) {
                    self = shorter;
                } else {
                    at += part;
                }
            }
            part /= 2;
        }
        self
    }
}

impl<F: fmt::Debug> fmt::Display for FaultPlan<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SEED={} with {} faults:", self.seed, self.steps.len())?;
        for PlannedFault { at, length, fault } in &self.steps {
            let (at, length) = (at.as_secs_f64(), length.as_secs_f64());
            writeln!(f, "  at {at:.3} s for {length:.3} s: {fault:?}")?;
        }
        Ok(())
    }
}

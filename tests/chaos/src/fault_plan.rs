//! The faults of a run: a list made of its seed, printed when the run fails, and made shorter while it goes on to fail.

use std::fmt;
use std::time::Duration;

/// A fault, and when.
#[derive(Clone, Debug)]
pub struct PlannedFault<F> {
    /// Since the beginning of the run; later where the fault before it still lasts.
    pub at: Duration,
    /// For how long.
    pub length: Duration,
    /// What.
    pub fault: F,
}

/// The faults of a run, in the order of their times.
#[derive(Clone, Debug)]
pub struct FaultPlan<F> {
    /// The seed that it was made of, and that the operations are made of.
    pub seed: u64,
    /// For how long faults may begin.
    pub lasts: Duration,
    /// The faults.
    pub steps: Vec<PlannedFault<F>>,
}

impl<F: Clone> FaultPlan<F> {
    /// Leaves out ever smaller parts of the list for as long as the rest `fails` as well.
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

//! How many acquisitions have waited for one key, over time.

use std::collections::VecDeque;

use crate::console::clock::Millis;

/// How far back contention is remembered.
pub(crate) const CONTENTION_SPAN: Millis = 5 * 60 * 1_000;

/// Contention of one key is shown in steps of this length.
const STEP: Millis = 10_000;

/// The numbers of waiters, each with the time since when it was so many.
#[derive(Debug, Default)]
pub(super) struct WaitingNumbers(VecDeque<(Millis, u64)>);

impl WaitingNumbers {
    /// Notes a number if it differs from the last one.
    pub(super) fn note(&mut self, now: Millis, number: u64) {
        let changes = &mut self.0;
        if changes.back().map_or(0, |(_, last)| *last) != number {
            changes.push_back((now, number));
        }
        // The first one says how many waited when the span began.
        while changes.len() > 1 && now.saturating_sub(changes[1].0) > CONTENTION_SPAN {
            changes.pop_front();
        }
    }

    /// All that are remembered, the oldest one first.
    pub(super) fn all(&self) -> Vec<(Millis, u64)> {
        self.0.iter().copied().collect()
    }

    /// The most that waited in each step of the span, the oldest step first. Empty if nobody has waited.
    pub(super) fn most(&self, now: Millis) -> Vec<u64> {
        let mut changes = self.0.iter().peekable();
        let last = now / STEP;
        let first = (last + 1).saturating_sub(CONTENTION_SPAN / STEP);
        let mut most = vec![0; (last + 1 - first) as usize];
        while let Some((since, waiting)) = changes.next() {
            let until = changes
                .peek()
                .map_or(now, |(next, _)| next.saturating_sub(1));
            let steps = (since / STEP).max(first)..=(until / STEP).min(last);
            for step in steps {
                let step = &mut most[(step - first) as usize];
                *step = (*step).max(*waiting);
            }
        }
        if most.iter().all(|waiting| *waiting == 0) {
            Vec::new()
        } else {
            most
        }
    }
}

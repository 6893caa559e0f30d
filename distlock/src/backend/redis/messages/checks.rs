//! Whether all messages have arrived that were published before a moment.
//!
//! A server sends what a connection gets in order. A PING that is sent after that moment is therefore answered behind those
//! messages. All who ask before it is sent share one.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::sync::foreign;

/// The questions of all waiters to one server.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// How many were asked.
    asked: AtomicU64,
    /// How many of them were asked before the last PING that was answered.
    answered: watch::Sender<u64>,
}

impl Checks {
    /// Asks. Returns the number of the question. The caller wakes the task that sends.
    pub(super) fn ask(&self) -> u64 {
        // Release, with the Acquire in `open`: the PING that answers it is sent after this.
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last question, if it has no answer yet.
    pub(super) fn open(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `ask`.
        let asked = self.asked.load(Ordering::Acquire);
        (asked > *self.answered.borrow()).then_some(asked)
    }

    /// A PING was answered that was sent after this question.
    pub(super) fn answered(&self, number: u64) {
        foreign::send_modify(&self.answered, |answered| *answered = number);
    }

    /// Completes when a question is answered.
    pub(super) async fn is_answered(&self, number: u64) {
        let mut answered = self.answered.subscribe();
        // The sender is a field of `self`, so it is there.
        let _open = answered.wait_for(|answered| *answered >= number).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ping_answers_those_who_asked_before_it_was_sent_and_no_others() {
        let checks = Checks::default();
        assert_eq!(checks.open(), None);
        let first = checks.ask();
        let second = checks.ask();
        let sent = checks.open().unwrap();
        let third = checks.ask();
        checks.answered(sent);
        checks.is_answered(first).await;
        checks.is_answered(second).await;
        let late = tokio::time::timeout(Duration::from_secs(60), checks.is_answered(third));
        assert!(late.await.is_err());
        assert_eq!(checks.open(), Some(third));
    }
}

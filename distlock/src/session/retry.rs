//! Tries of one request, which is sent again until it is answered.

use std::time::Duration;

use super::Session;
use crate::backend::Fault;
use crate::clock::Tick;
use crate::config::RETRY_BACKOFF;

/// Tries of one request in a row that were not answered. The pauses between them grow, up to the longest pause of the client.
#[derive(Debug)]
pub(crate) struct Retry {
    /// When the first try was sent, or the first one after an outage.
    pub(crate) since: Tick,
    pause: Duration,
    longest: Duration,
    last: Option<Fault>,
}

impl Retry {
    /// The first try is sent at `since`.
    pub(crate) fn new(session: &Session, since: Tick) -> Self {
        let longest = session.config.longest_pause();
        Self {
            since,
            pause: RETRY_BACKOFF.first.min(longest),
            longest,
            last: None,
        }
    }

    /// The fault of the last try; `None` if none has failed.
    pub(crate) fn last(&self) -> Option<&Fault> {
        self.last.as_ref()
    }

    /// Until when a try may take that has to be over at `give_up`. The backend bounds the first one; later ones have less time
    /// left.
    pub(crate) fn latest(&self, give_up: Tick) -> Tick {
        self.last.as_ref().map_or(Tick::NEVER, |_| give_up)
    }

    /// The fault of a try that was left without an answer. The fault of an earlier one says more than `no answer`.
    pub(crate) fn no_answer(&self) -> Fault {
        self.last.clone().unwrap_or_else(Fault::no_answer)
    }

    /// A try has failed. Returns the pause before the next one.
    pub(crate) fn failed(&mut self, fault: Fault) -> Duration {
        self.last = Some(fault);
        let pause = self.pause;
        self.lengthen();
        pause
    }

    /// The pause before the next try.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Doubles the pause, up to the longest.
    pub(super) fn lengthen(&mut self) {
        self.pause = (self.pause * 2).min(self.longest);
    }

    /// Doubles the pause, also beyond the longest.
    pub(super) fn lengthen_without_limit(&mut self) {
        self.pause *= 2;
    }

    /// The next try is the first one after an outage. The pauses are not beyond the longest.
    pub(super) fn begin_again(&mut self, now: Tick) {
        self.since = now;
        self.pause = self.pause.min(self.longest);
    }
}

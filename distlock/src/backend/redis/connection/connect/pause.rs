//! The pauses between tries to connect.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::{RECONNECT_BACKOFF, REFUSED_PAUSE};
use crate::sync::random::growing_pause;

/// The pause before the next try to connect. Each is twice as long as the one before, up to a longest one.
pub(crate) struct ReconnectPause {
    next: Duration,
    longest: Duration,
}

impl ReconnectPause {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            next: RECONNECT_BACKOFF.first.min(longest),
            longest,
        }
    }

    /// The pause after so many connections in a row that were of no use. Each has made it twice as long, up to a quarter of the longest
    /// one: the server does answer, and waiters hear of no release in the pause.
    pub(crate) fn after(useless: u32, longest: Duration) -> Self {
        let doubled = 2_u32.saturating_pow(useless.saturating_sub(1));
        let first = RECONNECT_BACKOFF.first.saturating_mul(doubled);
        Self {
            next: first.min(longest / 4),
            longest,
        }
    }

    /// The next pause is the shortest one: what was tried until now says nothing of the next try.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::new(self.longest);
    }

    /// How long it is at most.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Sleeps. A caller that waits for the connection ends the pause after a quarter of it, if the server refused the last try.
    pub(crate) async fn sleep(&mut self, was_refused: bool, wanted: &Notify) {
        let pause = growing_pause(&mut self.next, self.longest);
        // It grows as well: where many tasks wait, somebody wants the connection all the time.
        let least = REFUSED_PAUSE.max(pause / 4);
        tokio::select! {
            () = sleep(pause) => {}
            // The server is there, and may admit the next try.
            () = wanted_after(least, wanted), if was_refused => {}
        }
    }
}

/// Completes after the pause, when somebody waits for a connection.
async fn wanted_after(pause: Duration, wanted: &Notify) {
    sleep(pause).await;
    wanted.notified().await;
}

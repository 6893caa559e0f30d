//! How many commands in a row went unanswered over the current connection.
//!
//! A command that was sent over an earlier connection says nothing of the current one, whenever its time is over.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits of the count. The number of the connection is above them.
const COUNT_BITS: u32 = 8;

/// The highest count, which stays. [`TIMEOUTS_TO_REPLACE`](crate::config::TIMEOUTS_TO_REPLACE) is far below.
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The commands in a row that went unanswered, of the newest connection that was heard of.
///
/// One number has both, so that a count never moves from a connection to the next one. Relaxed: nothing else is read by it.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(AtomicU64);

impl Unanswered {
    /// A command over connection `epoch` was answered.
    pub(crate) fn answered(&self, epoch: u64) {
        // Read first: the count is nearly always 0, and a write would move its cache line between cores.
        let now = self.0.load(Ordering::Relaxed);
        if now & COUNT != 0 && now >> COUNT_BITS == epoch {
            let none = epoch << COUNT_BITS;
            // If it has changed meanwhile, another command was answered or not, which is as recent.
            let _unless_changed =
                self.0
                    .compare_exchange(now, none, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A command over connection `epoch` was not answered in time. Returns how many in a row that are, or 0 if a newer
    /// connection was heard of.
    pub(crate) fn timed_out(&self, epoch: u64) -> u32 {
        let counted = |now: u64| match now >> COUNT_BITS {
            counted if counted > epoch => None,
            counted if counted < epoch => Some((epoch << COUNT_BITS) + 1),
            _ => Some(now + u64::from(now & COUNT < COUNT)),
        };
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        let count = before.ok().and_then(counted).unwrap_or(0) & COUNT;
        // It has few bits, so it always fits.
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_timeouts_and_answers_of_an_old_connection_leave_the_count_of_the_new_one() {
        let unanswered = Unanswered::default();
        assert_eq!(unanswered.timed_out(1), 1);
        assert_eq!(unanswered.timed_out(2), 1, "that of the old one counted");
        assert_eq!(unanswered.timed_out(1), 0);
        unanswered.answered(1);
        assert_eq!(unanswered.timed_out(2), 2, "the answer was another one's");
        unanswered.answered(2);
        assert_eq!(unanswered.timed_out(2), 1);
    }

    #[test]
    fn count_stays_at_the_highest_one() {
        let unanswered = Unanswered::default();
        for _ in 0..2 * COUNT {
            unanswered.timed_out(7);
        }
        assert_eq!(u64::from(unanswered.timed_out(7)), COUNT);
        assert_eq!(unanswered.timed_out(8), 1);
    }
}

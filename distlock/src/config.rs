//! Every default, limit and interval, each with its unit and its reason.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::error::Error;

/// Lease of a hold that the watchdog keeps: Redisson's `lockWatchdogTimeout`.
pub(crate) const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// A lease is renewed when this part of it has passed, so that two renewals may fail before it ends.
pub(crate) const RENEWALS_PER_LEASE: u32 = 3;

/// How long one command may go unanswered before its outcome counts as unknown.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The response timeout is at most this part of the watchdog's lease: several tries fit between a renewal's first
/// failure and the hold's deadline.
pub(crate) const RESPONSE_TIMEOUTS_PER_LEASE: u32 = 6;

/// How long a connection may take to stand, TLS included.
#[cfg(feature = "redis")]
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an acquisition goes on without any answer before it is an error.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(5);

/// Longest key in bytes, prefix included: far above any real name, far below what would hurt Redis.
pub(crate) const MAX_KEY_BYTES: usize = 4096;

/// Redis counts leases in whole milliseconds, and a lease of 0 would delete the key.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);

/// Longer than any lease makes sense, short enough that no addition of times overflows: ten years.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Longest wait in time: what tokio's timers can hold is some two years.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most permits of a semaphore at once, and the highest count of a latch: Redisson's are numbers of 32 bits with a sign.
pub(crate) const MAX_NUMBER: u32 = i32::MAX as u32;

/// How long a waiter sleeps where nothing says when to try again: the key has no TTL, or messages may not arrive.
pub(crate) const MAX_SLEEP_UNTOLD: Duration = Duration::from_secs(5);

/// A hold that lies within one client passes on to its next waiter at most this often before it is released for real.
///
/// With [`HAND_OVER_TIME`], the turn of other processes: some sixty grants make a real release (two round trips)
/// cost little beside them.
pub(crate) const HAND_OVER_GRANTS: u32 = 64;

/// The longest that holds of one client follow each other by hand-over before a real release.
pub(crate) const HAND_OVER_TIME: Duration = Duration::from_millis(50);

/// How long the first waiter behind a holder of its own client relies on that holder, before it asks the backend
/// and subscribes: a hand-over comes within this time or the hold is a long one.
pub(crate) const NEIGHBOUR_TRUST: Duration = HAND_OVER_TIME;

/// How long the head of a queue lets other processes go first when its own message does not come.
pub(crate) const YIELD_TIME: Duration = Duration::from_millis(20);

/// The pauses between two tries of a command that failed.
pub(crate) const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(1),
};

/// Renewals that travel in one script.
pub(crate) const RENEWAL_BATCH: usize = 100;

/// Batches of renewals of one client that are under way at once: enough to fill the line, few enough that each is
/// answered long before its timeout, also by a busy server.
pub(crate) const RENEWALS_AT_ONCE: usize = 16;

/// Releases in the background that are under way at once, for the same reason.
pub(crate) const RELEASES_AT_ONCE: usize = 256;

/// Attempts of one client that are under way at once; renewals and releases need no place among them.
#[cfg(feature = "redis")]
pub(crate) const ATTEMPTS_AT_ONCE: usize = 512;

/// A channel without waiters stays subscribed this long: on a busy key the next waiter comes at once.
#[cfg(feature = "redis")]
pub(crate) const SUBSCRIPTION_LINGER: Duration = Duration::from_millis(250);

/// A subscription connection that was silent for this long is asked whether it lives.
#[cfg(feature = "redis")]
pub(crate) const SUBSCRIPTION_PING: Duration = Duration::from_secs(5);

/// The pauses between two tries to connect; shorter beside a short lease.
#[cfg(feature = "redis")]
pub(crate) const RECONNECT_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(2),
};

/// Commands that wait in the driver for their turn on the socket.
#[cfg(feature = "redis")]
pub(crate) const PIPELINE_BUFFER: usize = 1024;

/// Unanswered commands in a row after which a connection is replaced: the driver itself never does.
#[cfg(feature = "redis")]
pub(crate) const TIMEOUTS_TO_REPLACE: u32 = 2;

/// How long at least the other servers of a Redlock may answer later than the quorum, and be held as well.
pub(crate) const QUORUM_GRACE: Duration = Duration::from_millis(1);

/// The longest random pause of a Redlock between two rounds: a few round trips, so that the next ones do not meet.
pub(crate) const QUORUM_JITTER: Duration = Duration::from_millis(20);

/// Keys whose highest fencing token a client remembers: enough that a hot key is never forgotten, little enough memory.
pub(crate) const TOKENS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// How long a server refuses an owner that was withdrawn. An attempt whose outcome is in doubt is withdrawn again and
/// again while it may still come: at pauses that stay below this for a watchdog's lease, and then its own is over.
pub(crate) const OWNERS_REMEMBERED: Duration = WATCHDOG_TIMEOUT;

/// How long a server remembers what a request was answered: it is sent again for as long as a caller can be made to
/// wait for an answer, and its last copy may come as late again.
pub(crate) const REQUESTS_REMEMBERED: Duration = Duration::from_secs(14);

/// How long a waiter's place in the server outlives its last sign of life. Three signs come in that time.
pub(crate) const WAITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Signs of life of a waiter within its timeout.
pub(crate) const SIGNS_PER_WAITER_TIMEOUT: u32 = 3;

/// After a write lock readers who waited for its end go first for this long, before the next writer of our clients.
pub(crate) const READERS_TURN: Duration = YIELD_TIME;

/// How long a reader that was refused counts as one that waits, beyond the time for which it was refused.
pub(crate) const READERS_PATIENCE: Duration = MAX_SLEEP_UNTOLD;

/// The pauses of a spin lock between two attempts: the same as Redisson's.
pub(crate) const SPIN_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(128),
};

/// Pauses between attempts: each is twice as long as the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// How many acquisitions of one client may wait at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxWaiters {
    pub(crate) per_key: u32,
    /// For all keys together.
    pub(crate) total: u32,
}

/// What a client was built with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) key_prefix: String,
    pub(crate) default_wait: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: MaxWaiters,
    pub(crate) response_timeout: Duration,
    pub(crate) unavailable_after: Duration,
    pub(crate) waiter_timeout: Duration,
    #[cfg(feature = "redis")]
    pub(crate) fencing_token_ttl: Option<Duration>,
    #[cfg(feature = "redis")]
    pub(crate) nodelay: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: WATCHDOG_TIMEOUT,
            key_prefix: String::new(),
            default_wait: None,
            max_hold: None,
            max_waiters: MaxWaiters {
                per_key: u32::MAX,
                total: u32::MAX,
            },
            response_timeout: RESPONSE_TIMEOUT,
            unavailable_after: UNAVAILABLE_AFTER,
            waiter_timeout: WAITER_TIMEOUT,
            #[cfg(feature = "redis")]
            fencing_token_ttl: None,
            #[cfg(feature = "redis")]
            nodelay: false,
        }
    }
}

impl Config {
    /// Refuses what cannot work, and fits the response timeout into the lease.
    pub(crate) fn validated(mut self) -> Result<Self, Error> {
        check_lease(self.watchdog_timeout)?;
        if let Some(wait) = self.default_wait {
            check_wait(wait)?;
        }
        if let Some(most) = self.max_hold {
            check_hold("max_hold", most)?;
        }
        for (what, value) in [
            ("response_timeout", self.response_timeout),
            ("unavailable_after", self.unavailable_after),
            ("waiter_timeout", self.waiter_timeout),
        ] {
            if value.is_zero() || value > MAX_WAIT {
                return Err(Error::invalid_config(what, value));
            }
        }
        #[cfg(feature = "redis")]
        if let Some(ttl) = self.fencing_token_ttl
            && check_lease(ttl).is_err()
        {
            return Err(Error::invalid_config("fencing_token_ttl", ttl));
        }
        let most = self.watchdog_timeout / RESPONSE_TIMEOUTS_PER_LEASE;
        let most = most.max(MIN_LEASE).min(self.unavailable_after);
        self.response_timeout = self.response_timeout.min(most);
        Ok(self)
    }

    /// As [`OWNERS_REMEMBERED`], with this client's lease.
    #[cfg(feature = "redis")]
    pub(crate) fn owners_remembered(&self) -> Duration {
        self.watchdog_timeout
    }

    /// As [`REQUESTS_REMEMBERED`], with this client's patience.
    #[cfg(feature = "redis")]
    pub(crate) fn requests_remembered(&self) -> Duration {
        (self.unavailable_after + self.response_timeout) * 2
    }

    /// How long the server remembers that an owner has ended, or how a request was answered: until no copy of a command
    /// can come any more. It is sent again for as long as somebody waits for an answer, and comes late by at most the
    /// lease within which the locks' own late attempts are cleaned up.
    pub(crate) fn remembered(&self) -> Duration {
        self.unavailable_after + self.watchdog_timeout
    }

    /// The pause between two tries of a failed command grows from the shortest to this.
    pub(crate) fn longest_pause(&self) -> Duration {
        Self::retry_pause(self.watchdog_timeout)
    }

    /// The pause between two tries to connect grows to this: of a short lease a longer one could be all that is left.
    #[cfg(feature = "redis")]
    pub(crate) fn longest_reconnect_pause(&self) -> Duration {
        (self.watchdog_timeout / 10).clamp(MIN_LEASE, RECONNECT_BACKOFF.longest)
    }

    /// The pause before a failed command on a hold with this lease is tried again.
    pub(crate) fn retry_pause(lease: Duration) -> Duration {
        (lease / 10).clamp(MIN_LEASE, RETRY_BACKOFF.longest)
    }
}

/// Refuses a lease that Redis cannot count or nobody can mean.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        Ok(())
    } else {
        Err(Error::InvalidLease { lease })
    }
}

/// Refuses a bound of a hold that no lease can have.
pub(crate) fn check_hold(bound: &'static str, time: Duration) -> Result<(), Error> {
    check_lease(time).map_err(|_| Error::invalid_config(bound, time))
}

/// Refuses permits that Redisson cannot count, and none at all.
pub(crate) fn check_permits(permits: u32) -> Result<(), Error> {
    if (1..=MAX_NUMBER).contains(&permits) {
        Ok(())
    } else {
        let permits = u64::from(permits);
        Err(Error::InvalidPermits { permits })
    }
}

/// Refuses a count that Redisson cannot count, and 0: it would be a latch that stands in the way of the next one.
pub(crate) fn check_count(count: u32) -> Result<(), Error> {
    if (1..=MAX_NUMBER).contains(&count) {
        Ok(())
    } else {
        Err(Error::InvalidCount { count })
    }
}

/// Refuses a wait that no timer can hold.
pub(crate) fn check_wait(wait: Duration) -> Result<(), Error> {
    if wait <= MAX_WAIT {
        Ok(())
    } else {
        Err(Error::InvalidWait { wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_timeout_leaves_room_for_several_tries_in_a_lease() {
        let config = Config {
            watchdog_timeout: Duration::from_millis(600),
            ..Config::default()
        };
        let config = config.validated().unwrap();
        assert_eq!(config.response_timeout, Duration::from_millis(100));
    }

    #[test]
    fn leases_and_waits_out_of_bounds_are_refused() {
        for lease in [Duration::ZERO, Duration::from_nanos(999_999), Duration::MAX] {
            assert!(matches!(
                check_lease(lease),
                Err(Error::InvalidLease { .. })
            ));
        }
        assert!(check_lease(MIN_LEASE).is_ok() && check_lease(MAX_LEASE).is_ok());
        assert!(check_wait(Duration::ZERO).is_ok() && check_wait(Duration::MAX).is_err());
    }
}

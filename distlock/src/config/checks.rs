//! Rejects values that cannot work, before anything is sent.

use std::time::Duration;

use super::{
    Backoff, MAX_EXPIRE_AFTER, MAX_LEASE, MAX_NUMBER, MAX_WAIT, MIN_LEASE, RENEWALS_PER_LEASE,
};
use crate::error::{Error, LEASES, exact};

/// Rejects a lease that is shorter than [`MIN_LEASE`] or longer than [`MAX_LEASE`].
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        Ok(())
    } else {
        let margin = Duration::ZERO;
        Err(Error::InvalidLease { lease, margin })
    }
}

/// Rejects a lease of which less than `least` is left without the client's margin.
pub(super) fn check_lease_with(
    margin: Duration,
    lease: Duration,
    least: Duration,
) -> Result<(), Error> {
    check_lease(lease)?;
    if margin.is_zero() || lease >= margin + least {
        return Ok(());
    }
    let least = exact(least);
    let margin = exact(margin);
    let expected =
        format!("{least} more than the `lease_margin` of the client, {margin}, at least");
    Err(Error::invalid_time("lease", lease, expected))
}

/// The margin in whole milliseconds. Rejects one that is longer than a third of the lease that the watchdog renews:
/// another third passes before each renewal, and the last one is for renewals that fail.
pub(super) fn checked_margin(margin: Duration, watchdog: Duration) -> Result<Duration, Error> {
    // A hold keeps it as a `u32`.
    let most = (watchdog / RENEWALS_PER_LEASE).min(Duration::from_millis(u32::MAX.into()));
    if margin <= most {
        // Up, since a longer margin is safer, unless it would be too long then.
        let up = Duration::from_millis(margin.as_nanos().div_ceil(1_000_000) as u64);
        let down = Duration::from_millis(margin.as_millis() as u64);
        return Ok(if up <= most { up } else { down });
    }
    let expected = format!("at most {}, a third of `watchdog_timeout`", exact(most));
    Err(Error::invalid_time("lease_margin", margin, expected))
}

/// Rejects a time limit of a hold that is not within the bounds of a lease.
pub(crate) fn check_hold(bound: &'static str, time: Duration) -> Result<(), Error> {
    check_lease(time).map_err(|_| Error::invalid_time(bound, time, LEASES))
}

/// The times of a setting that may also have none.
pub(super) const TIMES_OR_MAX: &str =
    "at most 365days, or `unlimited` (`Duration::MAX` in code) for no limit";

/// Rejects a timeout of zero, and one of more than [`MAX_WAIT`].
pub(super) fn check_timeout(setting: &'static str, time: Duration) -> Result<(), Error> {
    if !time.is_zero() && time <= MAX_WAIT {
        return Ok(());
    }
    Err(Error::invalid_time(
        setting,
        time,
        "more than 0, at most 365days",
    ))
}

/// Rejects a time after a use that is shorter than [`MIN_LEASE`] or longer than [`MAX_EXPIRE_AFTER`].
pub(crate) fn check_expire_after(time: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_EXPIRE_AFTER).contains(&time) {
        Ok(())
    } else {
        Err(Error::invalid_time("expire_after", time, "1ms to 45days"))
    }
}

/// Rejects 0 permits and more than `max`.
pub(crate) fn check_permits(permits: u32, max: u32) -> Result<(), Error> {
    check_range(permits.into(), 1, max).map(drop)
}

/// Rejects a number of permits of a semaphore that Redisson cannot store.
pub(crate) fn check_total(permits: u32) -> Result<(), Error> {
    check_range(permits.into(), 0, MAX_NUMBER).map(drop)
}

/// Rejects a number of available permits, which may be below 0, that Redisson cannot store.
pub(crate) fn check_sum(permits: i64) -> Result<i64, Error> {
    check_range(permits, -i32::MAX, MAX_NUMBER)
}

fn check_range(permits: i64, min: i32, max: u32) -> Result<i64, Error> {
    if (i64::from(min)..=i64::from(max)).contains(&permits) {
        Ok(permits)
    } else {
        Err(Error::InvalidPermits { permits, min, max })
    }
}

/// Rejects a count of 0 and a count that Redisson cannot store. A latch with a count of 0 would prevent a new latch on
/// its key.
pub(crate) fn check_count(count: u32) -> Result<(), Error> {
    if (1..=MAX_NUMBER).contains(&count) {
        Ok(())
    } else {
        Err(Error::InvalidCount { count })
    }
}

/// Rejects a wait that is longer than [`MAX_WAIT`]. `Duration::MAX` means a wait without limit, and gives `None`.
pub(crate) fn checked_wait(wait: Option<Duration>) -> Result<Option<Duration>, Error> {
    match wait {
        Some(Duration::MAX) => Ok(None),
        Some(wait) if wait > MAX_WAIT => Err(Error::InvalidWait { wait }),
        limit => Ok(limit),
    }
}

/// Rejects a `max_hold` that is not within the bounds of a lease. `Duration::MAX` means no limit, and gives `None`.
pub(crate) fn checked_max_hold(most: Option<Duration>) -> Result<Option<Duration>, Error> {
    match most {
        Some(most) if most < Duration::MAX => {
            let expected =
                format!("{LEASES}, or `unlimited` (`Duration::MAX` in code) for no limit");
            check_lease(most).map_err(|_| Error::invalid_time("max_hold", most, expected))?;
            Ok(Some(most))
        }
        _ => Ok(None),
    }
}

/// Rejects pauses that are longer than [`MAX_WAIT`]: twice as long would overflow.
pub(crate) fn check_backoff(backoff: &Backoff) -> Result<(), Error> {
    // The longest is never below the first.
    if backoff.longest <= MAX_WAIT {
        Ok(())
    } else {
        Err(Error::invalid_time(
            "backoff",
            backoff.longest,
            "pauses of at most 365days",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_waits_out_of_bounds_are_refused() {
        for lease in [Duration::ZERO, Duration::from_nanos(999_999), Duration::MAX] {
            assert!(matches!(
                check_lease(lease),
                Err(Error::InvalidLease { .. })
            ));
        }
        assert!(check_lease(MIN_LEASE).is_ok() && check_lease(MAX_LEASE).is_ok());
        assert!(checked_wait(Some(Duration::ZERO)).is_ok());
        assert!(checked_wait(Some(MAX_WAIT + MIN_LEASE)).is_err());
        assert!(checked_max_hold(Some(MAX_LEASE)).is_ok());
        assert!(checked_max_hold(Some(MAX_LEASE + MIN_LEASE)).is_err());
    }
}

//! A time on the machine's clock. Tokio's timers stand still while the machine is suspended, and the library's leases do not.

use std::time::Duration;

use tokio::time::sleep;

/// How long after a suspend a bound that is over is noticed at the latest.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A point in time.
pub(super) struct Bound {
    at: Duration,
    /// The clock.
    now: fn() -> Duration,
}

impl Bound {
    /// So long from now on.
    pub(super) fn after(time: Duration) -> Self {
        Self::by(boot_time, time)
    }

    fn by(now: fn() -> Duration, time: Duration) -> Self {
        let at = now().saturating_add(time);
        Self { at, now }
    }

    /// Completes at this time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn reached(&self) {
        loop {
            let left = self.at.saturating_sub((self.now)());
            if left.is_zero() {
                return;
            }
            sleep(left.min(LOOK_AGAIN_AFTER)).await;
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    // Neither part is negative: the time counts from the start of the machine.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Other systems may stop this clock in a suspend, as the library's.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    #[tokio::test]
    async fn bound_is_reached_after_a_suspend_though_no_timer_has_moved() {
        let bound = Bound::by(|| NOW.get(), HOUR);
        let mut reached = std::pin::pin!(bound.reached());
        let short = Duration::from_millis(20);
        assert!(timeout(short, &mut reached).await.is_err());
        NOW.set(HOUR * 2);
        let soon = Duration::from_secs(30);
        assert!(timeout(soon, reached).await.is_ok());
    }

    #[tokio::test]
    async fn bound_is_not_reached_before_its_time() {
        let before = boot_time();
        let time = Duration::from_millis(5);
        Bound::after(time).reached().await;
        assert!(boot_time() - before >= time);
    }
}

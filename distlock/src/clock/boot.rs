//! The machine's clock, and the watch that ends sleeps when the machine was suspended.
//!
//! This clock goes on during a suspend, and tokio's timers do not, so a timer alone would end a sleep too late by as much. One
//! task of each client compares the two once a second, and wakes all sleepers of the clock if they have moved apart.
//! Without a suspend a sleeper is not polled until its sleep is over. Sleepers whose timers nobody watches, such as those of
//! another runtime than that of the task, wake up once a second and compare by themselves.

use std::convert::Infallible;
use std::time::Duration;

use super::tick::{Tick, nanos};
use crate::sync::runtime::{Handle, Id};
use crate::sync::time::{Instant, sleep};
use crate::sync::{Change, Changes, Mutex};

/// How long after a suspend its sleepers are woken at the latest.
pub(super) const LONGEST_UNWATCHED: Duration = Duration::from_secs(1);

/// A suspend that is shorter wakes nobody. Shorter ones count together.
const UNNOTICED: Duration = Duration::from_millis(10);

/// The machine's clock, as one client uses it.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Debug, Default)]
pub struct BootClock {
    /// The runtime whose timers are watched.
    watched: Mutex<Option<Id>>,
    /// Notifies sleepers that rely on the watch: they have to read the clock again.
    read_again: Changes,
}

impl BootClock {
    pub(super) fn now(&self) -> Tick {
        let suspended = suspended();
        Tick::at(nanos(boot_time())).after(suspended)
    }

    /// Completes when a sleeper has to read the clock again: after a suspend, or because the watch has ended. Returns `None`
    /// if nobody watches the timers of the caller's runtime.
    pub(super) fn read_again(&self) -> Option<Change<'_>> {
        // The future is made before the check. It completes at each change after that, even if it was not polled yet.
        let read_again = self.read_again.next();
        let here = Handle::try_current().ok()?.id();
        (*self.watched.lock() == Some(here)).then_some(read_again)
    }

    /// Watches the timers of the caller's runtime until it is dropped.
    pub(super) async fn watch(&self) -> Infallible {
        // Kept until the two have moved apart: several short suspends add up. Read before a sleeper relies on the watch.
        let mut start = self.read_both();
        let _watch = Watch::begin(self);
        loop {
            sleep(LONGEST_UNWATCHED).await;
            let now = self.read_both();
            let by_clock = now.0.since(start.0);
            let by_timers = now.1.saturating_duration_since(start.1);
            if by_clock.abs_diff(by_timers) >= UNNOTICED {
                start = now;
                self.read_again.announce();
            }
        }
    }

    /// The time on this clock, and that of the timers. Both are read again if the thread stood still in between, which would look
    /// like a suspend.
    fn read_both(&self) -> (Tick, Instant) {
        loop {
            let timers = Instant::now();
            let clock = self.now();
            if timers.elapsed() < UNNOTICED / 4 {
                return (clock, timers);
            }
        }
    }
}

/// A watch that goes on. However it ends, the sleepers do not rely on it any more.
struct Watch<'a>(&'a BootClock);

impl<'a> Watch<'a> {
    fn begin(clock: &'a BootClock) -> Self {
        *clock.watched.lock() = Some(Handle::current().id());
        Self(clock)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        *self.0.watched.lock() = None;
        // From now on the sleepers have to compare by themselves.
        self.0.read_again.announce();
    }
}

/// For how long the machine was suspended, beyond what the boot clock shows: only tests simulate that.
fn suspended() -> Duration {
    #[cfg(test)]
    return tests::suspended();
    #[cfg(not(test))]
    Duration::ZERO
}

/// The clock that goes on during a suspend. That of the standard library stands still on these systems.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(target_vendor = "apple")]
const BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(BOOT);
    // Neither part is negative: the time counts from the start of the machine.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn boot_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::{Builder, Runtime};
    use tokio::task::JoinHandle;

    use super::super::Clock;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        /// For how long the thread stands still before it reads the clock next.
        static STANDS_STILL: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn suspended() -> Duration {
        std::thread::sleep(STANDS_STILL.take());
        SUSPENDED.get()
    }

    /// Moves the boot clock of this thread on, and no timer, as if the machine had been suspended.
    pub(crate) fn suspend(time: Duration) {
        SUSPENDED.set(SUSPENDED.get() + time);
    }

    fn runtime() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    /// Begins to watch, in the caller's runtime.
    async fn watch(clock: &Clock) -> JoinHandle<Infallible> {
        let watched = clock.clone();
        let task = tokio::spawn(async move { watched.watch().await });
        tokio::task::yield_now().await;
        task
    }

    /// Begins to sleep for a minute, and counts how often it is polled.
    fn sleep(clock: &Clock, polls: &Arc<AtomicUsize>) -> JoinHandle<()> {
        let clock = clock.clone();
        let polls = Arc::clone(polls);
        tokio::spawn(async move {
            let mut sleep = pin!(clock.sleep_until(clock.now().after(MINUTE)));
            poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                sleep.as_mut().poll(cx)
            })
            .await;
        })
    }

    /// Suspends the machine, and waits until the sleepers have noticed.
    async fn outlast(sleepers: impl IntoIterator<Item = JoinHandle<()>>) {
        suspend(MINUTE);
        for sleeper in sleepers {
            let ended = tokio::time::timeout(MINUTE / 3, sleeper).await;
            ended.expect("it ends before its timer does").unwrap();
        }
    }

    #[tokio::test]
    async fn boot_clock_goes_on_and_sleeps_are_not_short() {
        let clock = Clock::boot();
        let requested = clock.now().after(Duration::from_millis(5));
        clock.sleep_until(requested).await;
        assert!(clock.now() >= requested);
    }

    #[tokio::test]
    async fn watched_sleepers_are_polled_when_they_begin_and_after_a_suspend_only() {
        let clock = Clock::boot();
        let polls = Arc::default();
        let watch = watch(&clock).await;
        let sleepers: Vec<_> = (0..2_000).map(|_| sleep(&clock, &polls)).collect();
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert_eq!(polls.load(Ordering::Relaxed), 2_000);
        // Not long enough for any of them.
        suspend(MINUTE / 2);
        while polls.load(Ordering::Relaxed) < 4_000 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(polls.load(Ordering::Relaxed), 4_000);
        outlast(sleepers).await;
        assert_eq!(polls.load(Ordering::Relaxed), 6_000);
        watch.abort();
    }

    #[tokio::test]
    async fn short_suspends_count_together() {
        let clock = Clock::boot();
        let polls = Arc::default();
        let watch = watch(&clock).await;
        let sleeper = sleep(&clock, &polls);
        for _ in 0..3 {
            tokio::time::sleep(LONGEST_UNWATCHED).await;
            suspend(UNNOTICED / 2);
        }
        tokio::time::sleep(LONGEST_UNWATCHED * 2).await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        sleeper.abort();
        watch.abort();
    }

    #[tokio::test]
    async fn watch_that_stands_still_between_the_timers_and_the_clock_wakes_nobody() {
        let clock = Clock::boot();
        let polls = Arc::default();
        STANDS_STILL.set(UNNOTICED * 3);
        let watch = watch(&clock).await;
        let sleeper = sleep(&clock, &polls);
        tokio::time::sleep(LONGEST_UNWATCHED * 3 / 2).await;
        STANDS_STILL.set(UNNOTICED * 3);
        tokio::time::sleep(LONGEST_UNWATCHED * 3 / 2).await;
        assert_eq!(STANDS_STILL.get(), Duration::ZERO);
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        sleeper.abort();
        watch.abort();
    }

    #[tokio::test]
    async fn sleep_outlasts_no_suspend_without_a_watch() {
        let sleeper = sleep(&Clock::boot(), &Arc::default());
        tokio::task::yield_now().await;
        outlast([sleeper]).await;
    }

    #[tokio::test]
    async fn sleep_outlasts_no_suspend_after_its_watch_has_ended() {
        let clock = Clock::boot();
        let polls = Arc::default();
        let watch = watch(&clock).await;
        let sleeper = sleep(&clock, &polls);
        tokio::task::yield_now().await;
        watch.abort();
        let _cancelled = watch.await;
        tokio::task::yield_now().await;
        assert_eq!(polls.load(Ordering::Relaxed), 2, "told at once");
        outlast([sleeper]).await;
    }

    #[test]
    fn sleep_outlasts_no_suspend_when_the_watch_is_in_a_runtime_that_stands_still() {
        let clock = Clock::boot();
        let idle = runtime();
        idle.block_on(async { drop(watch(&clock).await) });
        runtime().block_on(async {
            let sleeper = sleep(&clock, &Arc::default());
            tokio::task::yield_now().await;
            outlast([sleeper]).await;
        });
        drop(idle);
    }

    #[test]
    fn next_watch_is_relied_on_when_a_runtime_has_gone() {
        let clock = Clock::boot();
        let first = runtime();
        first.block_on(async { drop(watch(&clock).await) });
        drop(first);
        runtime().block_on(async {
            let polls = Arc::default();
            let watch = watch(&clock).await;
            let sleeper = sleep(&clock, &polls);
            tokio::time::sleep(LONGEST_UNWATCHED * 5 / 2).await;
            assert_eq!(polls.load(Ordering::Relaxed), 1);
            outlast([sleeper]).await;
            watch.abort();
        });
    }
}

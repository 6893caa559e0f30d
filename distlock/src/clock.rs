//! Points in time on a client's own clock, and sleeping until one of them.
//!
//! State machines take a [`Tick`] and never read a clock. A client has one [`Clock`], which it shares with its backend.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::config::MAX_WAIT;

/// A point in time on one clock, counted from that clock's own start.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Tick(Duration);

#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
impl Tick {
    /// Later than every deadline.
    pub(crate) const NEVER: Self = Self(Duration::MAX);

    /// Returns the point that is `by` later.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Returns the point that is `by` earlier, but not before the start of the clock.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later than this point.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time from `now` until this point; zero if it has passed.
    pub(crate) fn left(self, now: Self) -> Duration {
        self.since(now)
    }

    /// Returns this point, or the next one that is a whole millisecond: tokio's timers fire at no other.
    pub(crate) fn to_whole_millis(self) -> Self {
        match self.0.subsec_nanos() % 1_000_000 {
            0 => self,
            over => self.after(Duration::from_nanos(u64::from(1_000_000 - over))),
        }
    }

    #[cfg(test)]
    pub(crate) fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The wall-clock time in microseconds since 1970. Only fencing tokens use it, because they have to grow across
/// restarts. This clock may be set back.
pub(crate) fn micros_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros().try_into().unwrap_or(0))
}

/// Whether tokio's time is paused here, which tests can do.
///
/// Tokio tells nobody, so both clocks are read. A paused clock stands still while the machine's clock moves on. A clock that
/// runs is read before the machine's clock has moved and after, and so it has moved as well.
#[cfg(any(test, feature = "redis"))]
pub(crate) fn is_time_paused() -> bool {
    let (before, start) = (Instant::now(), std::time::Instant::now());
    // Some tens of nanoseconds: until the clock shows another time.
    while std::time::Instant::now() == start {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

/// The clock of a client.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock, for real servers. Where the platform allows it, it keeps counting while the machine sleeps.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only the Redis backend uses it")
    )]
    Boot,
    /// Tokio's clock, for the memory backend. Tests can pause it.
    Tokio(Arc<TokioClock>),
}

/// One clock made of the tokio clocks of all runtimes that use a client.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Debug, Default)]
pub struct TokioClock {
    seen: Mutex<Seen>,
}

/// The latest tick that was returned, and the clocks of the newest runtimes in relation to the ticks.
#[derive(Debug, Default)]
struct Seen {
    latest: Tick,
    /// In the order in which they were first seen.
    runtimes: Vec<Base>,
}

/// When a runtime was first seen: by its own clock, and as a tick.
#[derive(Debug)]
struct Base {
    runtime: Handle,
    start: Instant,
    tick: Tick,
}

/// How many runtimes a clock remembers. A program has one; a test process has one for each test that runs.
const RUNTIMES: usize = 16;

/// The longest single sleep on the boot clock. Tokio's timers stop while the machine sleeps, so a longer sleep could
/// end too late by as much.
const LONGEST_BOOT_SLEEP: Duration = Duration::from_secs(1);

#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio(Arc::default())
    }

    /// Returns the current time.
    pub fn now(&self) -> Tick {
        match self {
            Self::Boot => Tick(boot_time()).after(suspended()),
            Self::Tokio(clock) => clock.now(),
        }
    }

    /// Completes at `tick` or a little later. Needs a tokio runtime.
    pub async fn sleep_until(&self, tick: Tick) {
        self.sleep_in_steps(tick, LONGEST_BOOT_SLEEP).await;
    }

    /// Completes at `tick`, without waking up in between. If the machine is suspended meanwhile, it completes later by up to
    /// the length of the suspend. It is for sleepers that something else wakes in that case.
    pub(crate) async fn sleep_once_until(&self, tick: Tick) {
        self.sleep_in_steps(tick, MAX_WAIT).await;
    }

    async fn sleep_in_steps(&self, tick: Tick, longest_on_boot: Duration) {
        if tick == Tick::NEVER {
            // Most acquisitions have no deadline, and so need no timer.
            std::future::pending::<()>().await;
        }
        loop {
            let left = tick.left(self.now());
            if left.is_zero() {
                return;
            }
            // Tokio's timers cannot hold the longest times, so such a sleep takes several rounds.
            let longest = match self {
                Self::Boot => longest_on_boot,
                Self::Tokio(_) => MAX_WAIT,
            };
            tokio::time::sleep(left.min(longest)).await;
        }
    }
}

impl TokioClock {
    /// The current tick. A thread outside of any runtime reads the clock of the newest runtime, because a paused clock
    /// can only be read inside its runtime.
    fn now(&self) -> Tick {
        let mut seen = self.seen.lock();
        match Handle::try_current() {
            Ok(here) => seen.now_in(&here),
            // The thread is ending and cannot enter a runtime any more.
            Err(error) if error.is_thread_local_destroyed() => seen.latest,
            Err(_) => match seen.runtimes.last().map(|base| base.runtime.clone()) {
                Some(runtime) => seen.now_in(&runtime),
                None => seen.latest,
            },
        }
    }
}

impl Seen {
    /// The current tick in this runtime. Each runtime has its own start, because a test may pause and advance one of
    /// them. The result never goes back.
    fn now_in(&mut self, runtime: &Handle) -> Tick {
        let now = {
            let _inside = runtime.enter();
            Instant::now()
        };
        let known = self
            .runtimes
            .iter()
            .find(|base| base.runtime.id() == runtime.id());
        let tick = match known {
            Some(base) => base.tick.after(now.saturating_duration_since(base.start)),
            None => {
                let base = Base {
                    runtime: runtime.clone(),
                    start: now,
                    tick: self.latest,
                };
                if self.runtimes.len() == RUNTIMES {
                    self.runtimes.remove(0);
                }
                self.runtimes.push(base);
                self.latest
            }
        };
        self.latest = self.latest.max(tick);
        self.latest
    }
}

/// For how long the machine was suspended, beyond what the boot clock shows: only tests simulate that.
fn suspended() -> Duration {
    #[cfg(test)]
    return tests::SUSPENDED.get();
    #[cfg(not(test))]
    Duration::ZERO
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Moves the boot clock of this thread on, and no timer, as if the machine had been suspended.
    pub(crate) fn suspend(time: Duration) {
        SUSPENDED.set(SUSPENDED.get() + time);
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time_also_from_a_plain_thread() {
        let clock = Clock::tokio();
        let start = clock.now();
        tokio::time::advance(Duration::from_secs(11)).await;
        let there = clock.clone();
        let seen = std::thread::spawn(move || there.now()).join().unwrap();
        assert_eq!(seen.since(start), Duration::from_secs(11));
        assert_eq!(clock.now().since(start), Duration::from_secs(11));
    }

    #[tokio::test]
    async fn time_is_paused_from_the_pause_to_the_resumption_also_after_an_advance() {
        assert!(!is_time_paused());
        for _ in 0..1_000 {
            assert!(!is_time_paused());
        }
        tokio::time::pause();
        assert!(is_time_paused());
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(is_time_paused());
        tokio::time::resume();
        assert!(!is_time_paused());
    }

    #[test]
    fn time_is_not_paused_outside_of_a_runtime() {
        assert!(!is_time_paused());
    }

    #[test]
    fn tokio_clock_never_goes_back_when_a_paused_runtime_has_gone() {
        let clock = Clock::tokio();
        let paused = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().unwrap()
        };
        let hour = Duration::from_secs(3600);
        paused().block_on(async {
            clock.now();
            tokio::time::advance(hour).await;
            assert_eq!(clock.now().since(Tick::default()), hour);
        });
        paused().block_on(async {
            clock.now();
            tokio::time::advance(hour).await;
            assert_eq!(clock.now().since(Tick::default()), 2 * hour);
        });
    }

    #[test]
    fn two_runtimes_in_turn_do_not_drive_the_clock() {
        let clock = Clock::tokio();
        let build = |paused| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(paused).build().unwrap()
        };
        let (paused, real) = (build(true), build(false));
        std::thread::sleep(Duration::from_millis(20));
        let start = clock.now();
        for _ in 0..100 {
            paused.block_on(async { clock.now() });
            real.block_on(async { clock.now() });
        }
        let passed = clock.now().since(start);
        assert!(passed < Duration::from_secs(1), "{passed:?} in no time");
    }

    #[tokio::test]
    async fn boot_clock_goes_on_and_sleeps_are_not_short() {
        let clock = Clock::Boot;
        let requested = clock.now().after(Duration::from_millis(5));
        clock.sleep_until(requested).await;
        assert!(clock.now() >= requested);
    }

    #[test]
    fn ticks_saturate() {
        assert_eq!(Tick::NEVER.after(Duration::from_secs(1)), Tick::NEVER);
        assert_eq!(Tick::from_millis(1).since(Tick::NEVER), Duration::ZERO);
    }
}

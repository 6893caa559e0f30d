//! The clock of the memory backend, made of the clocks of tokio's runtimes.

use super::tick::Tick;
use crate::sync::Mutex;
use crate::sync::runtime::{Handle, Id};
use crate::sync::time::Instant;

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

/// One instant of a runtime's own clock, and its tick. Later ticks of this runtime are counted from there.
#[derive(Debug)]
struct Base {
    id: Id,
    runtime: Handle,
    start: Instant,
    tick: Tick,
}

/// How many runtimes a clock remembers. A program has one; a test process has one for each test that runs.
const RUNTIMES: usize = 16;

impl TokioClock {
    /// The current tick. A thread outside of any runtime reads the clock of the newest runtime, because a paused clock
    /// can only be read inside its runtime.
    pub(super) fn now(&self) -> Tick {
        let mut seen = self.seen.lock();
        match Handle::try_current() {
            Ok(here) => seen.at(&here, Instant::now()),
            // The thread is ending and cannot enter a runtime any more.
            Err(error) if error.is_thread_local_destroyed() => seen.latest,
            // Outside of a runtime, as in a plain thread. Only inside of one does `Instant::now` follow paused time.
            Err(_) => match seen.runtimes.last().map(|base| base.runtime.clone()) {
                Some(runtime) => {
                    let now = {
                        let _inside = runtime.enter();
                        Instant::now()
                    };
                    seen.at(&runtime, now)
                }
                None => seen.latest,
            },
        }
    }
}

impl Seen {
    /// The tick when the clock of this runtime shows `now`. Each runtime has its own base, because a test may pause and
    /// advance one of them. The result never goes back.
    fn at(&mut self, runtime: &Handle, now: Instant) -> Tick {
        let latest = self.latest;
        let id = runtime.id();
        let known = self.runtimes.iter_mut().find(|base| base.id == id);
        match known {
            Some(base) => {
                let tick = base.tick.after(now.saturating_duration_since(base.start));
                if tick < latest {
                    // Another runtime was advanced. Without a new base, time would stand still here until it has caught up.
                    (base.start, base.tick) = (now, latest);
                } else {
                    self.latest = tick;
                }
            }
            None => {
                if self.runtimes.len() == RUNTIMES {
                    // The oldest. If it is used again, it continues from the latest time.
                    self.runtimes.remove(0);
                }
                self.runtimes.push(Base {
                    id,
                    runtime: runtime.clone(),
                    start: now,
                    tick: latest,
                });
            }
        }
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Clock, Tick};

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
    fn time_goes_on_in_a_runtime_after_another_one_was_advanced() {
        let clock = Clock::tokio();
        let paused = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().unwrap()
        };
        let first = paused();
        let second = paused();
        let hour = Duration::from_secs(3600);
        let moment = Duration::from_secs(1);
        first.block_on(async { clock.now() });
        second.block_on(async {
            clock.now();
            tokio::time::advance(hour).await;
            clock.now();
        });
        first.block_on(async {
            let start = clock.now();
            assert_eq!(start.since(Tick::default()), hour);
            tokio::time::advance(moment).await;
            assert_eq!(clock.now().since(start), moment);
            let woken = clock.sleep_until(clock.now().after(moment));
            assert!(tokio::time::timeout(2 * moment, woken).await.is_ok());
        });
    }

    #[test]
    fn two_runtimes_in_turn_do_not_drive_the_clock() {
        let clock = Clock::tokio();
        let build = |paused| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(paused).build().unwrap()
        };
        let paused = build(true);
        let real = build(false);
        std::thread::sleep(Duration::from_millis(20));
        let start = clock.now();
        for _ in 0..100 {
            paused.block_on(async { clock.now() });
            real.block_on(async { clock.now() });
        }
        let passed = clock.now().since(start);
        assert!(passed < Duration::from_secs(1), "{passed:?} in no time");
    }
}

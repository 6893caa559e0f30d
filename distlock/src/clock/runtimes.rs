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
    /// The current tick. A thread outside of any runtime reads the clocks of all runtimes, because a paused clock can only be
    /// read inside its runtime.
    pub(super) fn now(&self) -> Tick {
        let mut seen = self.seen.lock();
        match Handle::try_current() {
            Ok(here) => seen.read(&here),
            // The thread is ending and cannot enter a runtime any more.
            Err(error) if error.is_thread_local_destroyed() => {}
            Err(_) => seen.read_outside(),
        }
        seen.latest
    }
}

impl Seen {
    /// Reads the clock of the caller's runtime. Each runtime has its own base, because a test may pause and advance one of
    /// them. The latest tick never goes back.
    fn read(&mut self, here: &Handle) {
        let id = here.id();
        let known = self.runtimes.iter().position(|base| base.id == id);
        if let Some(place) = known {
            let tick = self.runtimes[place].tick_at(Instant::now());
            if tick >= self.latest {
                self.latest = tick;
                return;
            }
        }
        // This runtime is new, or another one was advanced. It continues from now, and the last reading of the others may be
        // long ago.
        self.read_all();
        let base = Base {
            id,
            runtime: here.clone(),
            start: Instant::now(),
            tick: self.latest,
        };
        match known {
            // Without a new base, time would stand still here until it has caught up.
            Some(place) => self.runtimes[place] = base,
            None => {
                if self.runtimes.len() == RUNTIMES {
                    self.forget_one();
                }
                self.runtimes.push(base);
            }
        }
    }

    /// Reads the clocks of all runtimes for a thread outside of them, each as a task of that runtime would.
    fn read_outside(&mut self) {
        for place in 0..self.runtimes.len() {
            let runtime = self.runtimes[place].runtime.clone();
            let _inside = runtime.enter();
            self.read(&runtime);
        }
    }

    /// Reads the clocks of all runtimes. That of a runtime that has ended can be read, too.
    fn read_all(&mut self) {
        for base in &mut self.runtimes {
            let _inside = base.runtime.enter();
            let now = Instant::now();
            (base.start, base.tick) = (now, base.tick_at(now));
            self.latest = self.latest.max(base.tick);
        }
    }

    /// Forgets the runtime that is the furthest behind, after all clocks were read. Its clock is paused, or all clocks show the
    /// same. If it is used again, it continues from the latest tick.
    fn forget_one(&mut self) {
        let bases = self.runtimes.iter().enumerate();
        if let Some((place, _)) = bases.min_by_key(|(_, base)| base.tick) {
            self.runtimes.remove(place);
        }
    }
}

impl Base {
    /// The tick when the clock of this runtime shows `now`.
    fn tick_at(&self, now: Instant) -> Tick {
        self.tick.after(now.saturating_duration_since(self.start))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use tokio::time::{advance, timeout};

    use super::super::{Clock, Tick};
    use super::RUNTIMES;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);
    /// For how long nobody reads a clock that runs.
    const MOMENT: Duration = Duration::from_millis(20);

    fn runtime(is_paused: bool) -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder
            .enable_time()
            .start_paused(is_paused)
            .build()
            .unwrap()
    }

    fn paused() -> Runtime {
        runtime(true)
    }

    fn running() -> Runtime {
        runtime(false)
    }

    /// The tick that a task of the runtime reads.
    fn read_in(runtime: &Runtime, clock: &Clock) -> Tick {
        runtime.block_on(async { clock.now() })
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time_also_from_a_plain_thread() {
        let clock = Clock::tokio();
        let start = clock.now();
        advance(11 * SECOND).await;
        let there = clock.clone();
        let seen = thread::spawn(move || there.now()).join().unwrap();
        assert_eq!(seen.since(start), 11 * SECOND);
        assert_eq!(clock.now().since(start), 11 * SECOND);
    }

    #[test]
    fn tokio_clock_never_goes_back_when_a_paused_runtime_has_gone() {
        let clock = Clock::tokio();
        paused().block_on(async {
            clock.now();
            advance(HOUR).await;
            assert_eq!(clock.now().since(Tick::default()), HOUR);
        });
        paused().block_on(async {
            clock.now();
            advance(HOUR).await;
            assert_eq!(clock.now().since(Tick::default()), 2 * HOUR);
        });
    }

    #[test]
    fn time_goes_on_in_a_runtime_after_another_one_was_advanced() {
        let clock = Clock::tokio();
        let [first, second] = [paused(), paused()];
        read_in(&first, &clock);
        second.block_on(async {
            clock.now();
            advance(HOUR).await;
            clock.now();
        });
        first.block_on(async {
            let start = clock.now();
            assert_eq!(start.since(Tick::default()), HOUR);
            advance(SECOND).await;
            assert_eq!(clock.now().since(start), SECOND);
            let woken = clock.sleep_until(clock.now().after(SECOND));
            assert!(timeout(2 * SECOND, woken).await.is_ok());
        });
    }

    #[test]
    fn two_runtimes_in_turn_do_not_drive_the_clock() {
        let clock = Clock::tokio();
        let [paused, running] = [paused(), running()];
        thread::sleep(MOMENT);
        let start = clock.now();
        for _ in 0..100 {
            read_in(&paused, &clock);
            read_in(&running, &clock);
        }
        let passed = clock.now().since(start);
        assert!(passed < SECOND, "{passed:?} in no time");
    }

    #[test]
    fn new_runtime_continues_from_now_though_nobody_has_read_the_clock_for_long() {
        let clock = Clock::tokio();
        let [first, second, advanced] = [running(), running(), paused()];
        let start = read_in(&first, &clock);
        thread::sleep(MOMENT);
        let passed = read_in(&second, &clock).since(start);
        assert!(passed >= MOMENT, "{passed:?}");
        advanced.block_on(async {
            clock.now();
            advance(HOUR).await;
        });
        let passed = read_in(&paused(), &clock).since(start);
        assert!(passed >= HOUR, "{passed:?}");
    }

    #[test]
    fn runtime_that_is_behind_an_advanced_one_continues_from_now() {
        let clock = Clock::tokio();
        let [first, second, advanced] = [running(), running(), paused()];
        read_in(&first, &clock);
        advanced.block_on(async {
            clock.now();
            advance(HOUR).await;
            clock.now();
        });
        let start = read_in(&second, &clock);
        thread::sleep(MOMENT);
        let passed = read_in(&first, &clock).since(start);
        assert!(passed >= MOMENT, "{passed:?}");
    }

    #[test]
    fn time_goes_on_on_a_plain_thread_also_if_the_newest_runtime_is_paused() {
        let clock = Clock::tokio();
        let [running, paused] = [running(), paused()];
        read_in(&running, &clock);
        read_in(&paused, &clock);
        let start = clock.now();
        thread::sleep(MOMENT);
        let passed = clock.now().since(start);
        assert!(passed >= MOMENT, "{passed:?}");
    }

    #[test]
    fn time_goes_on_on_a_plain_thread_in_a_runtime_that_is_behind_an_advanced_one() {
        let clock = Clock::tokio();
        let [advanced, newest] = [paused(), paused()];
        for (runtime, time) in [(&advanced, HOUR), (&newest, SECOND)] {
            runtime.block_on(async {
                clock.now();
                advance(time).await;
            });
        }
        let start = clock.now();
        assert_eq!(start.since(Tick::default()), HOUR + SECOND);
        advanced.block_on(advance(HOUR));
        let start = clock.now();
        newest.block_on(advance(SECOND));
        assert_eq!(clock.now().since(start), SECOND);
    }

    #[test]
    fn time_goes_on_for_more_runtimes_than_are_remembered() {
        let clock = Clock::tokio();
        let all: Vec<_> = (0..=RUNTIMES).map(|_| running()).collect();
        let start = read_in(&all[0], &clock);
        for _ in 0..2 {
            for runtime in &all {
                thread::sleep(MOMENT / 20);
                read_in(runtime, &clock);
            }
        }
        let passed = clock.now().since(start);
        assert!(passed >= MOMENT, "{passed:?}");
    }

    #[test]
    fn clock_that_runs_is_remembered_when_many_paused_ones_come() {
        let clock = Clock::tokio();
        let running = running();
        let start = read_in(&running, &clock);
        let all: Vec<_> = (0..=2 * RUNTIMES).map(|_| paused()).collect();
        for paused in &all {
            read_in(paused, &clock);
        }
        thread::sleep(MOMENT);
        let passed = read_in(&running, &clock).since(start);
        assert!(passed >= MOMENT, "{passed:?}");
    }
}

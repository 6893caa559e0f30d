//! How late the timers of a runtime fire: what a busy machine did to a test that runs on a real clock.
//!
//! A test on real servers cannot tell a slow library from a machine that has other work. A [`Pulse`] therefore sleeps for
//! a short time over and over on the test's own runtime, and records each [`Stall`]: a sleep that ended late. A bound on
//! real time is then relative to what the machine did: it [stretches](Pulse::stretch) by the worst stall, or where a
//! history is checked later by all stalls that touch it, see [`Stalls::deadline`].
//!
//! # Invariants
//! 1. Stalls never overlap, and they are in the order of their times.
//! 2. Without a stall a deadline is exact. No stall is shorter than [`SHORTEST_STALL`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};

/// How long the pulse sleeps at a time.
const TICK: Duration = Duration::from_millis(10);

/// A command takes its turn on the processor at least this often: in the client, in the server, and in the client again.
const TURNS: u32 = 3;

/// A sleep that ends later than this is a stall.
pub const SHORTEST_STALL: Duration = Duration::from_millis(10);

/// The machine's monotonic clock in nanoseconds. It is the same for all processes.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A time in which no timer fired, in nanoseconds of [`monotonic_nanos`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When a timer was due.
    pub from: u64,
    /// When it fired.
    pub to: u64,
}

/// The stalls of a runtime, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalls(Vec<Stall>);

impl Stalls {
    /// The last moment that is not late for something that takes `bound` after `from`: the bound stretches by the whole
    /// length of each stall that touches it.
    ///
    /// The whole length counts, also of a stall that began before `from`: it delayed others, such as the server, on whom
    /// the awaited event depends.
    #[must_use]
    pub fn deadline(&self, from: u64, bound: u64) -> u64 {
        let mut deadline = from.saturating_add(bound);
        let first = self.0.partition_point(|stall| stall.to <= from);
        for stall in &self.0[first..] {
            if stall.from > deadline {
                break;
            }
            deadline = deadline.saturating_add(stall.to - stall.from);
        }
        deadline
    }

    /// The parts of the stalls between two times.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Stall> {
        let first = self.0.partition_point(|stall| stall.to <= from);
        let touching = self.0[first..]
            .iter()
            .take_while(move |stall| stall.from < to);
        touching.map(move |stall| Stall {
            from: stall.from.max(from),
            to: stall.to.min(to),
        })
    }

    /// The length of the longest stall.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let lengths = self.0.iter().map(|stall| stall.to - stall.from);
        Duration::from_nanos(lengths.max().unwrap_or_default())
    }
}

impl FromIterator<Stall> for Stalls {
    fn from_iter<T: IntoIterator<Item = Stall>>(stalls: T) -> Self {
        let mut stalls: Vec<Stall> = stalls.into_iter().collect();
        stalls.sort_unstable_by_key(|stall| (stall.from, stall.to));
        stalls.dedup_by(|next, before| {
            let overlap = next.from <= before.to;
            if overlap {
                before.to = before.to.max(next.to);
            }
            overlap
        });
        Self(stalls)
    }
}

/// Measures how late timers fire, until it is dropped. Not for paused time, which is never late.
#[derive(Debug)]
pub struct Pulse {
    beats: Vec<Arc<Mutex<Beats>>>,
    tasks: Vec<AbortHandle>,
}

/// What one task measured.
#[derive(Debug)]
struct Beats {
    /// When it wakes up next.
    due: u64,
    stalls: Vec<Stall>,
}

impl Beats {
    /// Counts a sleep that has just ended, and begins the next one.
    fn beat(&mut self) -> Option<Stall> {
        let stall = self.present();
        self.due = stall.to + nanos(TICK);
        let is_stall = stall.to - stall.from > nanos(SHORTEST_STALL);
        self.stalls.extend(is_stall.then_some(stall));
        is_stall.then_some(stall)
    }

    /// The time since the last sleep was due.
    fn present(&self) -> Stall {
        let now = monotonic_nanos();
        Stall {
            from: self.due.min(now),
            to: now,
        }
    }
}

impl Pulse {
    /// Measures the runtime of the caller.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// As [`Pulse::start`]; each stall is also told to `observer` when it ends.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start_with(observer: impl Fn(Stall) + Send + Sync + 'static) -> Self {
        let observer = Arc::new(observer);
        let (mut all, mut tasks) = (Vec::new(), Vec::new());
        // One for each worker thread: the system may stop one of them alone.
        for _ in 0..Handle::current().metrics().num_workers() {
            let due = monotonic_nanos() + nanos(TICK);
            let stalls = Vec::new();
            let beats = Arc::new(Mutex::new(Beats { due, stalls }));
            all.push(Arc::clone(&beats));
            let observer = Arc::clone(&observer);
            let beat = async move {
                loop {
                    sleep(TICK).await;
                    let stall = beats.lock().beat();
                    if let Some(stall) = stall {
                        observer(stall);
                    }
                }
            };
            tasks.push(tokio::spawn(beat).abort_handle());
        }
        Self { beats: all, tasks }
    }

    /// All stalls so far, with one that has not ended yet.
    #[must_use]
    pub fn stalls(&self) -> Stalls {
        let mut stalls = Vec::new();
        for beats in &self.beats {
            let beats = beats.lock();
            stalls.extend(beats.stalls.iter().copied());
            let present = beats.present();
            let is_stall = present.to - present.from > nanos(SHORTEST_STALL);
            stalls.extend(is_stall.then_some(present));
        }
        stalls.into_iter().collect()
    }

    /// The longest stall since the start.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.stalls().longest()
    }

    /// A bound in time, stretched by what the machine did since the start.
    #[must_use]
    pub fn stretch(&self, bound: Duration) -> Duration {
        bound + TURNS * self.worst()
    }

    /// Awaits `future` for as long as the [stretched](Pulse::stretch) `bound` is at its end.
    ///
    /// # Errors
    /// If the future is not ready by then.
    ///
    /// # Cancel safety
    /// Dropping this drops `future`, and has no other effect.
    pub async fn timeout<F: Future>(
        &self,
        bound: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let start = Instant::now();
        let mut future = pin!(future);
        loop {
            let allowed = self.stretch(bound);
            match timeout_at(start + allowed, &mut future).await {
                Ok(output) => return Ok(output),
                // Stalls of the meantime count as well.
                Err(_) if self.stretch(bound) > allowed => {}
                elapsed => return elapsed,
            }
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn stalls(spans: &[(u64, u64)]) -> Stalls {
        let stalls = spans.iter().map(|(from, to)| Stall {
            from: *from,
            to: *to,
        });
        stalls.collect()
    }

    #[test]
    fn without_a_stall_a_deadline_is_exact() {
        assert_eq!(Stalls::default().deadline(100, 50), 150);
        assert_eq!(stalls(&[(10, 100), (151, 900)]).deadline(100, 50), 150);
    }

    #[test]
    fn a_deadline_stretches_by_each_stall_that_touches_it() {
        let stalls = stalls(&[(90, 110), (140, 145), (170, 200), (206, 300)]);
        // 20 of the first although only 10 lie inside, 5, and then 30 of one that the stretched bound reaches.
        assert_eq!(stalls.deadline(100, 50), 205);
        assert_eq!(stalls.deadline(100, 60), 309);
    }

    #[test]
    fn stalls_of_several_threads_that_overlap_count_once() {
        let merged = stalls(&[(50, 60), (10, 30), (20, 25), (30, 40)]);
        assert_eq!(merged, stalls(&[(10, 40), (50, 60)]));
        assert_eq!(merged.deadline(0, 20), 50 + 10);
        let inside: Vec<_> = merged.between(35, 55).collect();
        let expected = [Stall { from: 35, to: 40 }, Stall { from: 50, to: 55 }];
        assert_eq!(inside, expected);
    }

    #[tokio::test]
    async fn a_blocked_runtime_is_a_stall_of_that_length() {
        let pulse = Pulse::start();
        // The pulse sleeps.
        tokio::task::yield_now().await;
        let begin = monotonic_nanos();
        thread::sleep(Duration::from_millis(200));
        let end = monotonic_nanos();
        // The pulse records it.
        sleep(TICK * 2).await;
        let during = pulse.stalls();
        let during = during
            .between(begin, end)
            .map(|stall| stall.to - stall.from);
        let (seen, slept) = (during.sum::<u64>(), end - begin);
        assert!(seen + nanos(TICK * 2) > slept, "{seen} of {slept}");
        let late = begin + slept;
        assert!(pulse.stalls().deadline(begin, nanos(TICK * 2)) >= late);
    }

    #[tokio::test]
    async fn blocked_thread_is_a_stall_before_and_after_the_next_beat() {
        let pulse = Pulse::start();
        let stall = 20 * TICK;
        std::thread::sleep(stall + TICK);
        assert!(pulse.worst() >= stall);
        sleep(2 * TICK).await;
        assert!(pulse.worst() >= stall);
        assert!(pulse.stretch(stall) >= 4 * stall);
    }

    #[tokio::test]
    async fn bound_is_longer_by_the_stalls_of_the_meantime() {
        let pulse = Pulse::start();
        let stalled = async {
            std::thread::sleep(20 * TICK);
            sleep(TICK).await;
        };
        assert!(pulse.timeout(10 * TICK, stalled).await.is_ok());
        assert!(
            pulse
                .timeout(TICK, std::future::pending::<()>())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn timers_on_time_are_no_stall() {
        loop {
            let begin = monotonic_nanos();
            let pulse = Pulse::start();
            sleep(100 * TICK).await;
            let worst = pulse.worst();
            // A machine that stood still meanwhile may have been late for each of them.
            if monotonic_nanos() - begin < nanos(TICK) {
                assert_eq!(worst, Duration::ZERO);
                return;
            }
        }
    }
}

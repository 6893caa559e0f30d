//! How late this machine is: bounds in real time stretch by it.
//!
//! A test on real servers cannot tell a slow library from a machine that has other work. So a task on the test's own runtime
//! sleeps for short times, and measures how much later it wakes up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(10);

/// What is asked over a wire takes its turn on the processor at least this often: here, in the server, and here again.
const TURNS: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Beats {
    last: Instant,
    worst: Duration,
}

impl Beats {
    /// How late the worst of the past beats was, or how late the next one is already.
    fn worst(&self, now: Instant) -> Duration {
        let late = now.saturating_duration_since(self.last);
        self.worst.max(late.saturating_sub(BEAT))
    }
}

/// Measures from [`start`](Pulse::start) to its drop how late timers of this runtime fire.
#[derive(Debug)]
pub struct Pulse {
    beats: Arc<Mutex<Beats>>,
    task: JoinHandle<()>,
}

impl Pulse {
    /// Starts to measure.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    #[must_use]
    pub fn start() -> Self {
        let beats = Arc::new(Mutex::new(Beats {
            last: Instant::now(),
            worst: Duration::ZERO,
        }));
        let task = tokio::spawn({
            let beats = Arc::clone(&beats);
            async move {
                loop {
                    sleep(BEAT).await;
                    let (now, mut beats) = (Instant::now(), beats.lock());
                    beats.worst = beats.worst(now);
                    beats.last = now;
                }
            }
        });
        Self { beats, task }
    }

    /// The longest stall since the start: by how much the latest timer was late.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.beats.lock().worst(Instant::now())
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
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocked_thread_is_a_stall_before_and_after_the_next_beat() {
        let pulse = Pulse::start();
        let stall = 20 * BEAT;
        std::thread::sleep(stall + BEAT);
        assert!(pulse.worst() >= stall);
        sleep(2 * BEAT).await;
        assert!(pulse.worst() >= stall);
        assert!(pulse.stretch(stall) >= 4 * stall);
    }

    #[tokio::test]
    async fn bound_is_longer_by_the_stalls_of_the_meantime() {
        let pulse = Pulse::start();
        let stalled = async {
            std::thread::sleep(20 * BEAT);
            sleep(BEAT).await;
        };
        assert!(pulse.timeout(10 * BEAT, stalled).await.is_ok());
        assert!(
            pulse
                .timeout(BEAT, std::future::pending::<()>())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn timers_on_time_are_no_stall() {
        let pulse = Pulse::start();
        sleep(100 * BEAT).await;
        assert_eq!(pulse.worst(), Duration::ZERO);
    }
}

//! Points in time on a client's own clock, and sleeping until one of them.
//!
//! State machines take a [`Tick`] and never read a clock. A client has one [`Clock`], which it shares with its backend.

mod boot;
mod runtimes;
mod tick;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pin_project_lite::pin_project;

use self::boot::BootClock;
use self::boot::LONGEST_UNWATCHED;
#[cfg(test)]
pub(crate) use self::boot::tests::suspend;
use self::runtimes::TokioClock;
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
pub use self::tick::Tick;
pub(crate) use self::tick::{AtomicTick, nanos};
use crate::sync::Change;
#[cfg(any(test, feature = "redis"))]
use crate::sync::time::Instant;
use crate::sync::time::{Sleep, sleep};

/// The longest part of a sleep, a year: tokio's timers can hold about two years, so a longer sleep takes several steps.
const LONGEST_STEP: Duration = Duration::from_secs(365 * 24 * 3600);

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
    let before = Instant::now();
    let start = std::time::Instant::now();
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
    Boot(Arc<BootClock>),
    /// Tokio's clock, for the memory backend. Tests can pause it.
    Tokio(Arc<TokioClock>),
}

#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
impl Clock {
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn boot() -> Self {
        Self::Boot(Arc::default())
    }

    pub(crate) fn tokio() -> Self {
        Self::Tokio(Arc::default())
    }

    /// Returns the current time.
    pub fn now(&self) -> Tick {
        match self {
            Self::Boot(clock) => clock.now(),
            Self::Tokio(clock) => clock.now(),
        }
    }

    /// Completes at `tick` or a little later, without waking up in between if [`watch`](Clock::watch) runs. Needs a tokio
    /// runtime.
    pub fn sleep_until(&self, tick: Tick) -> SleepUntil<'_> {
        SleepUntil {
            clock: self,
            tick,
            step: None,
        }
    }

    /// Wakes the sleepers of the caller's runtime when the machine was suspended, until it is dropped. A client's task does
    /// this for all of them.
    pub(crate) async fn watch(&self) -> Infallible {
        match self {
            Self::Boot(clock) => clock.watch().await,
            // It stands still during a suspend, as the timers do.
            Self::Tokio(_) => std::future::pending().await,
        }
    }
}

/// The future of [`Clock::sleep_until`]. Written by hand, because most futures of the crate contain some of these, and
/// an `async fn` keeps its arguments twice.
#[must_use = "futures do nothing unless awaited"]
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
pub struct SleepUntil<'a> {
    clock: &'a Clock,
    tick: Tick,
    /// Boxed, because most sleeps have no end or are dropped before they are polled, and need no timer.
    step: Option<Pin<Box<Step<'a>>>>,
}

pin_project! {
    /// A part of a sleep, after which the clock is read again.
    struct Step<'a> {
        #[pin]
        timer: Sleep,
        #[pin]
        read_again: Option<Change<'a>>,
    }
}

impl<'a> Step<'a> {
    /// The next part of a sleep until `tick`; `None` if that has passed.
    fn towards(tick: Tick, clock: &'a Clock) -> Option<Self> {
        let left = || Some(tick.left(clock.now())).filter(|left| !left.is_zero());
        let (read_again, longest) = match clock {
            // Before the clock is read: a suspend after that ends the step.
            Clock::Boot(boot) if left()? > LONGEST_UNWATCHED => match boot.read_again() {
                None => (None, LONGEST_UNWATCHED),
                watched => (watched, LONGEST_STEP),
            },
            _ => (None, LONGEST_STEP),
        };
        Some(Self {
            timer: sleep(left()?.min(longest)),
            read_again,
        })
    }
}

impl Future for Step<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let read_again = this.read_again.as_pin_mut();
        if read_again.is_some_and(|read_again| read_again.poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        this.timer.poll(cx)
    }
}

impl Future for SleepUntil<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.tick == Tick::NEVER {
            // Most acquisitions have no deadline.
            return Poll::Pending;
        }
        loop {
            if let Some(step) = &mut self.step {
                ready!(step.as_mut().poll(cx));
            }
            let Some(step) = Step::towards(self.tick, self.clock) else {
                return Poll::Ready(());
            };
            self.step = Some(Box::pin(step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn ticks_saturate() {
        assert_eq!(Tick::NEVER.after(Duration::from_secs(1)), Tick::NEVER);
        assert_eq!(Tick::from_millis(1).since(Tick::NEVER), Duration::ZERO);
    }
}

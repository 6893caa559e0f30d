//! Timers.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::time::{Instant, Sleep, sleep};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{Instant, Sleep, next, pass_to_next, sleep, start};

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ops::Add;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    thread_local! {
        /// A run is explored on one thread.
        static CLOCK: RefCell<Clock> = RefCell::default();
    }

    /// A clock that moves when a scenario says so.
    #[derive(Debug, Default)]
    struct Clock {
        now: Instant,
        timers: u64,
        sleepers: BTreeMap<(Instant, u64), Waker>,
    }

    // Public methods answer it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            CLOCK.with_borrow(|clock| clock.now)
        }

        pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }

        pub(crate) fn elapsed(self) -> Duration {
            Self::now().saturating_duration_since(self)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0.saturating_add(time))
        }
    }

    #[must_use = "futures do nothing unless awaited"]
    #[derive(Debug)]
    pub(crate) struct Sleep {
        until: Instant,
        number: u64,
    }

    pub(crate) fn sleep(time: Duration) -> Sleep {
        CLOCK.with_borrow_mut(|clock| {
            clock.timers += 1;
            Sleep {
                until: Instant(clock.now.0.saturating_add(time)),
                number: clock.timers,
            }
        })
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            CLOCK.with_borrow_mut(|clock| {
                if clock.now >= self.until {
                    return Poll::Ready(());
                }
                let sleeper = (self.until, self.number);
                clock.sleepers.insert(sleeper, cx.waker().clone());
                Poll::Pending
            })
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            CLOCK.with_borrow_mut(|clock| clock.sleepers.remove(&(self.until, self.number)));
        }
    }

    /// To be called at the start of each run.
    pub(crate) fn start() {
        drop(CLOCK.take());
    }

    /// When the next timer fires, in time since the start.
    pub(crate) fn next() -> Option<Duration> {
        CLOCK.with_borrow(|clock| clock.sleepers.keys().next().map(|(at, _)| at.0))
    }

    /// Moves the clock on to the next timer, and wakes those whose sleep has ended.
    pub(crate) fn pass_to_next() {
        let woken = CLOCK.with_borrow_mut(|clock| {
            let next = clock.sleepers.keys().next().map(|(at, _)| *at);
            clock.now = next.map_or(clock.now, |next| clock.now.max(next));
            let later = clock.sleepers.split_off(&(clock.now, u64::MAX));
            std::mem::replace(&mut clock.sleepers, later)
        });
        for waker in woken.into_values() {
            waker.wake();
        }
    }
}

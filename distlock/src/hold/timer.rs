//! A sleep that is polled in one runtime after another, or in none.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;

use crate::clock::{Clock, SleepUntil, Tick};
use crate::sync::runtime::{self, Handle};

/// Sleeps until a time by the timers of the runtime that polls it. Outside of a runtime, where no timer works, it does not
/// complete, and wakes nobody: who polls it there is woken by what else it waits for.
pub(super) struct Timer<'a> {
    clock: &'a Clock,
    until: Tick,
    sleep: Option<(runtime::Id, SleepUntil<'a>)>,
}

impl<'a> Timer<'a> {
    pub(super) fn new(clock: &'a Clock, until: Tick) -> Self {
        Self {
            clock,
            until,
            sleep: None,
        }
    }
}

impl Future for Timer<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(runtime) = Handle::try_current() else {
            return Poll::Pending;
        };
        let runtime = runtime.id();
        let Self {
            clock,
            until,
            sleep,
        } = &mut *self;
        // The timer of a runtime that has ended panics.
        sleep.take_if(|(of, _)| *of != runtime);
        let (_, sleep) = sleep.get_or_insert_with(|| (runtime, clock.sleep_until(*until)));
        sleep.poll_unpin(cx)
    }
}

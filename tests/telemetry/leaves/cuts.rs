//! What is done to a future: where it is dropped, left alone, or meets a panic.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::calls::{self, Plan};
use crate::play::{Backend, Ground, SOON};

/// A future under test.
pub(crate) type Subject = Pin<Box<dyn Future<Output = ()>>>;

/// More polls than a future needs, and more calls than it makes.
pub(crate) const PLACES: u32 = 1000;

pub(crate) const SORTS: [&str; 7] = [
    "dropped",
    "left alone and dropped",
    "left alone and polled on",
    "left alone for long and dropped",
    "left alone for long and polled on",
    "a panic of marked code",
    "a panic of a waker or a function",
];

/// How the n-th poll or call of a future differs.
#[derive(Debug)]
pub(crate) enum Cut {
    /// Dropped after so many polls.
    Drop(u32),
    /// Not polled for a while after so many polls; then it goes on, or is dropped.
    Leave {
        polls: u32,
        time: Duration,
        goes_on: bool,
    },
    /// So many calls of code that the crate marks as foreign succeed, and the next one panics.
    Marked(u32),
    /// The same for wakers and the functions of the row.
    Own(u32),
}

impl Cut {
    pub(crate) fn at(sort: usize, place: u32, ground: &Ground) -> Self {
        // Longer than a waiter may be in the way of others, and longer than a lease. Neither costs anything in paused time.
        let (time, long) = match ground.backend() {
            Backend::Memory => (Duration::from_secs(3), Duration::from_secs(70)),
            Backend::Redis => (Duration::from_millis(100), Duration::from_secs(3)),
        };
        let leave = |time, goes_on| Self::Leave {
            polls: place,
            time,
            goes_on,
        };
        match sort {
            0 => Self::Drop(place),
            1 => leave(time, false),
            2 => leave(time, true),
            3 => leave(long, false),
            4 => leave(long, true),
            5 => Self::Marked(place),
            _ => Self::Own(place),
        }
    }

    /// Plans the panic, if it is one.
    pub(crate) fn plan(&self) -> Option<Plan> {
        match self {
            Self::Drop(_) | Self::Leave { .. } => None,
            Self::Marked(succeeding) => Some(Plan::marked(*succeeding)),
            Self::Own(succeeding) => Some(Plan::own(*succeeding)),
        }
    }

    /// Polls a future as far as it is to go, and drops it. Returns whether it was cut before its end.
    pub(crate) async fn apply(&self, mut subject: Subject, what: &str) -> bool {
        let polls = match self {
            Self::Drop(polls) | Self::Leave { polls, .. } => *polls,
            Self::Marked(_) | Self::Own(_) => u32::MAX,
        };
        let hangs = |_| panic!("{what}: hangs");
        let ended = timeout(SOON, polled(&mut subject, polls)).await;
        let ended = ended.unwrap_or_else(hangs);
        if let (false, Self::Leave { time, goes_on, .. }) = (ended, self) {
            sleep(*time).await;
            if *goes_on {
                let ended = timeout(SOON, polled(&mut subject, u32::MAX)).await;
                ended.unwrap_or_else(hangs);
            }
        }
        let _panic = catch_unwind(AssertUnwindSafe(|| calls::inside(|| drop(subject))));
        !ended
    }
}

/// Polls so often at most, each time when it is woken. Returns whether the future has ended, by its output or a panic.
async fn polled(subject: &mut Subject, polls: u32) -> bool {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        let waker = calls::waker(cx.waker());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            calls::inside(|| subject.as_mut().poll(&mut Context::from_waker(&waker)))
        }));
        match polled {
            Err(_) | Ok(Poll::Ready(())) => Poll::Ready(true),
            Ok(Poll::Pending) if left == 0 => Poll::Ready(false),
            Ok(Poll::Pending) => Poll::Pending,
        }
    })
    .await
}

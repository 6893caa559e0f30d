//! Waiting for a fact with a deadline, in place of a sleep.
//!
//! A condition is looked at often in the beginning and less often later. One that never comes true
//! fails the test with what was waited for, where, and what was seen last; so does one whose look
//! hangs, such as a question to a stopped server.

use std::fmt::{Debug, Display};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

/// Within this time a waiter is granted that is woken by a message. A waiter that hears none asks again by itself, 4 s after its last
/// attempt at the earliest, so a longer bound would not show a lost message.
pub const BY_MESSAGE: Duration = Duration::from_secs(3);

/// Pause after the first look. Most facts are true within a round trip.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Longest pause: short beside any lease in a test, long enough to leave the CPU to the code under test.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What one look at a condition may give.
///
/// `bool` for a plain condition, `Option` for a value that may not be there yet, `Result` where
/// the error is what was seen instead.
pub trait Seen {
    /// What a successful look yields.
    type Value;

    /// The value, or a text of what was seen instead.
    ///
    /// # Errors
    /// What was seen, if that is not yet what was waited for.
    fn judge(self) -> Result<Self::Value, String>;
}

impl Seen for bool {
    type Value = ();

    fn judge(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

impl<T> Seen for Option<T> {
    type Value = T;

    fn judge(self) -> Result<T, String> {
        self.ok_or_else(|| "none".to_owned())
    }
}

impl<T, E: Debug> Seen for Result<T, E> {
    type Value = T;

    fn judge(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// Looks until `probe` sees what it waits for, and gives it back.
///
/// The future can be sent to another thread if `probe` and its future can.
///
/// # Panics
/// If that has not happened `within` the time. The message tells `what` was waited for, by which
/// line, and what the last look saw.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use distlock_tests::eventually;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut looks = 0;
/// let third = eventually(Duration::from_secs(1), "a third look", || {
///     looks += 1;
///     async move { (looks == 3).then_some(looks) }
/// });
/// assert_eq!(third.await, 3);
/// # });
/// ```
#[track_caller]
pub fn eventually<F>(
    within: Duration,
    what: impl Display,
    mut probe: impl FnMut() -> F,
) -> impl Future<Output = <F::Output as Seen>::Value>
where
    F: Future<Output: Seen>,
{
    let caller = Location::caller();
    async move {
        let mut patience = Patience::new(within);
        let mut last = "nothing, the first look never ended".to_owned();
        while let Some(seen) = patience.look(probe()).await {
            match seen.judge() {
                Ok(value) => return value,
                Err(seen) => last = seen,
            }
            if !patience.pause().await {
                break;
            }
        }
        panic!("{what}: not within {within:?}, last seen: {last} (waited for at {caller})")
    }
}

/// Looks until `probe` yields `expected`.
///
/// # Panics
/// As [`eventually`], with the last value that differed.
#[track_caller]
pub fn eventually_eq<T: PartialEq + Debug, F: Future<Output = T>>(
    within: Duration,
    what: impl Display,
    expected: T,
    mut probe: impl FnMut() -> F,
) -> impl Future<Output = ()> {
    let what = format!("{what} to be {expected:?}");
    let expected = Arc::new(expected);
    eventually(within, what, move || {
        let (look, expected) = (probe(), Arc::clone(&expected));
        async move {
            let seen = look.await;
            if seen == *expected { Ok(()) } else { Err(seen) }
        }
    })
}

/// A deadline and the pauses up to it: the loop of [`eventually`], for callers whose look borrows
/// what they have.
pub(crate) struct Patience {
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new(within: Duration) -> Self {
        Self {
            deadline: Instant::now() + within,
            pause: FIRST_PAUSE,
        }
    }

    /// One look, or `None` if it has not ended by the deadline.
    pub(crate) async fn look<T>(&self, look: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.deadline, look).await.ok()
    }

    /// Sleeps until the next look; false if there is no time for one.
    pub(crate) async fn pause(&mut self) -> bool {
        let now = Instant::now();
        // Not past the deadline, so that the last look is at the deadline and not before it.
        sleep_until(self.deadline.min(now + self.pause)).await;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        now < self.deadline
    }
}

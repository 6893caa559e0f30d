//! Foreign code of this test, one of whose calls panics: the wakers with which futures are polled, and the functions that rows set.
//!
//! [`ForeignPanic`] panics where the crate says that it calls foreign code. A waker is also cloned and dropped, and the library
//! that the crate is built on does that too, so both are counted here.

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::task::Waker;
use std::thread;

use cooked_waker::{IntoWaker as _, Wake, WakeRef};
use distlock::test_util::{ForeignPanic, is_waking};

/// A part of what each planned panic says.
const PLANNED: &str = "as the test has told it to";

thread_local! {
    /// How many more calls succeed before one panics.
    static SUCCEEDING: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether the future under test runs now.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Panics of this thread that nobody has planned.
    static UNPLANNED: Cell<u32> = const { Cell::new(0) };
}

/// Planned panics say nothing, and others are counted.
pub(crate) fn quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<String>();
            if !text.is_some_and(|text| text.contains(PLANNED)) {
                UNPLANNED.set(UNPLANNED.get() + 1);
                hook(info);
            }
        }));
    });
}

/// How many panics of this thread nobody has planned, since this was asked.
pub(crate) fn unplanned() -> u32 {
    UNPLANNED.replace(0)
}

/// A planned panic.
pub(crate) enum Plan {
    /// At a call that the crate marks.
    Marked(ForeignPanic),
    /// At a call of this test's own code.
    Own(OwnPlan),
}

pub(crate) struct OwnPlan;

impl Plan {
    pub(crate) fn marked(succeeding: u32) -> Self {
        Self::Marked(ForeignPanic::after(succeeding))
    }

    pub(crate) fn own(succeeding: u32) -> Self {
        SUCCEEDING.set(Some(succeeding));
        Self::Own(OwnPlan)
    }

    pub(crate) fn has_come(&self) -> bool {
        match self {
            Self::Marked(panic) => panic.has_come(),
            Self::Own(_) => SUCCEEDING.get().is_none(),
        }
    }
}

impl Drop for OwnPlan {
    fn drop(&mut self) {
        SUCCEEDING.set(None);
    }
}

/// A function of a user runs.
#[track_caller]
pub(crate) fn call(what: &str) {
    // A second panic of a thread ends the process.
    if thread::panicking() {
        return;
    }
    if let Some(succeeding) = SUCCEEDING.get() {
        let left = succeeding.checked_sub(1);
        SUCCEEDING.set(left);
        assert!(left.is_some(), "{what} panics, {PLANNED}");
    }
}

/// Runs the future under test.
pub(crate) fn inside<T>(run: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_INSIDE.set(false);
        }
    }
    IS_INSIDE.set(true);
    let _leave = Leave;
    run()
}

/// A waker whose clone, drop and wake are calls. A panic of the runtime's own timers would end the runtime, so only those of the
/// future's code and of the crate's wake-ups count.
struct Counted(Waker);

impl Counted {
    fn call(what: &str) {
        if IS_INSIDE.get() || is_waking() {
            call(what);
        }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::call("the clone of a waker");
        Self(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        Self::call("the drop of a waker");
    }
}

impl WakeRef for Counted {
    fn wake_by_ref(&self) {
        self.0.wake_by_ref();
        Self::call("a waker");
    }
}

impl Wake for Counted {}

/// A waker that wakes the same task, and whose calls count.
pub(crate) fn waker(of: &Waker) -> Waker {
    Box::new(Counted(of.clone())).into_waker()
}

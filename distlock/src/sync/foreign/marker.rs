//! Finds foreign code that runs under a mutex of this crate. For the tests alone.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;

use crate::sync::mutexes_held;

/// The first breach of the rule in this process.
static BREACH: OnceLock<String> = OnceLock::new();

thread_local! {
    /// Whether a test breaks the rule on purpose.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
    /// How many calls of wakers this thread is in.
    static WAKING: Cell<u32> = const { Cell::new(0) };
    /// How many more calls of this thread succeed before one panics; `None` if none does.
    static SUCCEEDING: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Has one call of foreign code on this thread panic, as code of a user may, until it is dropped.
#[derive(Debug)]
pub struct ForeignPanic(());

impl ForeignPanic {
    /// The first `succeeding` calls do not panic. The next one does, in place of the log, the metrics or the user's function, or
    /// behind the waker. Those after it do not.
    #[must_use]
    pub fn after(succeeding: u32) -> Self {
        SUCCEEDING.set(Some(succeeding));
        Self(())
    }

    /// Whether the call has panicked.
    #[must_use]
    pub fn has_come(&self) -> bool {
        SUCCEEDING.get().is_none()
    }
}

impl Drop for ForeignPanic {
    fn drop(&mut self) {
        SUCCEEDING.set(None);
    }
}

/// Whether this crate calls a waker on this thread now.
#[must_use]
pub fn is_waking() -> bool {
    WAKING.try_with(Cell::get).unwrap_or_default() > 0
}

/// Records that a waker is called, until it is dropped.
pub(super) struct Waking(());

impl Waking {
    pub(super) fn begin() -> Self {
        // Fails only while the thread ends. What it wakes then is not checked.
        let _ending = WAKING.try_with(|waking| waking.set(waking.get() + 1));
        Self(())
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        let _ending = WAKING.try_with(|waking| waking.set(waking.get().saturating_sub(1)));
    }
}

pub(super) fn panic_if_planned(what: &str) {
    let planned = SUCCEEDING.try_with(Cell::get).ok().flatten();
    if let Some(succeeding) = planned {
        let left = succeeding.checked_sub(1);
        SUCCEEDING.set(left);
        assert!(left.is_some(), "{what} panics, as the test has told it to");
    }
}

/// Panics if the thread has locked a mutex of this crate, or if a test has [planned](ForeignPanic) it.
pub(super) fn check(what: &'static str) {
    check_mutexes(what);
    panic_if_planned(what);
}

/// Panics if the thread has locked a mutex of this crate.
///
/// The panic may end a task that nobody looks at, so each later call panics as well, on any thread.
pub(super) fn check_mutexes(what: &'static str) {
    let held = mutexes_held();
    if held > 0 {
        let breach = format!("{what} is called while the thread has locked {held} mutexes");
        if IS_EXPECTED.get() {
            panic!("{breach}");
        }
        let _earlier = BREACH.set(format!("{breach}\n{}", Backtrace::force_capture()));
    }
    // A second panic would abort the process. The next call panics instead.
    if let Some(breach) = BREACH.get()
        && !thread::panicking()
        && !IS_EXPECTED.get()
    {
        panic!("foreign code ran under a mutex: {breach}");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::sync::{Mutex, RwLock};

    /// The panic of foreign code that is called while the thread has locked a mutex.
    fn panic_under(lock: impl FnOnce(&dyn Fn()), call: impl Fn()) -> String {
        IS_EXPECTED.set(true);
        let panic = catch_unwind(AssertUnwindSafe(|| lock(&call)));
        IS_EXPECTED.set(false);
        *panic.unwrap_err().downcast::<String>().unwrap()
    }

    fn under_a_mutex(call: &dyn Fn()) {
        let mutex = Mutex::new(());
        let _locked = mutex.lock();
        call();
    }

    fn check_sort(what: &str, call: impl Fn()) {
        call();
        let panic = panic_under(under_a_mutex, &call);
        assert_eq!(
            panic,
            format!("{what} is called while the thread has locked 1 mutexes")
        );
        // Unlocked by the panic.
        call();
    }

    #[test]
    fn each_sort_of_foreign_call_panics_under_a_mutex_and_only_there() {
        check_sort("a waker", || super::super::wake(|| ()));
        check_sort("a subscriber of the log", || super::super::tell(|| ()));
        #[cfg(feature = "metrics")]
        check_sort("a recorder of metrics", || super::super::count(|| ()));
        check_sort("a function of the user", || super::super::call_user(|| ()));
    }

    #[test]
    fn read_and_write_locks_count_as_mutexes_do() {
        let lock = RwLock::new(());
        let call = || super::super::wake(|| ());
        let read = panic_under(
            |call| {
                let _read = lock.read();
                call();
            },
            call,
        );
        let write = panic_under(
            |call| {
                let _write = lock.write();
                under_a_mutex(call);
            },
            call,
        );
        assert!(read.ends_with("locked 1 mutexes") && write.ends_with("locked 2 mutexes"));
        call();
    }
}

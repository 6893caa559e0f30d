//! Counts what no run may cause, with or without faults: unplanned panics and errors in the log.

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

static COUNT_IN_PROCESS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNT_ON_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Starts to count, in the whole process. A panic by `resume_unwind` is planned and does not count.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            COUNT_IN_PROCESS.fetch_add(1, Ordering::Relaxed);
            let _ending = COUNT_ON_THREAD.try_with(|errors| errors.set(errors.get() + 1));
            before(info);
        }));
        // A program that has already a subscriber counts panics only.
        let _other = subscriber::set_global_default(Errors);
    });
}

/// How many panics and logged errors there were.
#[must_use]
pub(super) fn count() -> u64 {
    COUNT_IN_PROCESS.load(Ordering::Relaxed)
}

/// How many panics there were on this thread. A run in memory has a single thread.
#[must_use]
pub(super) fn panics_on_this_thread() -> u64 {
    COUNT_ON_THREAD.with(Cell::get)
}

/// Counts events of the level ERROR.
struct Errors;

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn event(&self, event: &Event<'_>) {
        COUNT_IN_PROCESS.fetch_add(1, Ordering::Relaxed);
        eprintln!("an error was logged: {event:?}");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

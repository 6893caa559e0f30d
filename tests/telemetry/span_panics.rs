//! A subscriber panics when it is told of a span or of an event: once, or each time from then on. No hold is left without an owner, and
//! the process goes on.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::time::Duration;

use distlock::{Client, Error, MemoryServer};
use distlock_tests::{AnyLock, LockKind};
use tokio::task::{JoinSet, yield_now};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::after_panics::{MOST, expect_nothing_is_left, play_all};
use crate::spans::collect;

const WAIT: Duration = Duration::from_secs(3);

/// Which calls of the subscriber panic on this thread.
#[derive(Clone, Copy)]
struct Plan {
    /// How many more calls succeed before one panics; `None` if none does.
    succeeding: Option<u32>,
    /// Whether all later calls panic as well.
    is_repeated: bool,
    has_come: bool,
}

const NO_PANIC: Plan = Plan {
    succeeding: None,
    is_repeated: false,
    has_come: false,
};

thread_local! {
    static PLAN: Cell<Plan> = const { Cell::new(NO_PANIC) };
}

/// One call of the subscriber.
fn called() {
    let mut plan = PLAN.get();
    let Some(succeeding) = plan.succeeding else {
        return;
    };
    let panics = succeeding == 0;
    plan.succeeding = match succeeding.checked_sub(1) {
        None if plan.is_repeated => Some(0),
        left => left,
    };
    plan.has_come |= panics;
    PLAN.set(plan);
    if panics {
        // Without the panic hook, which would print each of them.
        resume_unwind(Box::new("the subscriber"));
    }
}

struct Panics;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panics {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        called();
    }

    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        called();
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        called();
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        called();
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        called();
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        called();
    }
}

/// Two acquisitions behind each other, and a single attempt that is refused. Each is a task, so that a panic ends that task alone.
async fn play(lock: &AnyLock) {
    let mut tasks = JoinSet::<Result<(), Error>>::new();
    for wait in [WAIT, WAIT, Duration::ZERO] {
        let lock = lock.clone();
        tasks.spawn(async move {
            let guard = lock.acquire(Some(wait), None).await?;
            for _ in 0..20 {
                yield_now().await;
            }
            guard.release().await
        });
        for _ in 0..5 {
            yield_now().await;
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Plays once. Returns whether a call has panicked.
async fn play_with_a_panic(kind: LockKind, succeeding: u32, is_repeated: bool) -> bool {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (client(), client());
    PLAN.set(Plan {
        succeeding: Some(succeeding),
        is_repeated,
        has_come: false,
    });
    play(&kind.lock(&client, "span")).await;
    let Plan { has_come, .. } = PLAN.replace(NO_PANIC);
    let what = format!("{kind:?}, call {succeeding}, again and again: {is_repeated}");
    expect_nothing_is_left([&client, &other], kind, "span", &what).await;
    has_come
}

#[test]
fn keys_are_free_after_any_call_of_a_subscriber_of_spans_has_panicked() {
    // As the subscriber of all other threads: with a single one, tracing asks that of the thread that reaches a call site first.
    collect();
    let subscriber = tracing_subscriber::registry().with(Panics);
    let _subscriber = tracing::subscriber::set_default(subscriber);
    for kind in [
        LockKind::Reentrant,
        LockKind::Fair,
        LockKind::Write,
        LockKind::Multi,
        LockKind::Red,
    ] {
        for is_repeated in [false, true] {
            let play = |succeeding| play_with_a_panic(kind, succeeding, is_repeated);
            play_all(0..MOST, 10, play, true);
        }
    }
}

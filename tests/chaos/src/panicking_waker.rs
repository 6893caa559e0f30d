//! A waker that panics once, after it has woken its task, as the waker of an executor may. The panic reaches the code that has
//! called it.
//!
//! Only where this crate wakes: a panic in tokio's own timers would end the runtime.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use distlock::test_util::is_waking;
use futures_util::FutureExt;
use futures_util::future::poll_fn;

/// The payload of such a panic.
struct WakerPanic;

struct PanickingWaker {
    inner: Waker,
    has_panicked: Arc<AtomicBool>,
}

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inner.wake_by_ref();
        // A second panic of a thread ends the process.
        if is_waking() && !thread::panicking() && !self.has_panicked.swap(true, Ordering::Relaxed) {
            // Without the panic hook, which counts unplanned panics.
            resume_unwind(Box::new(WakerPanic));
        }
    }
}

/// Polls a future with such a waker.
pub(super) async fn with_panicking_waker<F: Future>(future: F) -> F::Output {
    let (mut future, has_panicked) = (pin!(future), Arc::new(AtomicBool::new(false)));
    poll_fn(|cx| {
        let waker = Waker::from(Arc::new(PanickingWaker {
            inner: cx.waker().clone(),
            has_panicked: Arc::clone(&has_panicked),
        }));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// Runs code that may wake others. `None` if a waker of one of them has panicked.
pub(super) async fn may_meet_a_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(output) => Some(output),
        Err(panic) if panic.is::<WakerPanic>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

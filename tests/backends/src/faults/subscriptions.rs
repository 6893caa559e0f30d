//! Subscriptions between a client and its backend: some stand late, and all of them may fall and stand again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::test_util::{Clock, Signal, Subscription};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// All subscriptions that were made through one set of faults.
#[derive(Default)]
pub(super) struct Subscriptions {
    muted: Arc<AtomicBool>,
    delay: Mutex<Duration>,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Heard>>>,
}

/// One subscription: what the backend says of it, and what the waiter hears.
struct Heard {
    muted: Arc<AtomicBool>,
    confirmed: AtomicBool,
    inner: watch::Receiver<Signal>,
    outer: watch::Sender<Signal>,
}

impl Heard {
    fn is_active(&self) -> bool {
        let (muted, confirmed) = (&self.muted, &self.confirmed);
        !muted.load(Ordering::Acquire)
            && confirmed.load(Ordering::Acquire)
            && self.inner.borrow().active
    }

    /// Tells the waiter what has changed; `message`: one has come. Answers whether the subscription fell.
    fn tell(&self, message: bool) -> bool {
        let mut fell = false;
        self.outer.send_if_modified(|signal| {
            let live = self.is_active();
            fell = signal.active && !live;
            let news = live != signal.active || (live && message);
            signal.active = live;
            signal.version += u64::from(news);
            news
        });
        fell
    }
}

/// Ends a subscription with the waiter's share in it.
struct Share {
    all: Arc<Subscriptions>,
    number: u64,
    listens: AbortHandle,
    _inner: Subscription,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.listens.abort();
        self.all.all.lock().remove(&self.number);
    }
}

impl Subscriptions {
    /// Whether they hear from now on, and how many subscriptions fell by that.
    pub(super) fn set_muted(&self, muted: bool) -> usize {
        self.muted.store(muted, Ordering::Release);
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        all.iter().filter(|heard| heard.tell(false)).count()
    }

    pub(super) fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Acquire)
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    pub(super) fn delay(&self) -> Duration {
        *self.delay.lock()
    }

    /// Puts an heard between a subscription and its waiter.
    pub(super) fn around(self: &Arc<Self>, inner: Subscription, clock: Clock) -> Subscription {
        let delay = self.delay();
        let heard = Arc::new(Heard {
            muted: Arc::clone(&self.muted),
            confirmed: AtomicBool::new(delay.is_zero()),
            inner: inner.signal(),
            outer: watch::Sender::new(Signal::default()),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all.lock().insert(number, Arc::clone(&heard));
        let _new = heard.tell(false);
        let signal = heard.outer.subscribe();
        let listens = tokio::spawn(listen(heard, inner.signal(), clock, delay)).abort_handle();
        Subscription::new(
            signal,
            Share {
                all: Arc::clone(self),
                number,
                listens,
                _inner: inner,
            },
        )
    }
}

async fn listen(
    heard: Arc<Heard>,
    mut inner: watch::Receiver<Signal>,
    clock: Clock,
    delay: Duration,
) {
    if !delay.is_zero() {
        clock.sleep_until(clock.now().after(delay)).await;
        inner.mark_unchanged();
        heard.confirmed.store(true, Ordering::Release);
        heard.tell(false);
    }
    while inner.changed().await.is_ok() {
        heard.tell(true);
    }
}

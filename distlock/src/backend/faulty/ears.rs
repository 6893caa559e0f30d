//! Subscriptions between a client and its backend: some stand late, and all of them may fall and stand again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::backend::{Signal, Subscription};
use crate::clock::Clock;

/// All subscriptions that were made through one set of faults.
#[derive(Default)]
pub(super) struct Ears {
    deaf: Arc<AtomicBool>,
    delay: Mutex<Duration>,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Ear>>>,
}

/// One subscription: what the backend says of it, and what the waiter hears.
struct Ear {
    deaf: Arc<AtomicBool>,
    confirmed: AtomicBool,
    inner: watch::Receiver<Signal>,
    outer: watch::Sender<Signal>,
}

impl Ear {
    fn stands(&self) -> bool {
        let (deaf, confirmed) = (&self.deaf, &self.confirmed);
        !deaf.load(Ordering::Acquire)
            && confirmed.load(Ordering::Acquire)
            && self.inner.borrow().live
    }

    /// Tells the waiter what has changed; `message`: one has come. Answers whether the subscription fell.
    fn tell(&self, message: bool) -> bool {
        let mut fell = false;
        self.outer.send_if_modified(|signal| {
            let live = self.stands();
            fell = signal.live && !live;
            let news = live != signal.live || (live && message);
            signal.live = live;
            signal.news += u64::from(news);
            news
        });
        fell
    }
}

/// Ends a subscription with the waiter's share in it.
struct Share {
    ears: Arc<Ears>,
    number: u64,
    listens: AbortHandle,
    _inner: Subscription,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.listens.abort();
        self.ears.all.lock().remove(&self.number);
    }
}

impl Ears {
    /// Whether they hear from now on, and how many subscriptions fell by that.
    pub(super) fn set_deaf(&self, deaf: bool) -> usize {
        self.deaf.store(deaf, Ordering::Release);
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        all.iter().filter(|ear| ear.tell(false)).count()
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire)
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    pub(super) fn delay(&self) -> Duration {
        *self.delay.lock()
    }

    /// Puts an ear between a subscription and its waiter.
    pub(super) fn around(self: &Arc<Self>, inner: Subscription, clock: Clock) -> Subscription {
        let delay = self.delay();
        let ear = Arc::new(Ear {
            deaf: Arc::clone(&self.deaf),
            confirmed: AtomicBool::new(delay.is_zero()),
            inner: inner.signal(),
            outer: watch::Sender::new(Signal::default()),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all.lock().insert(number, Arc::clone(&ear));
        let _new = ear.tell(false);
        let signal = ear.outer.subscribe();
        let listens = tokio::spawn(listen(ear, inner.signal(), clock, delay)).abort_handle();
        Subscription::new(
            signal,
            Share {
                ears: Arc::clone(self),
                number,
                listens,
                _inner: inner,
            },
        )
    }
}

async fn listen(ear: Arc<Ear>, mut inner: watch::Receiver<Signal>, clock: Clock, delay: Duration) {
    if !delay.is_zero() {
        clock.sleep_until(clock.now().after(delay)).await;
        inner.mark_unchanged();
        ear.confirmed.store(true, Ordering::Release);
        ear.tell(false);
    }
    while inner.changed().await.is_ok() {
        ear.tell(true);
    }
}

//! Subscriptions between a client and its backend: new ones may become active late, and all of them can be dropped and
//! restored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::test_util::{Clock, Key, Signal, Subscription, watched};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// All subscriptions that one set of faults applies to.
#[derive(Default)]
pub(super) struct Subscriptions {
    /// Release and Acquire: a signal that is derived after the change has the new value.
    muted: Arc<AtomicBool>,
    /// How long new subscriptions take to become active.
    delay: Mutex<Duration>,
    /// The keys without messages, although their subscriptions stay active.
    silent: Arc<Mutex<HashSet<String>>>,
    /// The number of the next subscription.
    next: AtomicU64,
    relays: Mutex<HashMap<u64, Arc<Relay>>>,
}

/// One subscription: the backend's signal, and the one that the waiter gets.
struct Relay {
    muted: Arc<AtomicBool>,
    silent: Arc<Mutex<HashSet<String>>>,
    key: String,
    /// Whether the delay of this subscription is over.
    confirmed: AtomicBool,
    inner: watched::Receiver,
    outer: watched::Sender,
}

impl Relay {
    fn is_active(&self) -> bool {
        let (muted, confirmed) = (&self.muted, &self.confirmed);
        !muted.load(Ordering::Acquire)
            && confirmed.load(Ordering::Acquire)
            && self.inner.get().active
    }

    fn is_silent(&self) -> bool {
        self.silent.lock().contains(&self.key)
    }

    /// Updates the waiter's signal, after a message or without one. Answers whether the subscription was dropped by
    /// that.
    fn update(&self, message: bool) -> bool {
        let mut was_dropped = false;
        self.outer.send_modify(|signal| {
            let active = self.is_active();
            was_dropped = signal.active && !active;
            let is_change = active != signal.active || (active && message);
            signal.messages += u64::from(message && active && signal.active);
            signal.active = active;
            signal.version += u64::from(is_change);
        });
        was_dropped
    }
}

/// The waiter's share in a subscription, which ends with it.
struct Share {
    subscriptions: Arc<Subscriptions>,
    number: u64,
    task: AbortHandle,
    _inner: Subscription,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.task.abort();
        self.subscriptions.relays.lock().remove(&self.number);
    }
}

impl Subscriptions {
    /// Mutes or unmutes all subscriptions, and answers how many of them were dropped by that.
    pub(super) fn set_muted(&self, muted: bool) -> usize {
        self.muted.store(muted, Ordering::Release);
        let relays: Vec<_> = self.relays.lock().values().cloned().collect();
        relays.iter().filter(|relay| relay.update(false)).count()
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

    /// Whether messages about this key are lost.
    pub(super) fn set_silent(&self, key: &str, silent: bool) {
        let mut keys = self.silent.lock();
        // As a key shows itself.
        let key = format!("{key:?}");
        if silent {
            keys.insert(key);
        } else {
            keys.remove(&key);
        }
    }

    /// Puts a relay between the subscription to a key and its waiter.
    pub(super) fn around(
        self: &Arc<Self>,
        key: &Key,
        inner: Subscription,
        clock: Clock,
    ) -> Subscription {
        let delay = self.delay();
        let relay = Arc::new(Relay {
            muted: Arc::clone(&self.muted),
            silent: Arc::clone(&self.silent),
            key: format!("{key:?}"),
            confirmed: AtomicBool::new(delay.is_zero()),
            inner: inner.signal(),
            outer: watched::Sender::new(Signal::default()),
        });
        // Relaxed: the number only has to be unique.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.relays.lock().insert(number, Arc::clone(&relay));
        let _was_dropped = relay.update(false);
        let signal = relay.outer.subscribe();
        let task = tokio::spawn(forward(relay, inner.signal(), clock, delay)).abort_handle();
        Subscription::new(
            signal,
            Share {
                subscriptions: Arc::clone(self),
                number,
                task,
                _inner: inner,
            },
        )
    }
}

async fn forward(relay: Arc<Relay>, mut inner: watched::Receiver, clock: Clock, delay: Duration) {
    if !delay.is_zero() {
        clock.sleep_until(clock.now().after(delay)).await;
        // Messages that came meanwhile are lost, as before a confirmation.
        inner.mark_unchanged();
        relay.confirmed.store(true, Ordering::Release);
        relay.update(false);
    }
    loop {
        inner.changed().await;
        if !relay.is_silent() {
            relay.update(true);
        }
    }
}

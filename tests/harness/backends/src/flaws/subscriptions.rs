//! Mistakes with what waiters hear: subscriptions that count as active when they are not, dropped ones that are hidden, and
//! looks that show no change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::test_util::{
    Clock, Fault, KeptTask, Key, Peeked, Signal, Subscription, Target, Tick, watched,
};
use parking_lot::Mutex;

/// How long it takes until a subscription is confirmed. In memory it would take no time, so nothing could happen
/// meanwhile.
const CONFIRMATION: Duration = Duration::from_millis(10);

/// How long it takes to unsubscribe from a channel after its last share was dropped, including the time that it
/// lingers.
const UNSUBSCRIBING: Duration = Duration::from_millis(100);

const ACTIVE: Signal = Signal {
    active: true,
    version: 0,
    messages: 0,
};

/// Reports the subscription as active before it is confirmed, receives nothing until then, and hides the confirmation.
pub(super) fn active_at_once(inner: Subscription, clock: Clock) -> Subscription {
    relay(inner, ACTIVE, async move |mut inner, outer| {
        clock.sleep_until(clock.now().after(CONFIRMATION)).await;
        inner.wait_for(|signal| signal.active).await;
        inner.mark_unchanged();
        loop {
            inner.changed().await;
            let Signal {
                active, messages, ..
            } = inner.get();
            outer.send_modify(|signal| {
                signal.active = active;
                signal.version += 1;
                signal.messages = messages;
            });
        }
    })
}

/// Reports the subscription as active after it was dropped, and hides that it becomes active again.
pub(super) fn silent_when_dropped(inner: Subscription) -> Subscription {
    let first = inner.signal().get();
    relay(inner, first, async move |mut inner, outer| {
        let mut was_active = first.active;
        loop {
            inner.changed().await;
            let Signal {
                active, messages, ..
            } = inner.get();
            outer.send_modify(|signal| {
                signal.messages = messages;
                let is_shown = active && (was_active || !signal.active);
                signal.active |= active;
                signal.version += u64::from(is_shown);
            });
            was_active = active;
        }
    })
}

/// Reports for each key that another owner has it, with no known end.
pub(super) async fn look_away(batch: &[Target]) -> Result<Vec<Peeked>, Fault> {
    let taken = Peeked {
        is_open: false,
        ttl: None,
        count: None,
    };
    Ok(vec![taken; batch.len()])
}

/// A subscription that begins with `first` and then receives what `forward` passes on from `inner`.
fn relay<F>(
    inner: Subscription,
    first: Signal,
    forward: impl FnOnce(watched::Receiver, watched::Sender) -> F,
) -> Subscription
where
    F: Future<Output = ()> + Send + 'static,
{
    let (outer, signal) = watched::channel(first);
    let forwards = KeptTask::begin(forward(inner.signal(), outer));
    Subscription::new(signal, (forwards, inner))
}

/// The channels with shares, and those that are being unsubscribed.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<HashMap<Key, Channel>>);

#[derive(Debug, Default)]
struct Channel {
    shares: usize,
    /// A share was added while the channel was being unsubscribed: none receives anything until all are dropped.
    muted: bool,
    /// When the last share was dropped.
    unshared_since: Option<Tick>,
}

impl Shares {
    /// Subscribes, or only pretends to if the channel is being unsubscribed.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &Key,
        clock: Clock,
        subscribe: impl FnOnce() -> Subscription,
    ) -> Subscription {
        let muted = {
            let mut channels = self.0.lock();
            let channel = channels.entry(key.clone()).or_default();
            let since = channel.unshared_since.take();
            let in_time = since.is_some_and(|since| clock.now() < since.after(UNSUBSCRIBING));
            channel.muted |= channel.shares == 0 && in_time;
            channel.shares += 1;
            channel.muted
        };
        let share = Share {
            shares: Arc::clone(self),
            key: key.clone(),
            clock,
        };
        if muted {
            // The sender lives as long as the share, and never sends: the subscription is active, and silent.
            let (silent, signal) = watched::channel(ACTIVE);
            return Subscription::new(signal, (share, silent));
        }
        let inner = subscribe();
        Subscription::new(inner.signal(), (share, inner))
    }
}

struct Share {
    shares: Arc<Shares>,
    key: Key,
    clock: Clock,
}

impl Drop for Share {
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut channels = self.shares.0.lock();
        let Some(channel) = channels.get_mut(&self.key) else {
            return;
        };
        channel.shares -= 1;
        if channel.shares == 0 {
            channel.unshared_since = (!channel.muted).then_some(now);
            channel.muted = false;
        }
    }
}

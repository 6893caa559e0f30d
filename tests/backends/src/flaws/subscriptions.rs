//! Mistakes with subscriptions: believing that they stand, and not telling what changes about them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::test_util::{Clock, Key, Signal, Subscription, Tick};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long the confirmation of a subscription is on its way: in memory it would take no time, and nothing could happen
/// meanwhile.
const ON_ITS_WAY: Duration = Duration::from_millis(10);

/// How long it takes to give a channel up after its last share has gone, its lingering included.
const GIVING_UP: Duration = Duration::from_millis(100);

const ACTIVE: Signal = Signal {
    active: true,
    version: 0,
};

/// Says that it stands while that is only on its way, hears nothing meanwhile, and does not tell when it does.
pub(super) fn standing_at_once(inner: Subscription, clock: Clock) -> Subscription {
    relay(inner, ACTIVE, async move |mut heard, tell| {
        clock.sleep_until(clock.now().after(ON_ITS_WAY)).await;
        let _gone = heard.wait_for(|signal| signal.active).await.is_err();
        heard.mark_unchanged();
        while heard.changed().await.is_ok() {
            let live = heard.borrow().active;
            tell.send_modify(|signal| {
                signal.active = live;
                signal.version += 1;
            });
        }
    })
}

/// Goes on saying that it stands when it has fallen, and does not tell when it stands again.
pub(super) fn untold_of_falls(inner: Subscription) -> Subscription {
    let first = *inner.signal().borrow();
    relay(inner, first, async move |mut heard, tell| {
        let mut was_live = first.active;
        while heard.changed().await.is_ok() {
            let live = heard.borrow().active;
            tell.send_if_modified(|signal| {
                let news = live && (was_live || !signal.active);
                signal.active |= live;
                signal.version += u64::from(news);
                news
            });
            was_live = live;
        }
    })
}

/// A subscription that hears what `listen` passes on from `inner`.
fn relay<F>(
    inner: Subscription,
    first: Signal,
    listen: impl FnOnce(watch::Receiver<Signal>, watch::Sender<Signal>) -> F,
) -> Subscription
where
    F: Future<Output = ()> + Send + 'static,
{
    let (tell, signal) = watch::channel(first);
    let listens = tokio::spawn(listen(inner.signal(), tell)).abort_handle();
    Subscription::new(signal, (Listens(listens), inner))
}

struct Listens(AbortHandle);

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The channels that somebody has a share in, and those that are being given up.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<HashMap<Key, Channel>>);

#[derive(Debug, Default)]
struct Channel {
    shares: usize,
    /// Somebody has come while it was being given up: nobody hears anything until all have gone.
    muted: bool,
    given_up: Option<Tick>,
}

impl Shares {
    pub(super) fn join(
        self: &Arc<Self>,
        key: &Key,
        clock: Clock,
        subscribe: impl FnOnce() -> Subscription,
    ) -> Subscription {
        let muted = {
            let mut channels = self.0.lock();
            let channel = channels.entry(key.clone()).or_default();
            let gone = channel.given_up.take();
            let in_time = gone.is_some_and(|gone| clock.now() < gone.after(GIVING_UP));
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
            let (nobody_tells, signal) = watch::channel(ACTIVE);
            return Subscription::new(signal, (share, nobody_tells));
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
            channel.given_up = (!channel.muted).then_some(now);
            channel.muted = false;
        }
    }
}

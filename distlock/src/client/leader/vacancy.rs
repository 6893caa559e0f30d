//! When a candidate for a key should attempt again: replicas that wait for one leader do not all ask at the same moment.
//!
//! A candidate stands in no queue. It subscribes to the key's channel, and after a message it pauses for a random time before it
//! attempts. The more clients listen, the longer the pauses: of three the next one attempts within a millisecond, and a thousand
//! spread their attempts over a quarter of a second.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Peeked, Subscription, Target};
use crate::clock::Tick;
use crate::config::{CANDIDATE_PAUSE, LISTENERS_COUNTED_EVERY, MOST_CANDIDATE_PAUSE};
use crate::resource::key::Resource;
use crate::session::{Session, next_peek, over_at};
use crate::sync::random::random_range;

/// The wait of one candidate.
pub(super) struct Vacancy {
    session: Arc<Session>,
    target: Target,
    subscription: Option<Subscription>,
    /// Whether messages arrived before the last attempt.
    was_active: bool,
    listeners: Listeners,
}

/// How many clients listen to the key's channel, as far as the server has told.
struct Listeners {
    count: u32,
    again: Tick,
}

/// As many listeners as a small service has, where the server does not tell their number.
const USUAL_LISTENERS: u32 = 8;

impl Vacancy {
    pub(super) fn new(session: &Arc<Session>, resource: &Resource) -> Self {
        Self {
            session: Arc::clone(session),
            target: Target::of(resource, session.owners.next()),
            subscription: None,
            was_active: false,
            listeners: Listeners {
                count: USUAL_LISTENERS,
                again: session.now(),
            },
        }
    }

    /// To be called before each attempt, so that a message that arrives during the attempt counts as new.
    pub(super) fn attempts(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            subscription.mark_seen();
        }
        self.was_active = self
            .subscription
            .as_ref()
            .is_some_and(Subscription::is_active);
    }

    /// Sleeps until the next attempt makes sense, after one that was refused: the holder's lease has this much left.
    pub(super) async fn next(&mut self, lease_left: Option<Duration>) {
        // A long sleep relies on the tasks.
        self.session.start_tasks();
        let lease_end = over_at(lease_left, self.session.now());
        if self.until_heard(lease_end).await {
            // All candidates have heard the same, or knew the end of the same lease.
            let others = self.listeners.count.saturating_sub(1);
            let most = CANDIDATE_PAUSE
                .saturating_mul(others)
                .min(MOST_CANDIDATE_PAUSE);
            let pause = most.mul_f64(random_range(0.0..=1.0));
            self.session
                .clock
                .sleep_until(self.session.now().after(pause))
                .await;
        }
    }

    /// Sleeps until the key may be free, or until messages arrive. Returns whether they had arrived all the time.
    async fn until_heard(&mut self, mut lease_end: Tick) -> bool {
        let was_active = self.was_active;
        let Self {
            session,
            target,
            subscription,
            listeners,
            ..
        } = self;
        let subscription = subscription.get_or_insert_with(|| session.backend.subscribe(target));
        // Behind the subscription: a test that releases the key then is heard.
        #[cfg(feature = "testing")]
        let _shown = session
            .backend
            .show_wait(&target.resource.key, session.id, None);
        loop {
            if was_active {
                crate::sync::select! {
                    // In this order, here and below: a message that has arrived counts, also if the time is over.
                    biased;
                    () = subscription.changed(was_active) => return was_active,
                    () = listeners.count(session, target) => {}
                    () = session.clock.sleep_until(lease_end) => return true,
                }
            }
            let seen = crate::sync::select! {
                biased;
                () = subscription.changed(was_active) => return was_active,
                seen = next_peek(session, || target.clone(), lease_end, was_active) => seen,
            };
            let Some(Peeked { ttl, .. }) = seen else {
                return true;
            };
            lease_end = over_at(ttl, session.now());
        }
    }
}

impl Listeners {
    /// Asks how many there are, if the last count is old. Not after a message: all candidates would ask at once.
    async fn count(&mut self, session: &Session, target: &Target) {
        let now = session.now();
        if self.again > now {
            return;
        }
        self.again = now.after(LISTENERS_COUNTED_EVERY);
        match session.backend.listeners(&target.resource.key).await {
            Ok(count) => self.count = u32::try_from(count).unwrap_or(u32::MAX),
            // Asked again, a server would log that this user has no right to it.
            Err(fault) if fault.is_final() => self.again = Tick::NEVER,
            Err(_) => {}
        }
    }
}

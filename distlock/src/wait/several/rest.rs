//! How an acquisition of several keys rests before it waits for them again.
//!
//! * After it has collected in vain, it keeps a place at the end of the queues of all its keys: everybody else goes first, also
//!   those that come later. The rest ends as soon as all keys are free in this client, or after [`MOST_REST`]. It ends as well if the
//!   release of a hold takes so long that the server may be gone: the next wait finds that out.
//! * After a part of its keys was granted and another part refused, it rests in no queue. Such rests are short and random, so
//!   that two clients do not take each other's parts in step.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use smallvec::SmallVec;

use super::position::{Rest, WaitPosition};
use super::waiter::{ReleaseWatch, RoundOutcome, SeveralKeysWaiter};
use crate::config::{COLLECTIONS_WITHOUT_REST, MOST_REST, PART_BACKOFF, WAIT_PER_COLLECTING};
use crate::hold::Hold;
use crate::local::{QueueSlot, Registry, SlotState};
use crate::sync::random::random_range;
use crate::wait::request::Request;

/// The shortest rest of an acquisition that had a part of its keys in the server for this long, and has failed this often.
fn rest_after(taken_for: Duration, failed: u32) -> Duration {
    let share = (taken_for * WAIT_PER_COLLECTING).min(MOST_REST);
    let Some(doublings) = failed.checked_sub(COLLECTIONS_WITHOUT_REST + 1) else {
        return share;
    };
    // Bounded, so that the factor does not overflow. It is far above the longest pause.
    let backoff = PART_BACKOFF.first * 2_u32.saturating_pow(doublings.min(16));
    share.max(backoff.min(PART_BACKOFF.longest))
}

/// How long an acquisition rests after a part of its keys was granted and another part refused. Random, so that two clients do not
/// take each other's keys in step.
pub(crate) fn rest_after_refusal(taken_for: Duration, failed: u32) -> Duration {
    let rest = rest_after(taken_for, failed).mul_f64(random_range(1.0..2.0));
    rest.min(MOST_REST)
}

impl WaitPosition {
    /// Rests before the next wait.
    pub(super) async fn rest(&mut self, registry: &Arc<Registry>, request: &Request) {
        let Rest { until, keeps_slots } = self.rest;
        let session = &registry.session;
        let until = until.min(request.deadline());
        if until <= session.now() {
            return;
        }
        let all_free = async {
            if keeps_slots {
                self.until_all_are_free_or_stuck(registry, request).await
            } else {
                std::future::pending().await
            }
        };
        crate::sync::select! {
            () = all_free => {}
            () = session.clock.sleep_until(until) => {}
            // The next wait finds the client closed, and returns the error.
            () = session.closed.wait() => {}
        }
    }

    /// Completes when nobody of this client has one of the keys, or waits for it. Also if the release of a hold is not answered.
    async fn until_all_are_free_or_stuck(&mut self, registry: &Arc<Registry>, request: &Request) {
        let session = &registry.session;
        let mut release = ReleaseWatch::new(session.config.response_timeout);
        let keys = 0..request.requested.len();
        let mut slots = registry.slots_at_the_end(keys.map(|at| request.joining(at, false)));
        // A snapshot finds the waiter in a queue by the waker of its slot there.
        if let Some(waiter_slot) = &mut self.waiter_slot {
            let key = &request.requested[self.at].resource.key;
            waiter_slot.move_to(key, slots[self.at].waker());
        }
        while let Some(holder) = in_the_way(&mut slots) {
            let holder = holder.as_ref();
            // First: a change after the looks at the hold is not missed.
            let changed = holder.map(|holder| holder.over.next_change());
            if holder.is_some_and(|holder| holder.over.is_set()) {
                continue;
            }
            let stuck = release.until(holder, session.now());
            if session.now() >= stuck {
                return;
            }
            crate::sync::select! {
                Some(()) = OptionFuture::from(changed) => {}
                // The slots share their waker, so this is a change in any of the queues.
                () = slots[0].woken() => {}
                () = session.clock.sleep_until(stuck) => {}
            }
        }
    }
}

/// Returns `None` if all slots are first in line and their keys free. Otherwise the hold that is in the way, if it is known.
fn in_the_way(slots: &mut [QueueSlot<'_>]) -> Option<Option<Arc<Hold>>> {
    // All of them, also behind one that is not free: the look at a slot wakes the next one that rests in that queue.
    let states: SmallVec<[SlotState; 4]> = slots.iter_mut().map(QueueSlot::state_at_rest).collect();
    states.into_iter().find_map(|state| match state {
        SlotState::Lost | SlotState::InLine => Some(None),
        SlotState::Behind(hold) => Some(Some(hold)),
        SlotState::Offered | SlotState::Free { .. } => None,
    })
}

impl SeveralKeysWaiter<'_> {
    /// Waits for this key next, which was not free in time. `unhindered`: for how long it had let the others pass.
    pub(super) fn collected_in_vain(&mut self, at: usize, unhindered: Duration) -> RoundOutcome {
        self.failed += 1;
        let mut position = self.position_elsewhere(at);
        if self.failed > COLLECTIONS_WITHOUT_REST {
            position.rest = Rest {
                until: position
                    .unhindered_since
                    .after((unhindered * 2).min(MOST_REST)),
                keeps_slots: true,
            };
        }
        RoundOutcome::Elsewhere(position)
    }

    /// Waits for this key next, which another owner holds. `taken_for`: for how long others were kept from keys that the
    /// server granted meanwhile.
    pub(super) fn refused_beside(&mut self, at: usize, taken_for: Duration) -> RoundOutcome {
        self.failed += 1;
        let mut position = self.position_elsewhere(at);
        let rest = rest_after_refusal(taken_for, self.failed);
        position.rest = Rest {
            until: position.unhindered_since.after(rest),
            keeps_slots: false,
        };
        RoundOutcome::Elsewhere(position)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use tokio::time::timeout;

    use super::*;
    use crate::Client;
    use crate::hold::HoldSettings;
    use crate::local::Joining;
    use crate::resource::key::{Key, Resource};
    use crate::resource::kind::Kind;

    const SETTINGS: HoldSettings = HoldSettings {
        lease: None,
        max_hold: None,
        margin: Duration::ZERO,
        call_site: Location::caller(),
    };

    fn resources(keys: [&str; 2]) -> [Resource; 2] {
        keys.map(|key| Resource {
            kind: Kind::Reentrant,
            key: Key::new("", key).unwrap(),
        })
    }

    /// Places at the end of the queues of these keys.
    fn resting<'a>(registry: &'a Arc<Registry>, resources: &'a [Resource]) -> Vec<QueueSlot<'a>> {
        registry.slots_at_the_end(resources.iter().map(|resource| Joining {
            resource,
            since: registry.session.now(),
            takes_over: false,
            settings: &SETTINGS,
            is_let_in: false,
            rank: None,
            collects: false,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_rests_behind_a_held_key_wakes_the_next_in_the_queue_of_another_key() {
        let client = Client::in_memory();
        let held = client.lock("a").acquire().await.unwrap();
        let busy = client.lock("b").acquire().await.unwrap();
        let waiting = tokio::spawn(client.lock("b").acquire().into_future());
        tokio::task::yield_now().await;
        let registry = &client.registry();
        let of_first = resources(["a", "b"]);
        let of_second = resources(["b", "c"]);
        let mut first = resting(registry, &of_first);
        let mut second = resting(registry, &of_second);
        assert!(matches!(in_the_way(&mut first), Some(Some(_))), "a is held");
        assert!(matches!(in_the_way(&mut second), Some(None)), "in line");
        busy.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        let second_woken = timeout(Duration::from_secs(1), async {
            // The last waiter of the queue of b has left: that wakes the first one alone.
            first[0].woken().await;
            assert!(matches!(in_the_way(&mut first), Some(Some(_))));
            second[0].woken().await;
        });
        second_woken.await.expect("the second one is woken");
        // Both rest in the queue of b, and are not in each other's way.
        assert!(in_the_way(&mut second).is_none());
        held.release().await.unwrap();
        assert!(in_the_way(&mut first).is_none());
        drop((first, second));
        let mut keys = of_first.iter().chain(&of_second);
        assert!(!keys.any(|resource| registry.has_waiters(resource)));
    }
}

//! The pause between two rounds.

use super::round::ServerRefusal;
use super::{RefusalChannel, Rounds};
use crate::backend::Target;
use crate::clock::Tick;
use crate::config::{MAX_SLEEP_WITHOUT_MESSAGE, QUORUM_JITTER};
use crate::resource::owner::Owner;
use crate::sync::Unordered;
use crate::sync::random::random;

impl Rounds<'_> {
    /// Sleeps until there may be a quorum: until `wanting` of the servers that refused have sent a message or the
    /// leases on them are over, and for a limited time in any case. Messages from fewer servers come from other clients
    /// that do not reach a quorum either.
    pub(super) async fn pause(
        &mut self,
        refused: &[ServerRefusal],
        wanting: usize,
        deadline: Tick,
    ) {
        let now = self.now();
        let clock = &self.session().clock;
        let requested = &self.request().requested[0];
        let listens = requested.resource.kind.listens();
        let longest = if !listens {
            requested.backoff().longest
        } else if refused.len() < wanting {
            // Too many servers did not answer, and no message says when they are back.
            QUORUM_JITTER
        } else {
            MAX_SLEEP_WITHOUT_MESSAGE
        };
        if listens {
            self.subscribe_to(refused);
        }
        let channels = self.subscriptions.iter_mut().enumerate();
        let changes = channels.filter_map(|(server, channel)| {
            let refusal = refused.iter().find(|refusal| refusal.server == server)?;
            let over = refusal.by.ttl().map_or(Tick::NEVER, |ttl| now.after(ttl));
            let channel = channel.as_mut()?;
            Some(async move {
                // Either way the server is asked again: the key may be free there.
                crate::sync::select! {
                    () = channel.subscription.changed(channel.was_active) => {}
                    () = clock.sleep_until(over) => {}
                }
            })
        });
        let mut changes: Unordered<'_, _> = changes.collect();
        let enough_changes = async {
            for _ in 0..wanting {
                if changes.next().await.is_none() {
                    // Too few servers are left that could send a message. The pause ends by the clock.
                    std::future::pending().await
                }
            }
        };
        crate::sync::select! {
            () = enough_changes => {}
            () = clock.sleep_until(now.after(longest).min(deadline)) => {}
        }
        let jitter = QUORUM_JITTER.mul_f64(random());
        let until = clock.now().after(jitter).min(deadline);
        clock.sleep_until(until).await;
    }

    fn subscribe_to(&mut self, refused: &[ServerRefusal]) {
        for ServerRefusal { server, .. } in refused {
            let one = &self.requests[*server];
            let session = &one.registry.session;
            // The channel belongs to the key, so the owner does not matter.
            let nobody = Owner::new(session.id, 0);
            let target = Target::of(&one.request.requested[0].resource, nobody);
            // Kept from one round to the next, so that a message that arrives during a round counts.
            self.subscriptions[*server].get_or_insert_with(|| RefusalChannel {
                subscription: session.backend.subscribe(&target),
                was_active: false,
            });
        }
    }
}

//! What a waiter does that has heard nothing for long: the key may have changed without a message.

use std::sync::Arc;

use crate::backend::Target;
use crate::clock::Tick;
use crate::config::{LOOK_AFTER, LOOK_PRECISION, MAX_SLEEP_UNTOLD};
use crate::hold::Session;

/// Completes when a waiter that heard nothing for long should repeat its attempt: if a look at the key shows that another
/// owner no longer blocks it until `end`, if the server does not answer, or if messages may not arrive.
pub(super) async fn changed_without_a_message(
    session: &Arc<Session>,
    target: &Target,
    end: Tick,
    was_active: bool,
) {
    loop {
        let pause = MAX_SLEEP_UNTOLD.mul_f64(rand::random_range(LOOK_AFTER));
        let next = session.now().after(pause);
        session.clock.sleep_until(next).await;
        if !was_active {
            return;
        }
        let Some(looked) = session.look(target).await else {
            return;
        };
        let now = session.now();
        let ends = looked.ttl.map_or(Tick::NEVER, |ttl| now.after(ttl));
        if looked.is_open || ends.after(LOOK_PRECISION) < end {
            return;
        }
    }
}

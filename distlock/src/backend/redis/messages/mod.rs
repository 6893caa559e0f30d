//! The messages that waiters listen to: which channels a client needs, and the task that subscribes to them.

mod channels;
mod checks;
mod subscriber;

pub(super) use self::channels::ServerNumber;
pub(super) use self::subscriber::{PubSubMode, Slots, Subscriber, Subscriptions};

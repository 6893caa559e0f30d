//! The messages that waiters listen to: which channels a client needs, and the task that subscribes to them.

mod channels;
mod checks;
mod subscriber;

pub(super) use self::channels::Place;
pub(super) use self::subscriber::{Slots, Subscriber, Subscriptions, Way};

//! The messages that waiters listen to: which channels a client needs, and the task that subscribes to them.

mod channels;
mod checks;
mod deliver;
mod mode;
mod notifications;
mod shared;
mod subscriber;
mod task;

pub(super) use self::channels::ServerNumber;
pub(super) use self::mode::{PubSubMode, Slots};
pub(super) use self::subscriber::{Subscriber, Subscriptions};

//! Waiters, the messages that wake them, and their subscriptions.

mod messages;
mod subscriptions;
mod waiting;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [waiting::rows(), messages::rows(), subscriptions::rows()].concat()
}

//! Waiters, the messages that wake them, and their subscriptions.

mod crowds;
mod messages;
mod subscriptions;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [crowds::rows(), messages::rows(), subscriptions::rows()].concat()
}

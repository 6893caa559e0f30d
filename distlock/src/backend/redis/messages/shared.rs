//! What the subscriptions of one client have in common: the channels, and the servers at which they are subscribed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::channels::{Channels, ServerNumber};
use super::checks::Checks;
use super::mode::PubSubMode;
use crate::backend::Fault;
use crate::backend::redis::connection::{Link, REPEATED_AFTER};
use crate::clock::Clock;
use crate::sync::{Mutex, RwLock};
use crate::telemetry;

/// What the shares, the driver's callbacks and the tasks have in common.
pub(super) struct Shared {
    pub(super) channels: Mutex<Channels>,
    /// What is there for each server. A share wakes the task of the server at which its channel is.
    pub(super) servers: RwLock<HashMap<ServerNumber, Arc<ServerSubscriptions>>>,
    pub(super) clock: Clock,
    pub(super) response_timeout: Duration,
    /// When the log last said that subscribing is refused.
    pub(super) denial_logged: Mutex<Option<Instant>>,
}

/// What a task, the driver's callback and the shares have in common for one server.
pub(super) struct ServerSubscriptions {
    pub(super) number: ServerNumber,
    pub(super) mode: PubSubMode,
    pub(super) link: Arc<Link>,
    /// Wakes the task when there may be something to send.
    pub(super) wake: Notify,
    pub(super) checks: Checks,
    /// The client is gone, or needs the server no more, and the task has to end.
    pub(super) closed: AtomicBool,
}

impl Shared {
    /// Logs that the server refuses to subscribe, now and then for as long as it does.
    pub(super) fn log_denial(&self, channel: &str, fault: &Fault) {
        let now = Instant::now();
        let due = {
            let mut logged = self.denial_logged.lock();
            let due = logged.is_none_or(|logged| now.duration_since(logged) >= REPEATED_AFTER);
            if due {
                *logged = Some(now);
            }
            due
        };
        if due {
            telemetry::subscription_failed(channel, fault);
        }
    }
}

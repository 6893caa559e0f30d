//! What the subscriptions of one client have in common, and what becomes of the messages that arrive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::channels::{Channels, ServerNumber};
use super::checks::Checks;
use crate::backend::Fault;
use crate::backend::redis::connection::{Link, REPEATED_AFTER};
use crate::backend::redis::names;
use crate::backend::redis::reply::Elsewhere;
use crate::clock::Clock;
use crate::mutex::{Mutex, RwLock};
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

/// How a client listens.
#[derive(Clone)]
pub(crate) enum PubSubMode {
    /// By SUBSCRIBE.
    Plain,
    /// By SSUBSCRIBE, at the node that has the channel's slot.
    Sharded(Arc<dyn Slots>),
    /// Both ways.
    Both(Arc<dyn Slots>),
}

/// What a cluster's node tells about its slots while channels are subscribed there.
pub(crate) trait Slots: Send + Sync {
    /// The node with this number has sent the subscription elsewhere.
    fn sent_elsewhere(&self, number: ServerNumber, elsewhere: &Elsewhere);

    /// The node with this number has ended a subscription unasked, because it has lost a slot.
    fn lost_slot(&self, number: ServerNumber);
}

impl PubSubMode {
    pub(super) fn slots(&self) -> Option<&Arc<dyn Slots>> {
        match self {
            Self::Plain => None,
            Self::Sharded(slots) | Self::Both(slots) => Some(slots),
        }
    }
}

impl Shared {
    /// Called by the driver, whose other work waits meanwhile: changes a signal and returns. A payload that is never
    /// published on such a channel is ignored.
    pub(super) fn received(&self, server: &ServerSubscriptions, epoch: u64, push: &PushInfo) {
        let (channel, payload) = match (&push.kind, push.data.as_slice()) {
            (
                PushKind::Message | PushKind::SMessage,
                [Value::BulkString(channel), Value::BulkString(payload)],
            ) => (channel, payload),
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                return self.sharded_ended(server, epoch, channel);
            }
            _ => return,
        };
        match (std::str::from_utf8(channel), payload.as_slice()) {
            (Ok(channel), payload) if names::is_message(channel, payload) => {
                let notifications = self.channels.lock().message(channel);
                notifications.send();
            }
            _ => telemetry::odd_message(channel, payload.len()),
        }
    }

    /// A subscription to a channel of a slot has ended. If that was not asked for, the node has lost the slot, and the driver
    /// takes the message for the answer to the oldest command under way: nothing that it says about this connection from
    /// here on is true, and the connection is replaced.
    fn sharded_ended(&self, server: &ServerSubscriptions, epoch: u64, channel: &[u8]) {
        let channel = String::from_utf8_lossy(channel);
        if !self.channels.lock().is_leaving(server.number, &channel) {
            let _was_current = server.link.replace(epoch);
            if let Some(slots) = server.mode.slots() {
                slots.lost_slot(server.number);
            }
        }
    }

    /// Logs that the server refuses to subscribe, now and then for as long as it does.
    pub(super) fn log_denial(&self, fault: &Fault) {
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
            telemetry::subscription_failed(fault);
        }
    }
}

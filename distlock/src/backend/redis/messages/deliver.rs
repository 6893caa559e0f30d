//! What becomes of a message that arrives: the waiters of its channel are woken.

use redis::{PushInfo, PushKind, Value};

use super::shared::{ServerSubscriptions, Shared};
use crate::backend::redis::names;
use crate::telemetry;

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
            // By its number: if the connection was replaced meanwhile, the present one is sound.
            let _was_current = server.link.replace(epoch);
            if let Some(slots) = server.mode.slots() {
                slots.lost_slot(server.number);
            }
        }
    }
}

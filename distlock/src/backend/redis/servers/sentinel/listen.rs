//! Listens to the Sentinels: one task for each of them, which subscribes to their messages, and asks now and then.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{PushInfo, PushKind, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{Found, Sentinel, Sentinels};
use crate::backend::redis::connection::{Address, Connected};
use crate::backend::redis::reply;
use crate::backend::redis::servers::announced::address;
use crate::backend::{Fault, cause};
use crate::config::{RECONNECT_BACKOFF, SENTINEL_GONE_AFTER, SENTINEL_LOOK, SENTINELS_AGREE_AFTER};
use crate::sync::task::boxed;
use crate::telemetry;

/// The channel on which a Sentinel says that another server is the master.
const SWITCH: &str = "+switch-master";

impl Sentinels {
    /// Starts the tasks that do not run, in the caller's runtime.
    pub(super) fn listen(&self) {
        let (Ok(runtime), Some(this)) = (Handle::try_current(), self.this.upgrade()) else {
            return;
        };
        let known: Vec<_> = self.known.lock().all().cloned().collect();
        for sentinel in known {
            let Some(running) = sentinel.listener.begin() else {
                continue;
            };
            let this = Arc::clone(&this);
            drop(runtime.spawn(boxed(async move {
                // Dropped last: from then on another task may listen.
                let _running = running;
                let mut client = this.client.clone();
                let mut forgotten = sentinel.is_forgotten.subscribe();
                tokio::select! {
                    // Nothing is ever sent: this is the end of the sender.
                    _ = client.changed() => {}
                    _ = forgotten.wait_for(|is_forgotten| *is_forgotten) => {}
                    () = this.listen_to(&sentinel) => {}
                }
            })));
        }
    }

    async fn listen_to(&self, sentinel: &Sentinel) {
        loop {
            // Until it answers over this connection.
            self.known.lock().silent(&sentinel.address);
            self.named.lock().silent(&sentinel.address, Instant::now());
            let patience = self.to_sentinels.timeout();
            let Ok(mut connected) = sentinel.link.connected(patience).await else {
                // The link keeps connecting on its own.
                sentinel
                    .link
                    .pause_until_up(RECONNECT_BACKOFF.longest)
                    .await;
                continue;
            };
            self.connected_to(sentinel);
            let epoch = connected.epoch;
            let ended = tokio::select! {
                // Others use the same link. It has found the end of the connection already, and connects again.
                () = sentinel.link.down(epoch) => continue,
                ended = self.follow_over(sentinel, &mut connected) => ended,
            };
            if let Err(fault) = ended {
                sentinel.link.broken(epoch, &fault.why().to_string());
                // A Sentinel that refuses would refuse again at once.
                sleep(RECONNECT_BACKOFF.longest).await;
            }
        }
    }

    /// Subscribes, learns of other Sentinels, and asks for the master now and then. Ends with a fault.
    async fn follow_over(
        &self,
        sentinel: &Sentinel,
        connected: &mut Connected,
    ) -> Result<(), Fault> {
        let subscribed = connected.connection.subscribe(SWITCH);
        match timeout(self.response_timeout, subscribed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => match reply::fault(error) {
                // The user lacks the right: what the Sentinel says when it is asked has to do.
                Fault::Denied(_, why) => telemetry::sentinel_not_heard(&sentinel.address, &why),
                fault => return Err(fault),
            },
            Err(_) => return Err(Fault::Unknown(cause("no answer to a subscription"))),
        }
        loop {
            self.learn_from(sentinel, connected).await;
            // The user may lack the right to ask, so the fault of one question does not end the task.
            let pause = match self.ask_over(sentinel, connected).await {
                Ok(Some(server)) => {
                    let is_settled = self.compare(server).await;
                    let named = self.named.lock();
                    if !is_settled {
                        SENTINEL_GONE_AFTER / 5
                    } else if named.counts_those_not_asked(Instant::now()) {
                        // The name may lead to another set, whose master is accepted when they count no more.
                        SENTINELS_AGREE_AFTER
                    } else {
                        SENTINEL_LOOK
                    }
                }
                // It hangs, or answers nobody just now. It is asked some times before it counts as gone.
                Err(Fault::Unknown(_) | Fault::NotNow(_)) => {
                    let mut named = self.named.lock();
                    named.silent(&sentinel.address, Instant::now());
                    SENTINEL_GONE_AFTER / 5
                }
                _ => SENTINEL_LOOK,
            };
            sleep(pause).await;
        }
    }

    /// Leaves the present master if the Sentinels name another server, and that one says that it is the master. Returns false if it
    /// does not say so: it may in a moment.
    async fn compare(&self, server: Address) -> bool {
        let is_other = {
            let named = self.named.lock();
            named.master().is_some_and(|master| *master != server)
                && named.may_be_master(&server, Instant::now())
        };
        if !is_other {
            return true;
        }
        let Found::Master(server) = self.probe(server).await else {
            return false;
        };
        self.switch_to(&server, None);
        true
    }

    /// Asks a Sentinel for the others. Nothing is learned if the user may not ask.
    async fn learn_from(&self, sentinel: &Sentinel, connected: &mut Connected) {
        let mut question = cmd("SENTINEL");
        question.arg("SENTINELS").arg(&self.service);
        let answer =
            question.query_async::<Vec<HashMap<String, String>>>(&mut connected.connection);
        match timeout(self.response_timeout, answer).await {
            Ok(Ok(others)) => {
                let others = others.iter().filter_map(other).collect();
                self.learn(&sentinel.address, others);
            }
            // It may know the service no more.
            _ => self.known.lock().silent(&sentinel.address),
        }
    }

    /// Called by the driver with what a Sentinel sends unasked. `is_forgotten`: whether the client has forgotten it, which ends its
    /// connection a moment later.
    pub(super) fn heard(
        &self,
        sentinel: &Address,
        is_forgotten: &watch::Receiver<bool>,
        push: &PushInfo,
    ) {
        if push.kind != PushKind::Message {
            return;
        }
        let [Value::BulkString(channel), Value::BulkString(message)] = push.data.as_slice() else {
            return;
        };
        if channel != SWITCH.as_bytes() {
            return;
        }
        if let Some([old, new]) = std::str::from_utf8(message)
            .ok()
            .and_then(|message| old_and_new(message, &self.service))
        {
            {
                let mut named = self.named.lock();
                // Under this lock, as for what it answers.
                if *is_forgotten.borrow() {
                    return;
                }
                // First: `switch_to` counts which Sentinels have named another server.
                named.told(sentinel, &new, Instant::now());
            }
            self.switch_to(&new, Some(&old));
        }
    }
}

/// The old and the new master in a message about a service: `<service> <old host> <old port> <new host> <new port>`.
fn old_and_new(message: &str, service: &str) -> Option<[Address; 2]> {
    let rest = message.strip_prefix(service)?.strip_prefix(' ')?;
    let words: Vec<&str> = rest.split(' ').collect();
    let [old_host, old_port, new_host, new_port] = words.as_slice() else {
        return None;
    };
    Some([server(old_host, old_port)?, server(new_host, new_port)?])
}

fn server(host: &str, port: &str) -> Option<Address> {
    address(host, port.parse().ok()?)
}

/// The address in what a Sentinel says of another one.
fn other(sentinel: &HashMap<String, String>) -> Option<Address> {
    server(sentinel.get("ip")?, sentinel.get("port")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_masters_of_its_service_only() {
        let message = "locks 10.0.0.1 6379 10.0.0.2 6380";
        let servers = [("10.0.0.1", 6379), ("10.0.0.2", 6380)].map(|(host, port)| Address::Tcp {
            host: host.to_owned(),
            port,
        });
        assert_eq!(old_and_new(message, "locks"), Some(servers));
        assert_eq!(old_and_new(message, "lock"), None);
        for odd in [
            "",
            "locks",
            "locks ",
            "locks 10.0.0.1 6379 10.0.0.2",
            "locks 10.0.0.1 6379 10.0.0.2 0",
            "locks 10.0.0.1 6379 10.0.0.2 70000",
            "locks 10.0.0.1 x 10.0.0.2 6380",
            "locks 10.0.0.1 6379  6380",
            "locks 10.0.0.1 6379 10.0.0.2 6380 more",
            "locks 10.0.0.1 6379 user@10.0.0.2 6380",
        ] {
            assert_eq!(old_and_new(odd, "locks"), None, "{odd}");
        }
    }
}

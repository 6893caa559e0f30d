//! One server; of a Redlock, several.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use ::redis::AsyncCommands;
use tokio::time::sleep;

use super::Effect;
use crate::fault_plan::PlannedFault;
use crate::history::{Affected, Wiped};
use crate::redis::wire_fault::WireFault;
use crate::redis::wires::Wires;
use distlock_tests::any_lock::LockKind;
use distlock_tests::proxy::Proxy;
use distlock_tests::server::RedisServer;

/// One server, which meets the faults, and the other servers of a Redlock.
#[derive(Debug)]
pub(in crate::redis) struct Single {
    server: RedisServer,
    durable: bool,
    /// These meet no faults.
    others: Vec<RedisServer>,
    /// The URL of the proxy in front of the first server.
    url: String,
}

impl Single {
    pub(super) async fn start(durable: bool, lock_kind: LockKind) -> Self {
        let server = RedisServer::builder().appendonly(durable).start().await;
        let mut others = Vec::new();
        for _ in 1..lock_kind.servers() {
            others.push(RedisServer::start().await);
        }
        Self {
            url: server.url(),
            server,
            durable,
            others,
        }
    }

    /// Puts a proxy in front of the first server.
    pub(super) async fn wires(&mut self) -> Wires {
        let (proxy, wires) = (Proxy::start(self.server.addr()).await, Wires::default());
        self.url = proxy.url();
        wires.add(&Arc::new(proxy));
        wires
    }

    /// Only the first is behind the proxy.
    pub(super) fn urls(&self) -> Vec<String> {
        let others = self.others.iter().map(RedisServer::url);
        iter::once(self.url.clone()).chain(others).collect()
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        iter::once(&self.server).chain(&self.others)
    }

    pub(super) async fn apply(&mut self, step: &PlannedFault<WireFault>) -> Effect {
        let PlannedFault { length, fault, .. } = step;
        let server = &mut self.server;
        let ms = length.as_millis().max(1).to_string();
        match fault {
            WireFault::KillServer => {
                server.kill();
                sleep(*length).await;
                server.restart().await;
                let wiped = if self.durable {
                    Wiped::Nothing
                } else {
                    Wiped::Everything
                };
                Effect {
                    wiped,
                    ..Effect::outage()
                }
            }
            WireFault::StopServer => {
                server.stop();
                sleep(*length).await;
                server.cont();
                Effect::outage()
            }
            WireFault::Pause => {
                server.cli(&["CLIENT", "PAUSE", &ms]).await;
                sleep(*length).await;
                Effect::outage()
            }
            WireFault::Sleep => {
                let seconds = length.as_secs_f64().to_string();
                server.cli(&["DEBUG", "SLEEP", &seconds]).await;
                Effect::outage()
            }
            WireFault::KillClients(client_type) => {
                Effect::outage().met(server.kill_clients(client_type).await > 0)
            }
            WireFault::ForgetScripts => {
                server.cli(&["SCRIPT", "FLUSH"]).await;
                Effect::of(Affected::Nobody)
            }
            WireFault::Flush => {
                server.cli(&["FLUSHALL"]).await;
                Effect::loss(Wiped::Everything)
            }
            WireFault::Wipe(key) => {
                let hit = wipe(server, key).await;
                Effect::loss(Wiped::One(key.clone())).met(hit)
            }
            WireFault::OutOfMemory => {
                server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
                sleep(*length).await;
                server.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
                Effect::outage()
            }
            _ => {
                set_rights(server, ["-evalsha", "-eval"]).await;
                sleep(*length).await;
                set_rights(server, ["+evalsha", "+eval"]).await;
                Effect::outage()
            }
        }
    }
}

async fn set_rights(server: &RedisServer, [digest, source]: [&str; 2]) {
    let words = ["ACL", "SETUSER", "default", digest, source];
    server.cli(&words).await;
}

/// Deletes a lock's data as soon as there is any.
async fn wipe(server: &RedisServer, key: &str) -> bool {
    const PAUSE: Duration = Duration::from_millis(2);
    let mut redis = server.connection().await;
    for _ in 0..100 {
        // Of a semaphore, also the permits that are out.
        let permits = format!("{{{key}}}:timeout");
        let deleted: u64 = redis
            .del(&[key, &permits])
            .await
            .expect("the server answers");
        if deleted > 0 {
            return true;
        }
        sleep(PAUSE).await;
    }
    false
}

//! How each fault is injected into a run.

use std::time::Duration;

use ::redis::AsyncCommands;
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::WireFault;
use super::{HEALS, LEASE, RedisRun, forgets};
use crate::fault_plan::{FaultPlan, PlannedFault};
use crate::history::{Affected, Event, EventKind, Fault, Wiped};
use crate::time::timestamp;
use distlock_tests::proxy::{self, Select, Which};
use distlock_tests::server::RedisServer;

impl RedisRun {
    /// Injects the faults of a list one after another, up to the time in which they happen.
    pub(super) async fn inject(&self, plan: &FaultPlan<WireFault>, begin: Instant) {
        for step in &plan.steps {
            sleep_until(begin + step.at).await;
            // The end of the run stays without faults, also if this one would begin late or last too long.
            let late = begin.elapsed() + step.length >= plan.lasts;
            if late || wipes(&step.fault) && !forgets(self.context.workload.lock_kind) {
                continue;
            }
            let from = self.context.time.now();
            let (hit, wiped, affected) = self.apply(step).await;
            let to = self.context.time.now();
            let kind = step.fault.kind();
            let heals = timestamp(HEALS);
            let fault = Fault {
                kind,
                from,
                to,
                wiped,
                affected,
                heals,
                hit,
                delays_attempts: matches!(step.fault, WireFault::Hold | WireFault::Flow(..)),
                reconnects: false,
            };
            self.history.add(Event {
                at: to,
                what: EventKind::Fault(fault),
            });
        }
    }

    async fn apply(&self, step: &PlannedFault<WireFault>) -> (bool, Wiped, Affected) {
        let PlannedFault { length, fault, .. } = step;
        match fault {
            WireFault::KillServer
            | WireFault::StopServer
            | WireFault::Pause
            | WireFault::Sleep
            | WireFault::KillClients(_)
            | WireFault::ForgetScripts
            | WireFault::Flush
            | WireFault::Wipe(_)
            | WireFault::OutOfMemory
            | WireFault::Deny => self.on_server(fault, *length).await,
            WireFault::StopChild | WireFault::KillChild => self.on_child(fault, *length).await,
            WireFault::Block => {
                let length = *length;
                let blocked = tokio::spawn(async move { std::thread::sleep(length) });
                (blocked.await.is_ok(), Wiped::Nothing, Affected::Process(0))
            }
            _ => {
                let hit = self.on_wire(fault, *length).await;
                (hit, Wiped::Nothing, Affected::Everybody)
            }
        }
    }

    async fn on_server(&self, fault: &WireFault, length: Duration) -> (bool, Wiped, Affected) {
        let mut server = self.server.lock().await;
        let ms = length.as_millis().max(1).to_string();
        let nothing = (true, Wiped::Nothing, Affected::Everybody);
        match fault {
            WireFault::KillServer => {
                server.kill();
                sleep(length).await;
                server.restart().await;
                let wiped = if self.durable {
                    Wiped::Nothing
                } else {
                    Wiped::Everything
                };
                (true, wiped, Affected::Everybody)
            }
            WireFault::StopServer => {
                server.stop();
                sleep(length).await;
                server.cont();
                nothing
            }
            WireFault::Pause => {
                server.cli(&["CLIENT", "PAUSE", &ms]).await;
                sleep(length).await;
                nothing
            }
            WireFault::Sleep => {
                let seconds = length.as_secs_f64().to_string();
                server.cli(&["DEBUG", "SLEEP", &seconds]).await;
                nothing
            }
            WireFault::KillClients(client_type) => (
                server.kill_clients(client_type).await > 0,
                Wiped::Nothing,
                Affected::Everybody,
            ),
            WireFault::ForgetScripts => {
                server.cli(&["SCRIPT", "FLUSH"]).await;
                (true, Wiped::Nothing, Affected::Nobody)
            }
            WireFault::Flush => {
                server.cli(&["FLUSHALL"]).await;
                (true, Wiped::Everything, Affected::Nobody)
            }
            WireFault::Wipe(key) => {
                let hit = wipe(&server, key).await;
                (hit, Wiped::One(key.clone()), Affected::Nobody)
            }
            WireFault::OutOfMemory => {
                server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
                sleep(length).await;
                server.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
                nothing
            }
            _ => {
                server
                    .cli(&["ACL", "SETUSER", "default", "-evalsha", "-eval"])
                    .await;
                sleep(length).await;
                server
                    .cli(&["ACL", "SETUSER", "default", "+evalsha", "+eval"])
                    .await;
                nothing
            }
        }
    }

    /// Injects a fault of the wire. Returns whether it met anything.
    async fn on_wire(&self, fault: &WireFault, length: Duration) -> bool {
        let lasting = async |fault: proxy::Fault| {
            sleep(length).await;
            fault.lift();
            fault.hits() > 0
        };
        match fault {
            WireFault::Flow(select, way, flow) => {
                if *select == Select::NEW {
                    // Otherwise there would be no new connection.
                    let _open = self.proxy.cut(Select::SUBSCRIBERS);
                }
                lasting(self.proxy.flow(*select, *way, *flow)).await
            }
            WireFault::Cut(select) => self.proxy.cut(*select) > 0,
            WireFault::CutAfter(way, bytes) => {
                lasting(self.proxy.cut_after(Select::ALL, *way, *bytes)).await
            }
            WireFault::Close(way) => self.proxy.fin(Select::ALL, *way) > 0,
            WireFault::Refuse => {
                let fault = self.proxy.refuse();
                let _open = self.proxy.cut(Select::ALL);
                lasting(fault).await
            }
            WireFault::EatReply => {
                lasting(self.proxy.eat_reply(Select::COMMANDS, Which::NEXT)).await
            }
            _ => {
                let held = self.proxy.hold(Select::COMMANDS, Which::NEXT);
                sleep(length).await;
                match held.try_caught() {
                    Ok(caught) => drop(caught.deliver().await),
                    Err(_trap) => return false,
                }
                true
            }
        }
    }

    async fn on_child(&self, fault: &WireFault, length: Duration) -> (bool, Wiped, Affected) {
        let mut children = self.children.lock().await;
        // The oldest first, so that each child is chosen in turn.
        let mut child = children.remove(0);
        let stopped = Affected::Process(child.number);
        if matches!(fault, WireFault::StopChild) {
            child.process.stop();
            sleep(length).await;
            child.process.cont();
            children.push(child);
            return (true, Wiped::Nothing, stopped);
        }
        let at = self.context.time.now();
        let by_itself = child.process.exited();
        child.process.kill();
        let process = child.number;
        let mut odd = self.odd.lock().await;
        odd.extend(by_itself.map(|status| format!("process {process} ended by itself: {status}")));
        odd.extend(child.unexpected_output(true).await);
        let what = EventKind::Killed { process };
        self.history.add(Event { at, what });
        children.push(self.start_child());
        (true, Wiped::Nothing, stopped)
    }
}

fn wipes(fault: &WireFault) -> bool {
    matches!(fault, WireFault::Flush | WireFault::Wipe(_))
}

/// Deletes a lock's data as soon as there is any.
async fn wipe(server: &RedisServer, key: &str) -> bool {
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
        sleep(LEASE / 1_000).await;
    }
    false
}

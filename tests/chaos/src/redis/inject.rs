//! How each fault is injected into a run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::ground::{Effect, Ground};
use super::plan;
use super::wire_fault::WireFault;
use super::{RedisRun, forgets};
use crate::fault_plan::{FaultPlan, PlannedFault};
use crate::history::{Affected, Event, EventKind, Fault, Timestamp};
use crate::planned_operation::PlannedOperation;
use crate::time::timestamp;
use crate::worker::Worker;
use distlock_tests::proxy::Role;
use distlock_tests::resource::ResourceHandle;

impl RedisRun {
    /// Injects the faults of a list one after another, up to the time in which they happen.
    pub(super) async fn inject(&self, plan: &FaultPlan<WireFault>, begin: Instant) {
        for step in &plan.steps {
            sleep_until(begin + step.at).await;
            if self.loses_too_much(&step.fault) {
                continue;
            }
            if step.fault.is_of_servers() {
                self.servers.lock().await.ready_for(&step.fault).await;
            }
            // The end of the run stays without faults, also if this one would begin late or last too long.
            if begin.elapsed() + step.fault.takes(step.length) >= plan.lasts {
                continue;
            }
            let from = self.context.time.now();
            let effect = self.apply(step).await;
            let delays_attempts = matches!(step.fault, WireFault::Hold | WireFault::Flow(..));
            let lasted = (from, self.context.time.now());
            self.note_fault(step.fault.kind(), effect, lasted, delays_attempts);
        }
    }

    /// Adds a fault to the history. It `lasted` so long unless it says otherwise.
    pub(super) fn note_fault(
        &self,
        kind: String,
        effect: Effect,
        lasted: (Timestamp, Timestamp),
        delays_attempts: bool,
    ) {
        let (from, to) = effect.lasted.unwrap_or(lasted);
        let fault = Fault {
            kind,
            from,
            to,
            wiped: effect.wiped,
            affected: effect.affected,
            heals: timestamp(effect.heals.unwrap_or(self.config.ground.heals())),
            hit: effect.hit,
            delays_attempts,
            reconnects: false,
        };
        self.history.add(Event {
            at: to,
            what: EventKind::Fault(fault),
        });
    }

    /// Whether a lock of this run would not come back from it: nothing restores a number, and a server of a quorum that
    /// forgets breaks the quorum.
    fn loses_too_much(&self, fault: &WireFault) -> bool {
        let forgets = forgets(self.context.workload.lock_kind);
        !forgets && fault.loses_data(self.config.ground)
    }

    async fn apply(&self, step: &PlannedFault<WireFault>) -> Effect {
        let PlannedFault { length, fault, .. } = step;
        match fault {
            fault if fault.is_of_servers() => {
                let is_cut_off = |key: &str| self.hold_over_failover(key);
                self.servers.lock().await.apply(step, is_cut_off).await
            }
            WireFault::StopChild | WireFault::KillChild => self.on_child(fault, *length).await,
            WireFault::Block => {
                let length = *length;
                let blocked = tokio::spawn(async move { std::thread::sleep(length) });
                Effect::of(Affected::Process(0)).met(blocked.await.is_ok())
            }
            // Seeds give each fault another time, which chooses the server.
            WireFault::Silence(role) => self.silence(*role, step.at.as_nanos()).await,
            _ => {
                let hit = self.wires.inject(fault, *length, step.at.as_nanos());
                Effect::outage().met(hit.await)
            }
        }
    }

    /// Silences the clients' connections of one server. It counts until the clients have other connections.
    async fn silence(&self, role: Role, number: u128) -> Effect {
        let ground = self.config.ground;
        let hit = self.wires.silence(role, ground.notices(), number).await;
        Effect {
            heals: Some(ground.heals_from_silence()),
            ..Effect::outage().met(hit)
        }
    }

    /// When the time of the faults is over, one server of several goes silent, and the busiest slots of a cluster get a new
    /// node. No other fault excuses what the clients make of it.
    pub(super) async fn inject_last(&self, at: Instant) {
        if self.config.ground == Ground::Server {
            return;
        }
        sleep_until(at).await;
        let busiest = &self.context.workload.keys[..plan::JOINED_SLOTS];
        let from = self.context.time.now();
        let note = |kind: &str, from, effect| {
            let lasted = (from, self.context.time.now());
            self.note_fault(String::from(kind), effect, lasted, false);
        };
        let silence = async {
            let number = u128::from(self.context.seed);
            note("Silence", from, self.silence(Role::Commands, number).await);
        };
        let grow = async {
            let mut servers = self.servers.lock().await;
            let from = self.context.time.now();
            if let Some(effect) = servers.grow(busiest).await {
                note("GrowCluster", from, effect);
            }
        };
        tokio::join!(silence, grow);
    }

    /// Takes a lock that no replica hears of, and holds it until its loss is told. Other owners may be granted it meanwhile.
    fn hold_over_failover(&self, key: &str) {
        let workload = &self.context.workload;
        let planned = PlannedOperation {
            wait: Some(plan::UNREPLICATED),
            work: workload.lease * 2,
            ..PlannedOperation::patient(workload.lock_kind, key)
        };
        for program in &self.client_sets {
            let task = self.config.scale.tasks + self.more_tasks.fetch_add(1, Ordering::Relaxed);
            let resource = ResourceHandle::Local(self.resource.clone());
            let mut worker = Worker::new(&self.context, task, program, resource);
            let planned = planned.clone();
            let mut more_workers = self.more_workers.lock().expect("nobody panicked");
            more_workers.spawn(async move { worker.operate(&planned).await });
        }
    }

    async fn on_child(&self, fault: &WireFault, length: Duration) -> Effect {
        let mut children = self.children.lock().await;
        // The oldest first, so that each child is chosen in turn.
        let mut child = children.remove(0);
        let stopped = Affected::Process(child.number);
        if matches!(fault, WireFault::StopChild) {
            child.process.stop();
            sleep(length).await;
            child.process.cont();
            children.push(child);
            return Effect::of(stopped);
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
        Effect::of(stopped)
    }
}

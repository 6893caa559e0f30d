//! The faults of a run in memory: how each is injected, and its entry in the history.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_tests::any_lock::{AnyLock, LockKind, PERMITS};
use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use super::plan::MemoryFault;
use super::{HEALS, LEASE, MemoryRun, RESPONSE_TIMEOUT, situations};
use crate::fault_plan::PlannedFault;
use crate::history::{self, Affected, Event, EventKind, STALE_COPY, Timestamp, Wiped};
use crate::panicking_waker::may_meet_a_panic;
use crate::time::timestamp;

/// The operations of the backend that meet faults.
pub(super) const COMMANDS: [Op; 3] = [Op::Attempt, Op::Renew, Op::Release];

/// The kind of a fault after which the clients connect again.
pub(super) const RESTART: &str = "restart";

/// The kind of a fault at whose end attempts of its whole time are executed.
pub(super) const HANG: &str = "hang";

impl MemoryRun {
    /// Records each fault of the decorator when it happens. An outage is one fault, no matter how many commands it meets.
    pub(super) fn note_hits(&self) {
        let (history, time) = (self.history.clone(), self.context.time.clone());
        let (outage, planned) = (Arc::clone(&self.outage), Arc::clone(&self.planned));
        self.faults.on_hit(move |op, fault| {
            let lasts = match fault {
                Fault::FailBefore | Fault::FailAfter | Fault::Garbled | Fault::Double => {
                    Duration::ZERO
                }
                Fault::Delay(by)
                | Fault::DelayReply(by)
                | Fault::FailLate(by)
                | Fault::Late(by) => by,
                Fault::Never => RESPONSE_TIMEOUT,
                Fault::Hung | Fault::Muted => return,
            };
            let outage = outage.lock().unwrap();
            if outage
                .as_ref()
                .is_some_and(|(ops, all)| ops.contains(&op) && *all == fault)
            {
                return;
            }
            planned.fetch_sub(1, Ordering::Relaxed);
            let name = format!("{fault:?}");
            let name = name.split('(').next().unwrap_or_default();
            let happened = history::Fault {
                kind: format!("{op:?} {name}"),
                from: time.clock(),
                to: time.clock() + timestamp(whole_steps(lasts)),
                wiped: Wiped::Nothing,
                affected: affected(&[op]),
                heals: if fault == Fault::Double {
                    0
                } else {
                    timestamp(HEALS)
                },
                hit: true,
                delays_attempts: op == Op::Attempt && matches!(fault, Fault::Late(_)),
                reconnects: false,
            };
            let at = time.now();
            history.add(Event {
                at,
                what: EventKind::Fault(happened),
            });
        });
    }

    /// Whether the fault can meet anything. A spin lock waits without messages. Permits without a lease are never renewed,
    /// and are lost for ever if their semaphore is deleted.
    pub(super) fn applies(&self, fault: &MemoryFault) -> bool {
        let lock_kind = self.context.workload.lock_kind;
        match fault {
            MemoryFault::Mute => lock_kind != LockKind::Spin,
            MemoryFault::Wipe(_) | MemoryFault::Restart(_) => {
                lock_kind.has_lease() && lock_kind != LockKind::Latch
            }
            MemoryFault::StaleCopy | MemoryFault::Unpolled | MemoryFault::Untold(_) => {
                situations::plain(lock_kind).is_some()
            }
            MemoryFault::HotKeys => lock_kind == LockKind::Multi,
            MemoryFault::Forgotten => lock_kind == LockKind::Red,
            // A server remembers the outcome of a request for a number for some leases.
            MemoryFault::Hang => lock_kind.has_lease() && lock_kind != LockKind::Latch,
            _ if lock_kind == LockKind::Latch => true,
            MemoryFault::Next(op, _) => lock_kind.has_lease() || *op != Op::Renew,
            MemoryFault::Outage(ops) | MemoryFault::RepliesLost(ops) => {
                lock_kind.has_lease() || **ops != [Op::Renew]
            }
            MemoryFault::Slow(_) => true,
        }
    }

    pub(super) async fn apply(&self, step: &PlannedFault<MemoryFault>) {
        let from = self.context.time.clock();
        match &step.fault {
            MemoryFault::Next(op, fault) => {
                self.planned.fetch_add(1, Ordering::Relaxed);
                let op = match self.context.workload.lock_kind {
                    LockKind::Latch => Op::Adjust,
                    _ => *op,
                };
                self.faults.next(op, *fault);
            }
            MemoryFault::Outage(ops) => {
                let hit = self.all_meet(ops, Fault::Never, step.length).await;
                // A hold whose release failed ends by its lease.
                let kind = format!("outage of {ops:?}");
                let what = (Wiped::Nothing, affected(ops));
                self.note(&kind, from, what, LEASE, hit);
            }
            MemoryFault::RepliesLost(ops) => {
                let hit = self.all_meet(ops, Fault::FailAfter, step.length).await;
                let kind = format!("unheard {ops:?}");
                let what = (Wiped::Nothing, affected(ops));
                self.note(&kind, from, what, HEALS, hit);
            }
            MemoryFault::Slow(fault) => {
                let hit = self.all_meet(self.commands(), *fault, step.length).await;
                let what = (Wiped::Nothing, Affected::Everybody);
                self.note("slow", from, what, HEALS, hit);
            }
            MemoryFault::Mute => {
                let before = self.faults.hits(Op::Subscribe);
                let _fell = self.faults.mute();
                sleep(step.length).await;
                self.faults.unmute();
                let hit = self.faults.hits(Op::Subscribe) > before;
                self.note(
                    "deaf",
                    from,
                    (Wiped::Nothing, Affected::Nobody),
                    Duration::ZERO,
                    hit,
                );
            }
            MemoryFault::Wipe(key) => {
                let hit = self.wipe(key).await;
                let from = self.context.time.clock();
                let what = (Wiped::One(key.clone()), Affected::Nobody);
                self.note("wipe", from, what, Duration::ZERO, hit);
            }
            MemoryFault::Restart(key) => {
                let hit = self.wipe(key).await;
                self.faults.reconnect();
                let from = self.context.time.clock();
                let what = (Wiped::One(key.clone()), Affected::Nobody);
                self.note(RESTART, from, what, Duration::ZERO, hit);
            }
            MemoryFault::Hang => {
                let hit = self.hang(step.length).await;
                let what = (Wiped::Nothing, Affected::Everybody);
                self.note(HANG, from, what, HEALS, hit);
            }
            MemoryFault::StaleCopy => {
                if let Some((key, from)) = self.stale_copy().await {
                    let what = (Wiped::One(key), Affected::Nobody);
                    self.note(STALE_COPY, from, what, Duration::ZERO, true);
                }
            }
            MemoryFault::Unpolled => self.unpolled(step.length).await,
            MemoryFault::HotKeys => self.hot_keys().await,
            MemoryFault::Forgotten => self.forgotten_in_turn().await,
            MemoryFault::Untold(how) => self.untold(*how, step.length).await,
        }
    }

    /// All commands of these operations meet a fault for this long. Returns whether any did, after their answers.
    pub(super) async fn all_meet(&self, ops: &[Op], fault: Fault, length: Duration) -> bool {
        let ops = match self.context.workload.lock_kind {
            LockKind::Latch => self.commands(),
            _ => ops,
        };
        let before = self.hits();
        *self.outage.lock().unwrap() = Some((ops.to_vec(), fault));
        for op in ops {
            self.faults.always(*op, fault);
        }
        sleep(length).await;
        self.clear_faults();
        *self.outage.lock().unwrap() = None;
        if fault != Fault::FailAfter {
            sleep(RESPONSE_TIMEOUT).await;
        }
        self.hits() > before
    }

    /// Deletes a lock's data as soon as there is any.
    pub(super) async fn wipe(&self, key: &str) -> bool {
        let lock_kind = self.context.workload.lock_kind;
        let lock = lock_kind.lock_on(&self.admin, key);
        // Either side may hold a read/write lock.
        let writer = LockKind::Write.lock_on(&self.admin, key);
        for _ in 0..100 {
            let freed = async |lock: &AnyLock| {
                let mut has_panicked = false;
                loop {
                    match may_meet_a_panic(lock.force_release()).await {
                        Some(freed) => return freed.expect("no fault") || has_panicked,
                        // A waiter was woken, so a lock was freed. It may be on other servers still.
                        None => has_panicked = true,
                    }
                }
            };
            if freed(&lock).await || lock_kind == LockKind::Read && freed(&writer).await {
                if lock_kind == LockKind::Permit {
                    let semaphore = self.admin[0].expirable_semaphore(key);
                    let _set = semaphore.try_set_permits(PERMITS).await;
                }
                return true;
            }
            sleep(LEASE / 500).await;
        }
        false
    }

    /// The operations of the backend that meet faults in this run.
    pub(super) fn commands(&self) -> &'static [Op] {
        match self.context.workload.lock_kind {
            LockKind::Latch => &[Op::Adjust],
            _ => &COMMANDS,
        }
    }

    pub(super) fn hits(&self) -> usize {
        self.commands().iter().map(|op| self.faults.hits(*op)).sum()
    }

    pub(super) fn clear_faults(&self) {
        for op in self.commands() {
            self.faults.clear(*op);
        }
    }

    pub(super) fn note(
        &self,
        kind: &str,
        from: Timestamp,
        (wiped, affected): (Wiped, Affected),
        heals: Duration,
        hit: bool,
    ) {
        let (at, to) = (self.context.time.now(), self.context.time.clock());
        let fault = history::Fault {
            kind: kind.to_owned(),
            from,
            to,
            wiped,
            affected,
            heals: timestamp(heals),
            hit,
            delays_attempts: kind == HANG,
            // Only some of the servers of a Redlock are behind the faults.
            reconnects: [RESTART, STALE_COPY].contains(&kind) && self.servers.len() == 1,
        };
        self.history.add(Event {
            at,
            what: EventKind::Fault(fault),
        });
    }
}

/// How long a sleep of this time takes. Tokio's timers end at whole milliseconds.
fn whole_steps(sleep: Duration) -> Duration {
    Duration::from_millis(sleep.as_nanos().div_ceil(1_000_000) as u64)
}

/// Only faults of renewals may cost a hold.
pub(super) fn affected(ops: &[Op]) -> Affected {
    if ops.contains(&Op::Renew) {
        Affected::Everybody
    } else {
        Affected::Nobody
    }
}

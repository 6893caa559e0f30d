//! Faults that random operations rarely meet, each in a situation that shows its consequence.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock::test_util::{Answer, Kind, Verbs, locks};
use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use super::plan::Untold;
use super::{CLIENT_SETS, LEASE, LONGEST_LEASE, MemoryRun, RESPONSE_TIMEOUT};
use crate::history::{
    self, Affected, End, Event, EventKind, Operation, Operations, Timestamp, Wiped,
};
use crate::planned_operation::PlannedOperation;
use crate::time::timestamp;
use crate::worker::{Worker, other_key};
use distlock_tests::any_lock::LockKind;
use distlock_tests::resource::ResourceHandle;

/// How long another library takes a key for: longer than any waiter of a run may sleep.
const FOREIGN_LEASE: Duration = Duration::from_secs(60);

/// What a lease is cut to: longer than a waiter sleeps before it looks.
const CUT_TO: Duration = Duration::from_secs(6);

/// A waiter looks at its key when it has heard nothing for 5 s, and its look waits a moment for others.
const LOOKS_WITHIN: Duration = Duration::from_millis(5_200);

/// How long clients remember a release that was answered, less a moment.
const REMEMBERED: Timestamp = 4_900_000_000;

/// How long a key may still be free for somebody else after its release was recorded: until the release is answered, and
/// other tasks have recorded theirs.
const MOMENT: Duration = Duration::from_millis(5);

/// How many tasks want each of two keys, and for how long.
const HOT_TASKS: usize = 3;
const HOT_FOR: Duration = Duration::from_millis(600);

/// The number of an owner of another library.
const FOREIGN: u64 = 1;

/// How often a release is looked for that a copy may not have heard of.
const STALE_TRIES: usize = 20;

/// A release that a copy of the server has not heard of.
struct LastReleased {
    key: String,
    /// The text of the owner.
    owner: String,
    /// What would be left of the lease.
    left: Duration,
}

/// The kind of a lock whose data is one hash of its owner, and whose waiters listen to messages.
pub(super) fn plain(lock_kind: LockKind) -> Option<Kind> {
    match lock_kind {
        LockKind::Reentrant => Some(Kind::Reentrant),
        LockKind::NonReentrant => Some(Kind::NonReentrant),
        LockKind::Fenced => Some(Kind::Fenced),
        _ => None,
    }
}

impl MemoryRun {
    /// A server that hangs for longer than a lease. It executes the attempts that it was sent when it goes on. Returns
    /// whether there were any.
    pub(super) async fn hang(&self, length: Duration) -> bool {
        let before = self.faults.hits(Op::Attempt);
        let all = [
            (Op::Attempt, Fault::Hung),
            (Op::Renew, Fault::Never),
            (Op::Release, Fault::Never),
        ];
        for (op, fault) in all {
            *self.outage.lock().unwrap() = Some((vec![Op::Renew, Op::Release], Fault::Never));
            self.faults.always(op, fault);
        }
        sleep(length).await;
        self.clear_faults();
        *self.outage.lock().unwrap() = None;
        self.faults.go_on();
        // What was sent last is still without an answer.
        sleep(RESPONSE_TIMEOUT).await;
        self.faults.hits(Op::Attempt) > before
    }

    /// A copy of the server takes over that has not heard of the last release of a lock. Returns which lock, and when.
    pub(super) async fn stale_copy(&self) -> Option<(String, Timestamp)> {
        let lock_kind = self.context.workload.lock_kind;
        let kind = plain(lock_kind)?;
        for _ in 0..STALE_TRIES {
            let Some(last) = self.last_released() else {
                sleep(LEASE / 20).await;
                continue;
            };
            let from = self.context.time.clock();
            let (client, number) = last.owner.split_once(':')?;
            let verbs = Verbs::new(&self.admin[0], client.parse().ok()?).of_kind(kind);
            let number = number.parse().ok()?;
            // The copy does not know either what happened since the release, and sends no message about it.
            self.faults.silence(&last.key);
            let lock = lock_kind.lock_on(&self.admin, &last.key);
            lock.force_release().await.expect("no fault");
            let back = verbs.attempt(&last.key, number, last.left).await;
            assert!(back.is_ok(), "no fault");
            sleep(Duration::from_millis(1)).await;
            self.faults.tell_again(&last.key);
            // Clients that have just connected again, after another fault, may have sent the release in this moment, and
            // no client heard of it. The next message comes from here.
            let stored = locks(&self.servers[0]);
            if !stored
                .get(&last.key)
                .is_some_and(|holders| holders.contains_key(&last.owner))
            {
                let passing = verbs.attempt(&last.key, FOREIGN, LEASE).await;
                if passing.expect("no fault") == Answer::Granted {
                    verbs.release(&last.key, FOREIGN).await.expect("no fault");
                }
            }
            self.faults.reconnect();
            return Some((last.key, from));
        }
        None
    }

    /// The last release of a lock that somebody waits for, if it was answered and its owner has nothing in the server.
    fn last_released(&self) -> Option<LastReleased> {
        let now = self.context.time.clock();
        let operations = Operations::from_events(&self.history.events(), timestamp(LEASE));
        let stored = locks(&self.servers[0]);
        let of_key = |(key, ops): (&str, Vec<&Operation>)| {
            let is_waited_for = ops.iter().any(|op| op.returned.is_none());
            let released = ops.iter().filter_map(|op| match op.ended {
                Some((at, End::Released)) => Some((at, *op)),
                _ => None,
            });
            let (at, last) = released.max_by_key(|(at, _)| *at)?;
            let owner = last.owner.clone()?;
            let left = Duration::from_nanos(last.deadline.checked_sub(now)?);
            // A hold that was handed over is not released.
            let has_next =
                |op: &&Operation| op.owner.as_ref() == Some(&owner) && op.ended.is_none();
            let is_over = !stored
                .get(key)
                .is_some_and(|holders| holders.contains_key(&owner))
                && !ops.iter().any(has_next);
            let is_recent = (at + timestamp(MOMENT)..at + REMEMBERED).contains(&now);
            let key = key.to_owned();
            (is_waited_for && is_over && is_recent).then_some(LastReleased { key, owner, left })
        };
        let released = operations.by_key().into_iter().filter_map(of_key);
        released.max_by_key(|last| last.left)
    }

    /// A waiter whose acquisitions are not those of the workload, and its number.
    fn guest(&self) -> (Worker, u32) {
        let task = self.guests.fetch_add(1, Ordering::Relaxed);
        let program = &self.client_sets[self.context.seed as usize % CLIENT_SETS];
        let resource = ResourceHandle::Local(self.resource.clone());
        (Worker::new(&self.context, task, program, resource), task)
    }

    /// Records a fault that made a lock that no worker uses free, or free within this time, just now.
    fn note_of(&self, kind: String, key: &str) -> impl FnOnce(Duration) + Send + use<> {
        let (history, time) = (self.history.clone(), self.context.time.clone());
        let (key, from) = (key.to_owned(), time.clock());
        move |free_within| {
            let (at, to) = (time.now(), time.clock());
            let fault = history::Fault {
                kind,
                from,
                to,
                wiped: Wiped::One(key),
                affected: Affected::Nobody,
                heals: timestamp(free_within),
                hit: true,
                delays_attempts: false,
                reconnects: false,
            };
            let what = EventKind::Fault(fault);
            history.add(Event { at, what });
        }
    }

    /// Two tasks of a client wait for a lock that another client has. Then it is released, and the first of them is not
    /// polled.
    pub(super) async fn unpolled(&self, length: Duration) {
        let lock_kind = self.context.workload.lock_kind;
        let ((mut first, task), (mut next, _)) = (self.guest(), self.guest());
        let key = format!("unpolled:{task}");
        let lock = lock_kind.lock_on(&self.admin, &key);
        let held = lock.try_acquire().await.expect("no fault");
        let note = self.note_of(String::from("unpolled"), &key);
        let patient = PlannedOperation::patient(lock_kind, &key);
        let mut unpolled = patient.clone();
        unpolled.unpolled = Some(length);
        let mut situations = self.situations.lock().await;
        situations.spawn(async move { first.operate(&unpolled).await });
        situations.spawn(async move {
            sleep(LEASE / 20).await;
            next.operate(&patient).await;
        });
        situations.spawn(async move {
            sleep(LEASE / 5).await;
            note(Duration::ZERO);
            let held = held.expect("a lock that nobody else knows");
            held.release().await.expect("no fault");
        });
    }

    /// Tasks of one client want one of two keys, again and again, and one task wants both.
    pub(super) async fn hot_keys(&self) {
        let (both, task) = self.guest();
        let key = format!("hot:{task}");
        let end = self.context.time.clock() + timestamp(HOT_FOR);
        let mut situations = self.situations.lock().await;
        for key in [key.clone(), other_key(&key)] {
            for _ in 0..HOT_TASKS {
                let planned = PlannedOperation::patient(LockKind::Reentrant, &key);
                let (one, _) = self.guest();
                situations.spawn(one.repeat_until(planned, end));
            }
        }
        let planned = PlannedOperation::patient(LockKind::Multi, &key);
        situations.spawn(both.repeat_until(planned, end));
    }

    /// A Redlock is held, and each of its servers forgets it in turn. The hold comes back to each before the next one.
    pub(super) async fn forgotten_in_turn(&self) {
        let lock_kind = self.context.workload.lock_kind;
        let (mut holder, task) = self.guest();
        let key = format!("forgotten:{task}");
        let mut planned = PlannedOperation::patient(lock_kind, &key);
        // A server that forgets is asked again after a third of the longest lease.
        let pause = LONGEST_LEASE * 2 / 3;
        planned.work = pause * (self.servers.len() as u32 + 1);
        let (history, time) = (self.history.clone(), self.context.time.clone());
        let admin = self.admin.clone();
        let mut situations = self.situations.lock().await;
        situations.spawn(async move { holder.operate(&planned).await });
        situations.spawn(async move {
            for client in admin {
                sleep(pause).await;
                let lock = client.lock(&key);
                let (from, hit) = (time.clock(), lock.force_release().await.expect("no fault"));
                let fault = history::Fault {
                    kind: String::from("forgotten by one"),
                    from,
                    to: from,
                    wiped: Wiped::Nothing,
                    affected: Affected::Nobody,
                    heals: 0,
                    hit,
                    delays_attempts: false,
                    reconnects: false,
                };
                let (at, what) = (time.now(), EventKind::Fault(fault));
                history.add(Event { at, what });
            }
        });
    }

    /// Another library holds a lock for a long time. A task begins to wait for it, and sleeps. Then the lock becomes free, or its
    /// lease is cut short, without a message.
    pub(super) async fn untold(&self, how: Untold, length: Duration) {
        let lock_kind = self.context.workload.lock_kind;
        let Some(kind) = plain(lock_kind) else {
            return;
        };
        let (mut waiter, task) = self.guest();
        let key = format!("untold:{task}");
        let foreign = Verbs::new(&self.admin[0], self.admin[0].id()).of_kind(kind);
        let taken = foreign.attempt(&key, FOREIGN, FOREIGN_LEASE).await;
        assert_eq!(taken.expect("no fault"), Answer::Granted);
        let note = self.note_of(format!("untold {how:?}"), &key);
        let planned = PlannedOperation::patient(lock_kind, &key);
        let (faults, admin) = (self.faults.clone(), self.admin.clone());
        let mut situations = self.situations.lock().await;
        situations.spawn(async move { waiter.operate(&planned).await });
        situations.spawn(async move {
            // Long enough that the waiter sleeps.
            sleep(LEASE / 10 + length).await;
            faults.silence(&key);
            let lock = lock_kind.lock_on(&admin, &key);
            lock.force_release().await.expect("no fault");
            note(match how {
                Untold::Deleted => LOOKS_WITHIN,
                Untold::CutShort => {
                    let cut = foreign.attempt(&key, FOREIGN, CUT_TO).await;
                    assert_eq!(cut.expect("no fault"), Answer::Granted);
                    // A waiter counts what is left from the answer on, which may come as late as any.
                    CUT_TO + RESPONSE_TIMEOUT
                }
            });
            // The message passes meanwhile.
            sleep(MOMENT).await;
            faults.tell_again(&key);
        });
    }
}

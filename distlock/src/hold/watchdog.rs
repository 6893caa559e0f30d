//! Renews the leases of all holds of one client, from one task, and finds those that are lost.
//!
//! # Invariants
//! 1. A hold is watched from its grant to its release or loss. It is registered by owner and not by key, so that an
//!    expired hold does not affect the next hold on its key.
//! 2. A deadline counts from before the command was sent, on this process's own clock.
//! 3. A released hold is never renewed: its lease ends first, and then nothing is due any more.
//! 4. Losses do not wait for renewals: answers arrive while the task sleeps to the next deadline.
//! 5. Only a few batches of many holds are under way at a time, so that no renewal times out behind the others. A
//!    renewal counts as sent when its batch is sent.
//! 6. A hold that the server may have lost is confirmed ahead of its time, by a renewal: after it was handed over, and
//!    when a connection stands anew.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::lease::Answer;
use super::{Hold, Session, WatchdogAction};
use crate::backend::{Fault, Renewal};
use crate::clock::Tick;
use crate::config::{INSPECTION_PAUSE, RENEWAL_BATCH, RENEWALS_AT_ONCE};
use crate::owner::Owner;
use crate::telemetry;

/// The watched holds, by owner and by the time of the next look at them.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    agenda: Mutex<Agenda>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Agenda {
    holds: HashMap<Owner, (Arc<Hold>, Tick), RandomState>,
    order: BTreeSet<(Tick, Owner)>,
    /// When the task wakes by itself, if it does. It may find nothing to do then, which is cheaper than a wake-up for each
    /// hold that comes and goes in between.
    armed: Option<Tick>,
}

impl Agenda {
    /// Plans a look at the hold at `at`, unless an earlier one is planned.
    fn look_at(&mut self, owner: Owner, at: Tick) {
        let Some((_, planned)) = self.holds.get_mut(&owner) else {
            return;
        };
        if at >= *planned {
            return;
        }
        self.order.remove(&(*planned, owner));
        *planned = at;
        self.order.insert((at, owner));
    }

    /// Returns whether the task has to be woken, because it would otherwise wake too late.
    fn arm(&mut self, at: Tick) -> bool {
        let earlier = at < self.armed.unwrap_or(Tick::NEVER);
        if earlier {
            self.armed = Some(at);
        }
        earlier
    }

    fn take_due(&mut self, now: Tick) -> Vec<Arc<Hold>> {
        let mut due = Vec::new();
        while let Some(&(at, owner)) = self.order.first() {
            if at > now {
                break;
            }
            self.order.pop_first();
            if let Some((hold, planned)) = self.holds.get_mut(&owner) {
                *planned = Tick::NEVER;
                due.push(Arc::clone(hold));
            }
        }
        // By family, because all renewals of a batch belong to one family.
        due.sort_by_key(|hold| hold.resource.kind.family());
        due
    }
}

impl Watchdog {
    pub(super) fn watch(&self, hold: &Arc<Hold>, at: Tick) {
        let mut agenda = self.agenda.lock();
        let watched = (Arc::clone(hold), Tick::NEVER);
        agenda.holds.insert(hold.owner, watched);
        agenda.look_at(hold.owner, at);
        let wake = agenda.arm(at);
        drop(agenda);
        self.wake_if(wake);
    }

    /// Plans a look at the hold at `at`, unless an earlier one is planned.
    pub(super) fn look_at(&self, owner: Owner, at: Tick) {
        let mut agenda = self.agenda.lock();
        agenda.look_at(owner, at);
        let wake = agenda.arm(at);
        drop(agenda);
        self.wake_if(wake);
    }

    pub(super) fn unwatch(&self, owner: Owner) -> bool {
        let mut agenda = self.agenda.lock();
        let Some((_, planned)) = agenda.holds.remove(&owner) else {
            return false;
        };
        agenda.order.remove(&(planned, owner));
        true
    }

    pub(super) fn find(&self, owner: Owner) -> Option<Arc<Hold>> {
        let agenda = self.agenda.lock();
        agenda.holds.get(&owner).map(|(hold, _)| Arc::clone(hold))
    }

    #[cfg(feature = "test-util")]
    pub(super) fn len(&self) -> usize {
        self.agenda.lock().holds.len()
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    fn wake_if(&self, wake: bool) {
        if wake {
            self.wake.notify_one();
        }
    }

    /// All watched holds.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        let agenda = self.agenda.lock();
        let holds = agenda.holds.values();
        holds.map(|(hold, _)| Arc::clone(hold)).collect()
    }

    /// Plans a look at every hold, because the renewals that a former task had in flight will not be answered.
    fn restart(&self, now: Tick) {
        for hold in self.holds() {
            hold.forget_in_flight();
            self.look_at(hold.owner, now);
        }
    }

    fn take_due(&self, now: Tick) -> Vec<Arc<Hold>> {
        self.agenda.lock().take_due(now)
    }

    /// When to wake next. An alarm in the future is kept even if its hold is gone.
    fn next_alarm(&self, now: Tick) -> Tick {
        let mut agenda = self.agenda.lock();
        if agenda.armed.is_none_or(|armed| armed <= now) {
            agenda.armed = agenda.order.first().map(|(at, _)| *at);
        }
        agenda.armed.unwrap_or(Tick::NEVER)
    }
}

/// A hold, the count to state and the lease to ask for.
type Planned = (Arc<Hold>, u32, Duration);

/// The watchdog task of one client.
pub(super) async fn run(session: Arc<Session>) {
    let watchdog = &session.watchdog;
    let epoch = session.backend.epoch();
    watchdog.restart(session.now());
    // A connection may have been replaced while no task ran.
    session.reconnected(epoch);
    let mut replaced = session.backend.epoch_after(epoch);
    let (mut waiting, mut renewals) = (VecDeque::new(), FuturesUnordered::new());
    let mut inspect_at = Tick::NEVER;
    while !session.is_retired() {
        let now = session.now();
        take_up(&session, now, &mut waiting);
        while renewals.len() < RENEWALS_AT_ONCE && !waiting.is_empty() {
            let batch = next_batch(&session, now, &mut waiting);
            if !batch.is_empty() {
                renewals.push(renew(Arc::clone(&session), now, batch));
            }
        }
        if now >= inspect_at {
            inspect_at = Tick::NEVER;
            session.inspection.check_heads();
        }
        if inspect_at == Tick::NEVER && session.inspection.wants_check() {
            inspect_at = now.after(INSPECTION_PAUSE);
        }
        let tell_at = session.inspection.tell_long_waits(now);
        let next = watchdog.next_alarm(now).min(inspect_at).min(tell_at);
        tokio::select! {
            () = watchdog.wake.notified() => {}
            () = session.clock.sleep_until(next) => {}
            Some(()) = renewals.next() => {}
            epoch = &mut replaced => {
                session.reconnected(epoch);
                replaced = session.backend.epoch_after(epoch);
            }
        }
    }
}

/// Handles losses at once. A hold that is to be renewed waits for a batch, and is looked at again when it would be lost.
fn take_up(session: &Arc<Session>, now: Tick, waiting: &mut VecDeque<Arc<Hold>>) {
    for hold in session.watchdog.take_due(now) {
        let end = hold.end();
        if hold.is_held(now) && now < end {
            session.watchdog.look_at(hold.owner, end);
            waiting.push_back(hold);
        } else {
            attend_to(session, &hold, now);
        }
    }
}

/// The first holds that wait, as long as they are of one family: each family has a script of its own.
fn next_batch(
    session: &Arc<Session>,
    now: Tick,
    waiting: &mut VecDeque<Arc<Hold>>,
) -> Vec<Planned> {
    let mut batch = Vec::new();
    let Some(family) = waiting.front().map(|hold| hold.resource.kind.family()) else {
        return batch;
    };
    while batch.len() < RENEWAL_BATCH {
        if waiting
            .front()
            .is_none_or(|hold| hold.resource.kind.family() != family)
        {
            break;
        }
        let Some(hold) = waiting.pop_front() else {
            break;
        };
        if let Some((count, lease)) = attend_to(session, &hold, now) {
            batch.push((hold, count, lease));
        }
    }
    batch
}

/// Takes the action that is due for a hold. If that is a renewal, returns its count and its lease.
fn attend_to(session: &Arc<Session>, hold: &Arc<Hold>, now: Tick) -> Option<(u32, Duration)> {
    match hold.next_action(now) {
        WatchdogAction::Renew { count, lease } => return Some((count, lease)),
        WatchdogAction::Later(at) => session.watchdog.look_at(hold.owner, at),
        WatchdogAction::Lost(loss) => session.lose(hold, loss),
        WatchdogAction::Over => drop(session.unwatch(hold)),
    }
    None
}

async fn renew(session: Arc<Session>, sent: Tick, planned: Vec<Planned>) {
    let batch: Vec<Renewal> = planned
        .iter()
        .map(|(hold, count, lease)| Renewal {
            target: hold.target(),
            count: *count,
            lease: *lease,
        })
        .collect();
    let answers = ask(&session, &batch).await;
    let now = session.now();
    for ((hold, count, lease), answer) in planned.into_iter().zip(answers) {
        match hold.renewed(sent, (count, lease), answer, now) {
            Some(loss) => session.lose(&hold, loss),
            None => session.look_again(&hold),
        }
    }
}

/// Renews a batch. If the server refuses the batch as a whole, the reason may be a single hold, such as a key that the user
/// may no longer access. Each hold is then renewed by itself, so that none is lost because of another.
async fn ask(session: &Session, batch: &[Renewal]) -> Vec<Answer> {
    let told = |ours: bool| {
        if ours {
            Answer::Renewed
        } else {
            Answer::NotOurs
        }
    };
    match session.backend.renew(batch).await {
        Ok(ours) => {
            session.answered_other();
            ours.into_iter().map(told).collect()
        }
        Err(fault) if batch.len() > 1 && !matches!(fault, Fault::Unknown(_)) => {
            let alone = |renewal: Renewal| async move {
                match session.backend.renew(&[renewal]).await {
                    Ok(ours) => ours.first().copied().map_or(Answer::Unknown, told),
                    Err(fault) => failed(session, 1, &fault),
                }
            };
            let alone = stream::iter(batch.to_vec()).map(alone);
            alone.buffered(RENEWALS_AT_ONCE).collect().await
        }
        Err(fault) => vec![failed(session, batch.len(), &fault); batch.len()],
    }
}

fn failed(session: &Session, holds: usize, fault: &Fault) -> Answer {
    telemetry::renewal_failed(holds, fault, !session.backend.is_connected());
    Answer::Unknown
}

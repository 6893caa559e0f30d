//! Renews the leases of all holds of one client, from one task, and finds those that are lost.
//!
//! # Invariants
//! 1. A hold is watched from its grant to its release or loss. It is registered by owner and not by key, so that an
//!    expired hold does not affect the next hold on its key. Only the code that releases it or declares its loss removes it.
//! 2. A deadline counts from before the command was sent, on this process's own clock.
//! 3. A released hold is never renewed: its lease ends first, and then nothing is due any more.
//! 4. Losses do not wait for renewals: answers arrive while the task sleeps to the next deadline.
//! 5. Only a few batches of many holds are under way to a server at a time, so that no renewal times out behind the others.
//!    A server that does not answer delays no renewals on other servers. A renewal counts as sent when its batch is sent.
//!    A batch is filled up with holds that are due soon, so that few scripts renew many holds.
//! 6. A hold that the server may have lost is confirmed ahead of its time, by a renewal: after it was handed over, and
//!    when a connection is re-established.

mod agenda;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, FuturesUnordered, StreamExt};

use self::agenda::Agenda;
use super::callbacks::Inspection;
use super::{Session, tracking};
use crate::backend::{Fault, Renewal};
use crate::clock::Tick;
use crate::config::{
    INSPECTION_PAUSE, RENEWAL_BATCH, RENEWALS_AT_ONCE, RENEWALS_PER_LEASE, RENEWED_EARLY,
};
use crate::hold::lease::Answer;
use crate::hold::{Confirmed, DueRenewal, Hold, Lease, WatchdogAction};
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::sync::{Mutex, MutexGuard};
use crate::sync::{Notify, foreign};
use crate::telemetry;

/// The watched holds, and the task's way to learn of a change.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    agenda: Mutex<Agenda<Arc<Hold>>>,
    wake: Notify,
    pub(crate) inspection: Inspection,
}

impl Watchdog {
    /// Watches the hold from now on. Returns whether it was not watched before.
    pub(super) fn watch(&self, hold: &Arc<Hold>, at: Tick) -> bool {
        let mut agenda = self.agenda.lock();
        let is_new = agenda.add(hold.number(), Arc::clone(hold), at);
        self.wake_by(agenda, at);
        is_new
    }

    /// Plans a look at the hold at `at`, unless an earlier one is planned.
    pub(super) fn schedule_check(&self, number: u64, at: Tick) {
        self.look(self.agenda.lock(), number, at);
    }

    /// Plans a look at each of these holds at its time, unless an earlier one is planned.
    fn schedule_checks(&self, checks: &[(u64, Tick)]) {
        if let Some(first) = checks.iter().map(|(_, at)| *at).min() {
            let mut agenda = self.agenda.lock();
            agenda.schedule_checks(checks);
            self.wake_by(agenda, first);
        }
    }

    /// Plans the next look at the hold.
    pub(super) fn look_again(&self, hold: &Hold) {
        self.schedule_check(hold.number(), hold.next_check());
    }

    /// Plans a look for long waits at `due`.
    pub(crate) fn inspect_waits_by(&self, due: Tick) {
        if due != Tick::NEVER && self.inspection.look_by(due) {
            self.wake();
        }
    }

    /// Has the task check the first waiters after [`INSPECTION_PAUSE`].
    pub(crate) fn inspect_soon(&self) {
        if self.inspection.want_check() {
            self.wake();
        }
    }

    fn look(&self, mut agenda: MutexGuard<'_, Agenda<Arc<Hold>>>, number: u64, at: Tick) {
        agenda.schedule_check(number, at);
        self.wake_by(agenda, at);
    }

    /// Has the task wake up at this time at the latest.
    fn wake_by(&self, mut agenda: MutexGuard<'_, Agenda<Arc<Hold>>>, at: Tick) {
        let wake = agenda.arm(at);
        // A waker may run any code, so not under the mutex.
        drop(agenda);
        if wake {
            foreign::notify_own_task(&self.wake);
        }
    }

    pub(super) fn unwatch(&self, number: u64) -> bool {
        self.agenda.lock().remove(number)
    }

    /// The hold of this client's owner with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Hold>> {
        self.agenda.lock().get(number).map(Arc::clone)
    }

    /// The number of guards of the hold of this client's owner with this number.
    pub(crate) fn count_of(&self, number: u64) -> Option<u32> {
        self.find(number).map(|hold| hold.count())
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.agenda.lock().get(number).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.agenda.lock().holds().len() == 0
    }

    /// How many holds it takes care of.
    pub(crate) fn len(&self) -> usize {
        self.agenda.lock().holds().len()
    }

    pub(super) fn wake(&self) {
        foreign::notify_own_task(&self.wake);
    }

    /// All watched holds: those that are neither released nor lost.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.agenda.lock().holds().map(Arc::clone).collect()
    }

    /// The watched holds that may be tracked by the server, and are not yet.
    pub(super) fn untracked(&self) -> Vec<Arc<Hold>> {
        let agenda = self.agenda.lock();
        let holds = agenda.holds();
        let untracked =
            holds.filter(|hold| !hold.is_tracked.is_set() && hold.resource.kind.has_lease());
        untracked.map(Arc::clone).collect()
    }

    /// All watched holds; none if their mutex is not free within this time.
    pub(super) fn holds_within(&self, time: Duration) -> Vec<Arc<Hold>> {
        let agenda = self.agenda.try_lock_for(time);
        agenda.map_or_else(Vec::new, |agenda| agenda.holds().map(Arc::clone).collect())
    }

    /// Plans a look at every hold, because the renewals that a former task had in flight will not be answered.
    fn restart(&self, now: Tick) {
        for hold in self.holds() {
            hold.with_lease(Lease::forget_in_flight);
            self.schedule_check(hold.number(), now);
        }
    }

    fn take_due(&self, now: Tick, soon: Tick) -> Vec<Arc<Hold>> {
        self.agenda.lock().take_due(now, soon)
    }

    fn next_alarm(&self, now: Tick) -> Tick {
        self.agenda.lock().next_alarm(now)
    }
}

/// A hold, the count to state and the lease to ask for.
type Planned = (Arc<Hold>, u32, Duration);

/// Holds that are renewed together.
struct Batch {
    planned: Vec<Planned>,
    /// The numbers of these holds, and when each is lost if the renewal is not answered.
    ends: Vec<(u64, Tick)>,
}

/// A hold that waits for a batch, and whether a look at it is planned for the time when it would be lost.
type Queued = (Arc<Hold>, bool);

/// The watchdog task of one client. It also has old holds tracked by the server, and watches for suspends of the machine, for
/// all sleepers of its client.
pub(super) async fn run(session: Arc<Session>) {
    crate::sync::select! {
        () = renew_until_retired(&session) => {}
        () = tracking::follow(&session) => {}
        never = session.clock.watch() => match never {},
    }
}

async fn renew_until_retired(session: &Arc<Session>) {
    let watchdog = &session.watchdog;
    // Before the holds are looked at: a connection that is replaced meanwhile completes `replaced`.
    let changes = session.backend.epoch_changes();
    watchdog.restart(session.now());
    // A connection may have been replaced while no task ran.
    session.reconnected();
    let mut replaced = session.backend.epoch_changes_after(changes);
    let mut waiting = Waiting::default();
    let mut renewals = FuturesUnordered::new();
    let mut inspect_at = Tick::NEVER;
    while !session.retirement.has_begun() {
        let now = session.now();
        let soon = now.after(session.config.watchdog_timeout / RENEWALS_PER_LEASE / RENEWED_EARLY);
        for hold in watchdog.take_due(now, soon) {
            waiting.add(session, hold);
        }
        while let Some((server, batch)) = waiting.next_batch(session, now, soon) {
            let renewed = renew(Arc::clone(session), now, batch);
            renewals.push(renewed.map(move |()| server));
        }
        // Usually there are none: each look at a hold costs a cache miss.
        waiting.look_at_those_left(session, now, soon);
        if now >= inspect_at {
            // If this look is late, the others may not have run either since they were asked.
            let is_late = now.since(inspect_at) >= INSPECTION_PAUSE / 2;
            inspect_at = Tick::NEVER;
            let look_for_absent = || session.unguarded.look_for_absent(session, is_late);
            session.watchdog.inspection.check(look_for_absent);
        }
        if inspect_at == Tick::NEVER && session.watchdog.inspection.wants_check() {
            inspect_at = now.after(INSPECTION_PAUSE);
        }
        let tell_at = session.watchdog.inspection.tell_long_waits(now);
        let next = watchdog.next_alarm(now).min(inspect_at).min(tell_at);
        crate::sync::select! {
            () = watchdog.wake.notified() => {}
            () = session.clock.sleep_until(next) => {}
            Some(server) = renewals.next() => waiting.answered(server),
            changes = &mut replaced => {
                session.reconnected();
                replaced = session.backend.epoch_changes_after(changes);
            }
        }
    }
}

/// The holds that wait for a batch.
///
/// The holds of a batch share the server, because it answers for all of them or for none, and the family, because each has a
/// separate script.
#[derive(Default)]
struct Waiting {
    lines: BTreeMap<(u32, Family), VecDeque<Queued>>,
    /// How many batches are under way to each server.
    under_way: HashMap<u32, usize>,
}

impl Waiting {
    fn add(&mut self, session: &Session, hold: Arc<Hold>) {
        let Resource { kind, key } = &hold.resource;
        let line = (session.backend.home(key).server, kind.family());
        self.lines.entry(line).or_default().push_back((hold, false));
    }

    /// Handles losses at once among the holds that have just been added and could not be sent. The others are looked at again when
    /// they would be lost.
    fn look_at_those_left(&mut self, session: &Arc<Session>, now: Tick, soon: Tick) {
        // If a waker panics, the task begins anew and looks at every hold.
        let mut ends = Vec::new();
        for line in self.lines.values_mut() {
            let added = line
                .iter_mut()
                .rev()
                .take_while(|(_, is_planned)| !is_planned);
            for (hold, is_planned) in added {
                *is_planned = true;
                let end = hold.lease(|lease| lease.is_held(now).then(|| lease.end()));
                match end.filter(|end| now < *end) {
                    Some(end) => ends.push((hold.number(), end)),
                    // It is lost, and nothing is sent for it when its place in the line comes. Or another guard has just joined it: then
                    // it is renewed in its place.
                    None => {
                        if let Some(renewal) = attend_to(session, hold, now, soon) {
                            hold.with_lease(Lease::forget_in_flight);
                            ends.push((hold.number(), renewal.end));
                        }
                    }
                }
            }
        }
        session.watchdog.schedule_checks(&ends);
    }

    /// The first batch for a server that has not too many under way, and the number of that server.
    fn next_batch(
        &mut self,
        session: &Arc<Session>,
        now: Tick,
        soon: Tick,
    ) -> Option<(u32, Batch)> {
        for ((server, _), line) in &mut self.lines {
            let under_way = self.under_way.entry(*server).or_default();
            // The line of another server may go on: one that does not answer delays only its own holds.
            if *under_way >= RENEWALS_AT_ONCE {
                continue;
            }
            let room = line.len().min(RENEWAL_BATCH);
            // If a waker panics, the task begins anew and looks at every hold.
            let mut batch = Batch {
                planned: Vec::with_capacity(room),
                ends: Vec::with_capacity(room),
            };
            while batch.planned.len() < RENEWAL_BATCH
                && let Some((hold, _)) = line.pop_front()
            {
                if let Some(renewal) = attend_to(session, &hold, now, soon) {
                    let DueRenewal { count, lease, end } = renewal;
                    batch.ends.push((hold.number(), end));
                    batch.planned.push((hold, count, lease));
                }
            }
            if !batch.planned.is_empty() {
                *under_way += 1;
                return Some((*server, batch));
            }
        }
        // Servers may have gone.
        self.lines.retain(|_, line| !line.is_empty());
        self.under_way.retain(|_, under_way| *under_way > 0);
        None
    }

    /// A batch was answered by a server, or was not answered in time.
    fn answered(&mut self, server: u32) {
        if let Some(under_way) = self.under_way.get_mut(&server) {
            *under_way -= 1;
        }
    }
}

/// Takes the action that is due for a hold. If that is a renewal, returns it.
fn attend_to(
    session: &Arc<Session>,
    hold: &Arc<Hold>,
    now: Tick,
    soon: Tick,
) -> Option<DueRenewal> {
    match hold.next_action(now, soon) {
        WatchdogAction::Renew(renewal) => return Some(renewal),
        WatchdogAction::Later(at) => session.watchdog.schedule_check(hold.number(), at),
        WatchdogAction::Lost(loss) => {
            let epoch = session.backend.epoch(&hold.resource.key);
            session.lose(hold, loss, epoch);
        }
        // The code that has ended it removes it. It would take one that is not here any more for declared.
        WatchdogAction::Over => {}
    }
    None
}

async fn renew(session: Arc<Session>, sent: Tick, batch: Batch) {
    let Batch { planned, ends } = batch;
    let batch: Vec<Renewal> = planned
        .iter()
        .map(|(hold, count, lease)| Renewal {
            target: hold.target(),
            count: *count,
            lease: *lease,
            track: session.tracking.is_to_track(hold),
        })
        .collect();
    // Before they are sent: so each answer comes over this connection or a later one.
    let epochs = planned
        .iter()
        .map(|(hold, ..)| session.backend.epoch(&hold.resource.key));
    let epochs: Vec<u64> = epochs.collect();
    let answers = answers_or_ends(&session, &batch, &ends).await;
    let now = session.now();
    // If a waker panics, the task begins anew and looks at every hold.
    let mut checks = Vec::with_capacity(planned.len());
    for (((hold, count, lease), epoch), answer) in planned.into_iter().zip(epochs).zip(answers) {
        // With the count that was sent: the present one may be another, and is then stated next.
        let (confirmed, next_check) = hold.renewed(sent, count, lease, answer, now);
        if let Confirmed::Lost(loss) = confirmed {
            session.lose(&hold, loss, epoch);
            continue;
        }
        checks.push((hold.number(), next_check));
        if let Confirmed::Longer = confirmed {
            hold.over.announce_change();
        }
    }
    session.watchdog.schedule_checks(&checks);
}

/// Renews a batch. Once the first of its holds would be lost, a look at each of them is planned for its `end`: losses do not wait
/// for the answer. Nearly always the answer comes before that, and no look is planned in vain.
async fn answers_or_ends(
    session: &Session,
    batch: &[Renewal],
    ends: &[(u64, Tick)],
) -> Vec<Answer> {
    let first_end = ends.iter().map(|(_, end)| *end).min();
    let mut asked = pin!(ask(session, batch));
    crate::sync::select! {
        biased;
        answers = &mut asked => return answers,
        () = session.clock.sleep_until(first_end.unwrap_or(Tick::NEVER)) => {}
    }
    session.watchdog.schedule_checks(ends);
    asked.await
}

/// Renews a batch. If the server refuses several holds, the reason may be a single one, such as a key that the user may no
/// longer access. Each of them is then renewed alone, so that none is lost because of another.
async fn ask(session: &Session, batch: &[Renewal]) -> Vec<Answer> {
    let mut renewed = session.backend.renew(batch).await;
    if batch.len() > 1 {
        let was_refused = |at: &usize| {
            // Not after an unknown outcome: each of them would wait for another timeout.
            let one = renewed.get(*at);
            matches!(one, Some(Err(fault)) if !matches!(fault, Fault::Unknown(_)))
        };
        let refused: Vec<usize> = (0..batch.len()).filter(was_refused).collect();
        let alone = |at: usize| async move {
            // With the lease of the first try, which counts from an earlier time and is therefore safe.
            let mut one = session.backend.renew(&batch[at..=at]).await;
            (at, one.pop())
        };
        let alone = stream::iter(refused).map(alone).buffered(RENEWALS_AT_ONCE);
        for (at, answer) in alone.collect::<Vec<_>>().await {
            if let Some(answer) = answer {
                renewed[at] = answer;
            }
        }
    }
    answers(session, batch, renewed)
}

/// What the answers mean. Faults are logged together.
fn answers(session: &Session, batch: &[Renewal], renewed: Vec<Result<bool, Fault>>) -> Vec<Answer> {
    let answered = batch.iter().zip(&renewed).find(|(_, one)| one.is_ok());
    if let Some((renewal, _)) = answered {
        session.outages.answered_other(&renewal.target.resource.key);
    }
    let faults = renewed.iter().filter_map(|one| one.as_ref().err());
    if let (Some(fault), Some(first)) = (faults.clone().next(), batch.first()) {
        let disconnected = session.backend.disconnected(&first.target.resource.key);
        telemetry::renewal_failed(faults.count(), fault, disconnected.is_some());
    }
    let number = |outcome: fn(&Result<bool, Fault>) -> bool| {
        let outcomes = renewed.iter();
        outcomes.filter(|one| outcome(one)).count()
    };
    telemetry::renewals(
        number(|one| matches!(one, Ok(true))),
        number(|one| matches!(one, Ok(false))),
        number(Result::is_err),
    );
    let answer = |one: Result<bool, Fault>| match one {
        Ok(true) => Answer::Renewed,
        Ok(false) => Answer::NotOurs,
        Err(_) => Answer::Unknown,
    };
    renewed.into_iter().map(answer).collect()
}

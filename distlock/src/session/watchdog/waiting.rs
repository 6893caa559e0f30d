//! The holds that are due and wait for a batch of their server.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::batch::Batch;
use crate::clock::Tick;
use crate::config::{RENEWAL_BATCH, RENEWALS_AT_ONCE};
use crate::hold::{DueRenewal, Hold, Lease, WatchdogAction};
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::session::Session;

/// A hold that waits for a batch, and whether a check of it is planned for the time when it would be lost.
type Queued = (Arc<Hold>, bool);

/// The holds that wait for a batch.
///
/// The holds of a batch share the server, because it answers for all of them or for none, and the family, because each has a
/// separate script.
#[derive(Default)]
pub(super) struct Waiting {
    lines: BTreeMap<(u32, Family), VecDeque<Queued>>,
    /// How many batches are under way to each server.
    under_way: HashMap<u32, usize>,
}

impl Waiting {
    pub(super) fn add(&mut self, session: &Session, holds: Vec<Arc<Hold>>) {
        let line_of = |hold: &Arc<Hold>| {
            let Resource { kind, key } = &hold.resource;
            (session.backend.home(key).server, kind.family())
        };
        let mut holds = holds.into_iter();
        // Nearly always all of them are of one line, which is searched for once.
        while let Some(first) = holds.as_slice().first() {
            let of_first = line_of(first);
            let is_of_line = |hold: &&Arc<Hold>| line_of(hold) == of_first;
            let many = holds.as_slice().iter().take_while(is_of_line).count();
            let line = self.lines.entry(of_first).or_default();
            line.extend(holds.by_ref().take(many).map(|hold| (hold, false)));
        }
    }

    /// Handles losses at once among the holds that have just been added and could not be sent. The others are checked again when
    /// they would be lost.
    pub(super) fn check_those_left(&mut self, session: &Arc<Session>, now: Tick, soon: Tick) {
        // If a waker panics, the task begins anew and checks every hold.
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
    pub(super) fn next_batch(
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
            // If a waker panics, the task begins anew and checks every hold.
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
    pub(super) fn answered(&mut self, server: u32) {
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

//! The keys whose first waiter is checked at intervals, because somebody needs it, and what a check finds.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::entry::{self, Entries, KeyWaiters};
use super::queue::{HeadCheck, QueueEffect, Ticket};
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::hold::Hold;
use crate::resource::key::{Key, Resource};
use crate::sync::{Mutex, table};

/// The keys whose first waiter is checked. Their mutex is taken after that of the entries.
#[derive(Debug, Default)]
pub(super) struct CheckedHeads(Mutex<HashSet<Resource, RandomState>>);

/// What a check has found. The caller carries it out, without a mutex.
pub(super) struct FoundHeads {
    /// First waiters that are asked for a sign.
    pub(super) asked: Vec<Arc<SlotWaker>>,
    /// Those that have not been polled since the last check. They have lost their places.
    pub(super) absent: Vec<(Key, Arc<SlotWaker>)>,
    /// What follows in their queues.
    pub(super) effects: Vec<QueueEffect<Arc<Hold>, Arc<SlotWaker>>>,
    /// Whether any key is checked again.
    pub(super) is_any_left: bool,
}

impl CheckedHeads {
    /// Has the first waiter of this key checked at intervals, if somebody needs it. Returns whether the checks
    /// [begin soon](crate::session::Watchdog::check_waiters_soon), which the caller asks for outside of the mutex.
    #[must_use]
    pub(super) fn check_later(&self, waiters: &mut KeyWaiters, resource: &Resource) -> bool {
        let is_new = !waiters.is_checked && waiters.queue.needs_its_head();
        if is_new {
            waiters.is_checked = true;
            self.0.lock().insert(resource.clone());
        }
        is_new
    }

    /// Checks the first waiters of all queues where somebody needs them. One that has not been polled since the last check
    /// loses its place, and the hold in its slot goes on to the next one.
    pub(super) fn check(&self, entries: &mut Entries, now: Tick) -> FoundHeads {
        let mut asked = Vec::new();
        let mut absent = Vec::new();
        let mut effects = Vec::new();
        let mut tickets = BTreeSet::new();
        let mut checked = self.0.lock();
        checked.retain(|resource| {
            // Its last waiter has left, and what was known of its waiters has gone, or the whole entry.
            let entry = entries.get_mut(resource);
            let Some(entry) = entry.filter(|entry| entry.waiters().is_some()) else {
                return false;
            };
            let waiters = entry.waiters_mut();
            match waiters.queue.check_head(|head| head.is_present()) {
                HeadCheck::Fine => waiters.is_checked = false,
                HeadCheck::Ask(head) => asked.push(head),
                HeadCheck::Absent(ticket, head) => {
                    absent.push((resource.key.clone(), head));
                    tickets.insert(ticket);
                    let effect = waiters.queue.leave(ticket, |hold| hold.may_pass_on(now));
                    effects.push(effect);
                }
            }
            let is_checked = waiters.is_checked;
            if entry.is_idle() {
                entry::remove(entries, resource);
                return false;
            }
            is_checked
        });
        if !tickets.is_empty() {
            leave_all_queues(entries, &tickets, now, &mut effects);
        }
        FoundHeads {
            asked,
            absent,
            effects,
            is_any_left: !checked.is_empty(),
        }
    }
}

/// Removes these waiters from all queues. A waiter for several keys has one ticket in all their queues, and is absent in each.
fn leave_all_queues(
    entries: &mut Entries,
    tickets: &BTreeSet<Ticket>,
    now: Tick,
    effects: &mut Vec<QueueEffect<Arc<Hold>, Arc<SlotWaker>>>,
) {
    entries.retain(|_, entry| {
        if !entry.has_waiters() {
            return true;
        }
        let queue = &mut entry.waiters_mut().queue;
        let left = queue.those_of(tickets);
        for ticket in &left {
            effects.push(queue.leave(*ticket, |hold| hold.may_pass_on(now)));
        }
        left.is_empty() || !entry.is_idle()
    });
    table::shrink(entries);
}

//! What the console remembers from look to look: since when each hold is there, and which ones have ended.

mod reached;
mod reported;
mod waiting;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use distlock::KeyReport;

use self::reached::{Interval, Known, LookTimes, Reached};
use self::reported::{Sight, lock};
pub(super) use self::waiting::CONTENTION_SPAN;
use self::waiting::WaitingNumbers;
use super::clock::{Millis, millis};
use super::lock::{End, Holder, Lock, PastHold, Sample};
use super::own::OwnWaiters;

/// How many ended holds are remembered of one key.
const PAST_HOLDS: usize = 50;

/// Of how many keys that are free the history is kept.
const PAST_KEYS: usize = 1_000;

/// What is remembered of all keys.
#[derive(Debug, Default)]
pub(super) struct History {
    keys: HashMap<String, KeyHistory>,
    contention: VecDeque<Sample>,
    reached: Reached,
}

/// What is remembered of one key.
#[derive(Debug, Default)]
struct KeyHistory {
    past: VecDeque<PastHold>,
    /// The most that waited at a look, by owner of the hold that was there.
    most_waiting: HashMap<String, u64>,
    waiting: WaitingNumbers,
    /// How it was freed by force, by owner of the hold that was there. A look that was under way may still have seen it.
    forced_by: HashMap<String, Forced>,
    changed: Millis,
}

/// How a hold was freed by force.
#[derive(Debug)]
struct Forced {
    by: String,
    at: Millis,
    /// Whether it is among the past holds already.
    is_noted: bool,
}

impl Forced {
    fn end(&self, holder: &Holder, most_waiting: u64) -> PastHold {
        PastHold {
            owner: holder.owner.clone(),
            client: holder.client.clone(),
            since: holder.since,
            last_seen: self.at,
            until: self.at,
            is_exact: holder.is_since_exact,
            most_waiting,
            end: End::ForceReleased,
            by: Some(self.by.clone()),
        }
    }
}

impl KeyHistory {
    fn trim(&mut self) {
        let excess = self.past.len().saturating_sub(PAST_HOLDS);
        self.past.drain(..excess);
    }
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) look: u64,
    /// Each report with the time at which it came.
    pub(super) reports: Vec<(Millis, KeyReport)>,
    /// Who waits for which key in this process.
    pub(super) own: HashMap<String, OwnWaiters>,
    /// Since when this process has its holds, by [`own::owner`](super::own::owner).
    pub(super) own_since: HashMap<String, Millis>,
    /// When the look began.
    pub(super) began: Millis,
    /// Whether a key that is not among the reports is gone.
    pub(super) is_complete: bool,
}

/// A lock as a look has found it. If nothing has changed since the last view, it is the lock of that view.
fn seen(
    look: u64,
    sight: Sight<'_>,
    report: &KeyReport,
    own: OwnWaiters,
    known: Option<Known<'_>>,
) -> Arc<Lock> {
    let before = known.map(|known| known.lock);
    let mut lock = lock(sight, report, own, before.map(|lock| &**lock));
    // As before, so that the comparison is about the rest.
    lock.changed = before.map_or(0, |before| before.changed);
    lock.contention = before.map_or_else(Vec::new, |before| before.contention.clone());
    match known {
        Some(known) if known.is_shown && **known.lock == lock => Arc::clone(known.lock),
        _ => {
            lock.changed = look;
            Arc::new(lock)
        }
    }
}

impl History {
    /// Takes in what a look has found. `earlier` are the locks of the look before.
    pub(super) fn take_in(
        &mut self,
        now: Millis,
        found: Found,
        earlier: &BTreeMap<String, Arc<Lock>>,
    ) -> BTreeMap<String, Arc<Lock>> {
        let look = LookTimes {
            began: found.began,
            ended: now,
        };
        let reached = mem::replace(&mut self.reached, Reached::after(look, found.is_complete));
        let mut locks = BTreeMap::new();
        for (at, report) in &found.reports {
            let known = reached.known(earlier, &report.key);
            let sight = Sight {
                at: *at,
                is_exact: reached.is_exact(known, now),
                own_since: &found.own_since,
            };
            let own = found.own.get(&report.key).copied().unwrap_or_default();
            let lock = seen(found.look, sight, report, own, known);
            if report.fault.is_some() {
                self.reached.keep_unread(&lock, &reached, known);
            }
            locks.insert(report.key.clone(), lock);
        }
        for (key, known) in reached.all(earlier) {
            let lock = locks.get(key);
            if lock.is_some() || found.is_complete {
                self.end_holds(known.until(now), known.lock, lock.map(|lock| &**lock));
            } else {
                self.reached.keep_unread(known.lock, &reached, Some(known));
            }
        }
        self.reached.trim();
        self.show_contention(now, found.look, &mut locks);
        self.note_contention(now, &locks);
        if found.is_complete {
            self.forget_forced(found.began);
        }
        self.forget(&locks);
        locks
    }

    /// Somebody has freed a lock by force. `freed` is the lock as it was then, and `seen` that of the last look.
    ///
    /// The next look ends the holds that the last one has seen. No look will miss the others, so they end here.
    pub(super) fn forced(&mut self, now: Millis, freed: &Lock, seen: Option<&Lock>, user: &str) {
        let history = self.keys.entry(freed.key.clone()).or_default();
        if history.forced_by.len() > PAST_HOLDS {
            history.forced_by.clear();
        }
        for holder in &freed.holders {
            let is_noted = !seen.is_some_and(|seen| seen.has_holder(&holder.owner));
            let forced = Forced {
                by: user.to_owned(),
                at: now,
                is_noted,
            };
            if is_noted {
                history.past.push_back(forced.end(holder, 0));
            }
            history.forced_by.insert(holder.owner.clone(), forced);
        }
        history.trim();
        history.changed = now;
    }

    pub(super) fn contention(&self) -> Vec<Sample> {
        self.contention.iter().copied().collect()
    }

    /// The holds of a key that have ended, the last one first.
    pub(super) fn past(&self, key: &str) -> Vec<PastHold> {
        let past = self.keys.get(key).map(|history| &history.past);
        past.into_iter().flatten().rev().cloned().collect()
    }

    /// How many waited for a key, and since when.
    pub(super) fn waiting(&self, key: &str) -> Vec<(Millis, u64)> {
        let history = self.keys.get(key);
        history.map_or_else(Vec::new, |history| history.waiting.all())
    }

    /// The holds whose lease ran out within the span of the contention, with their keys.
    pub(super) fn ran_out(&self, now: Millis) -> impl Iterator<Item = (&str, &PastHold)> {
        self.keys.iter().flat_map(move |(key, history)| {
            let lost = history.past.iter().filter(move |past| {
                past.end == End::LeaseRanOut && now.saturating_sub(past.until) < CONTENTION_SPAN
            });
            lost.map(|past| (key.as_str(), past))
        })
    }

    /// Notes the holders that were there before and are not any more.
    fn end_holds(&mut self, interval: Interval, before: &Lock, after: Option<&Lock>) {
        let now = interval.now;
        let mut ended = before
            .holders
            .iter()
            .filter(|holder| !after.is_some_and(|after| after.has_holder(&holder.owner)))
            .peekable();
        if ended.peek().is_none() {
            return;
        }
        let history = self.keys.entry(before.key.clone()).or_default();
        for holder in ended {
            let most_waiting = history.most_waiting.remove(&holder.owner).unwrap_or(0);
            let past = match history.forced_by.remove(&holder.owner) {
                Some(forced) if forced.is_noted => continue,
                Some(forced) => forced.end(holder, most_waiting),
                None => interval.end(holder, most_waiting),
            };
            history.past.push_back(past);
        }
        history.trim();
        history.changed = now;
        if after.is_none() {
            history.waiting.note(now, 0);
        }
    }

    fn note_waiting(&mut self, now: Millis, lock: &Lock) {
        if lock.waiting == 0 && !self.keys.contains_key(&lock.key) {
            return;
        }
        let history = self.keys.entry(lock.key.clone()).or_default();
        history.changed = now;
        history.waiting.note(now, lock.waiting);
        history
            .most_waiting
            .retain(|owner, _| lock.holders.iter().any(|holder| holder.owner == *owner));
        for holder in lock.holders.iter().filter(|_| lock.waiting > 0) {
            let most = history
                .most_waiting
                .entry(holder.owner.clone())
                .or_default();
            *most = lock.waiting.max(*most);
        }
    }

    /// Notes how many wait for each lock, and has the lock show it.
    fn show_contention(&mut self, now: Millis, look: u64, locks: &mut BTreeMap<String, Arc<Lock>>) {
        for lock in locks.values_mut() {
            self.note_waiting(now, lock);
            let history = self.keys.get(&lock.key);
            let contention = history.map_or_else(Vec::new, |history| history.waiting.most(now));
            if lock.contention != contention {
                let lock = Arc::make_mut(lock);
                (lock.contention, lock.changed) = (contention, look);
            }
        }
    }

    fn note_contention(&mut self, now: Millis, locks: &BTreeMap<String, Arc<Lock>>) {
        let held = locks.values().filter(|lock| lock.holder_total > 0);
        self.contention.push_back(Sample {
            at: now,
            held: millis(held.count() as u128),
            waiting: locks.values().map(|lock| lock.waiting).sum(),
            listening: locks.values().filter_map(|lock| lock.listening).sum(),
        });
        while let Some(first) = self.contention.front()
            && now.saturating_sub(first.at) > CONTENTION_SPAN
        {
            self.contention.pop_front();
        }
    }

    /// Forgets what was freed before a look that has gone to all keys began, and that it has not ended: an owner of Redisson may
    /// hold the key again. Of a key that could not be read, the next look ends it.
    fn forget_forced(&mut self, began: Millis) {
        for (key, history) in &mut self.keys {
            if !self.reached.is_unread(key) {
                history.forced_by.retain(|_, forced| forced.at >= began);
            }
        }
    }

    /// Forgets the free keys that changed longest ago, if there are many.
    fn forget(&mut self, locks: &BTreeMap<String, Arc<Lock>>) {
        let free = self
            .keys
            .iter()
            .filter(|(key, _)| !locks.contains_key(*key));
        let mut free: Vec<(Millis, String)> = free
            .map(|(key, history)| (history.changed, key.clone()))
            .collect();
        free.sort_unstable_by(|one, other| other.cmp(one));
        for (_, key) in free.into_iter().skip(PAST_KEYS) {
            self.keys.remove(&key);
        }
    }
}

#[cfg(test)]
mod reached_tests;
#[cfg(test)]
mod tests;

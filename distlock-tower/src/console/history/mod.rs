//! What the console remembers from look to look: since when each hold is there, and which ones have ended.

mod reported;
mod waiting;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use distlock::KeyReport;

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
    /// The time of the last look.
    looked: Option<Millis>,
}

/// What is remembered of one key.
#[derive(Debug, Default)]
struct KeyHistory {
    past: VecDeque<PastHold>,
    /// The most that waited at a look, by owner of the hold that was there.
    most_waiting: HashMap<String, u64>,
    waiting: WaitingNumbers,
    /// Who has freed it by force and when, by owner of the hold that was there. A look that was under way may still have seen it.
    forced_by: HashMap<String, (String, Millis)>,
    changed: Millis,
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) look: u64,
    /// Each report with the time at which it came.
    pub(super) reports: Vec<(Millis, KeyReport)>,
    /// Who waits for which key in this process.
    pub(super) own: HashMap<String, OwnWaiters>,
    /// Since when this process has its holds, by owner.
    pub(super) own_since: HashMap<String, Millis>,
    /// Whether a key that is not among the reports is gone.
    pub(super) is_complete: bool,
    /// Whether nobody watched for a while before this look.
    pub(super) is_after_pause: bool,
}

/// The look, and the one before it.
#[derive(Clone, Copy)]
struct Looked {
    last: Millis,
    now: Millis,
    /// Whether somebody watched from the one to the other.
    is_exact: bool,
}

impl History {
    /// Takes in what a look has found. `earlier` are the locks of the look before.
    pub(super) fn take_in(
        &mut self,
        now: Millis,
        found: Found,
        earlier: &BTreeMap<String, Arc<Lock>>,
    ) -> BTreeMap<String, Arc<Lock>> {
        let is_exact = self.looked.is_some() && !found.is_after_pause;
        let looked = Looked {
            last: self.looked.replace(now).unwrap_or(now),
            now,
            is_exact,
        };
        let mut locks = BTreeMap::new();
        for (at, report) in found.reports {
            let before = earlier.get(&report.key);
            let own = found.own.get(&report.key).copied().unwrap_or_default();
            let sight = Sight {
                at,
                is_exact,
                own_since: &found.own_since,
            };
            let mut lock = lock(sight, &report, own, before.map(|lock| &**lock));
            lock.changed = before.map_or(0, |before| before.changed);
            lock.contention = before.map_or_else(Vec::new, |before| before.contention.clone());
            let lock = match before {
                Some(before) if **before == lock => Arc::clone(before),
                _ => {
                    lock.changed = found.look;
                    Arc::new(lock)
                }
            };
            locks.insert(lock.key.clone(), lock);
        }
        for (key, before) in earlier {
            let lock = locks.get(key);
            if lock.is_some() || found.is_complete {
                self.end_holds(looked, before, lock.map(|lock| &**lock));
            }
        }
        for lock in locks.values_mut() {
            self.note_waiting(now, lock);
            let history = self.keys.get(&lock.key);
            let contention = history.map_or_else(Vec::new, |history| history.waiting.most(now));
            if lock.contention != contention {
                let lock = Arc::make_mut(lock);
                (lock.contention, lock.changed) = (contention, found.look);
            }
        }
        self.note_contention(now, &locks);
        self.forget(&locks);
        locks
    }

    /// Somebody has freed a lock by force.
    pub(super) fn forced(&mut self, now: Millis, report: &KeyReport, who: &str) {
        let history = self.keys.entry(report.key.clone()).or_default();
        if history.forced_by.len() > PAST_HOLDS {
            history.forced_by.clear();
        }
        let owners = report.holders.iter().map(|holder| holder.owner.clone());
        history
            .forced_by
            .extend(owners.map(|owner| (owner, (who.to_owned(), now))));
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
    fn end_holds(&mut self, looked: Looked, before: &Lock, after: Option<&Lock>) {
        let Looked {
            last,
            now,
            is_exact,
        } = looked;
        let is_there = |owner: &str| {
            let mut holders = after.into_iter().flat_map(|lock| &lock.holders);
            holders.any(|holder| holder.owner == owner)
        };
        let mut ended = before.holders.iter();
        let ended: Vec<&Holder> = ended
            .by_ref()
            .filter(|holder| !is_there(&holder.owner))
            .collect();
        if ended.is_empty() {
            return;
        }
        let history = self.keys.entry(before.key.clone()).or_default();
        for holder in ended {
            let has_run_out = holder.lease_ends.is_some_and(|ends| ends <= now);
            let forced = history.forced_by.remove(&holder.owner);
            let end = match &forced {
                Some(_) => End::ForceReleased,
                // Its lease may have been renewed while nobody watched.
                None if !is_exact => End::Unknown,
                // A released lock stays taken until its lease ends.
                None if has_run_out && !holder.is_released => End::LeaseRanOut,
                None => End::Released,
            };
            let until = forced.as_ref().map_or(now, |(_, at)| *at);
            history.past.push_back(PastHold {
                owner: holder.owner.clone(),
                client: holder.client.clone(),
                since: holder.since,
                last_seen: if forced.is_some() { until } else { last },
                until,
                is_exact: (is_exact || forced.is_some()) && holder.is_since_exact,
                most_waiting: history.most_waiting.remove(&holder.owner).unwrap_or(0),
                end,
                by: forced.map(|(who, _)| who),
            });
        }
        let excess = history.past.len().saturating_sub(PAST_HOLDS);
        history.past.drain(..excess);
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
mod tests;

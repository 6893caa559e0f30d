//! The free and the acquired permits of one semaphore.

use std::collections::{BTreeSet, HashMap};

use crate::backend::Target;
use crate::clock::Tick;
use crate::resource::permit_id::PermitId;

/// A semaphore. `free` and the number of acquired permits add up to the number that was set.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    /// Below 0 after the number was set to less than the acquired permits.
    pub(super) free: i64,
    pub(super) acquired: HashMap<PermitId, Tick>,
    /// Every acquired permit, by the end of its lease.
    pub(super) ends: BTreeSet<(Tick, PermitId)>,
}

impl Permits {
    pub(crate) fn free(&self) -> i64 {
        self.free
    }

    /// How many are free, as if those that have ended had been taken back.
    pub(crate) fn free_at(&self, now: Tick) -> i64 {
        let ended = self.ends.iter().take_while(|(end, _)| *end <= now);
        self.free + ended.count() as i64
    }

    /// The acquired permits, with the ends of their leases, the next end first, and how many have ended.
    pub(crate) fn acquired(&self, now: Tick) -> (Vec<(PermitId, Tick)>, u64) {
        let (alive, ended): (Vec<_>, Vec<_>) = self.ends.iter().partition(|(end, _)| *end > now);
        let alive = alive.into_iter().map(|(end, id)| (id, end));
        (alive.collect(), ended.len() as u64)
    }

    pub(super) fn insert(&mut self, id: PermitId, end: Tick) {
        self.remove(id);
        self.acquired.insert(id, end);
        self.ends.insert((end, id));
    }

    pub(super) fn remove(&mut self, id: PermitId) -> bool {
        let Some(end) = self.acquired.remove(&id) else {
            return false;
        };
        self.ends.remove(&(end, id))
    }

    /// Takes back the permits whose leases have ended, and answers whether there were any.
    pub(super) fn sweep(&mut self, now: Tick) -> bool {
        let before = self.free;
        while let Some(&(end, id)) = self.ends.first()
            && end <= now
        {
            self.take_back(id);
        }
        self.free > before
    }

    pub(super) fn take_back(&mut self, id: PermitId) -> bool {
        let was_acquired = self.remove(id);
        self.free += i64::from(was_acquired);
        was_acquired
    }

    /// Gives an owner all of its permits until `end`, or none of them. Permits that it has already are not counted
    /// twice.
    pub(super) fn take(&mut self, target: &Target, end: Tick) -> bool {
        // An owner that has all of its permits needs none that is free.
        let room = self.free.max(0);
        // Checked before the ids are made: the number that is asked for has no limit.
        if i64::from(target.permits) > room + self.number_acquired() {
            return false;
        }
        let ids: Vec<_> = PermitId::all_of(target.owner, target.permits).collect();
        let is_missing = |id: &&PermitId| !self.acquired.contains_key(*id);
        let missing = ids.iter().filter(is_missing).count() as i64;
        if missing > room {
            return false;
        }
        self.free -= missing;
        self.extend(ids, end);
        true
    }

    /// Gives permits a lease until `end`, unless they have a longer one.
    pub(super) fn extend(&mut self, ids: Vec<PermitId>, end: Tick) {
        for id in ids {
            let longest = self.acquired.get(&id).copied().unwrap_or(end).max(end);
            self.insert(id, longest);
        }
    }

    /// How many are acquired, with those that have ended and were not taken back.
    pub(crate) fn number_acquired(&self) -> i64 {
        self.acquired.len() as i64
    }

    pub(super) fn next_end(&self) -> Option<Tick> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Makes a change after taking back what has expired. Answers what `make` answers, and whether there are more free
    /// permits than before, which waiters have to know.
    pub(super) fn change(&mut self, now: Tick, make: impl FnOnce(&mut Self) -> i64) -> (i64, bool) {
        let any_swept = self.sweep(now);
        let before = self.free;
        let answer = make(self);
        let has_grown = any_swept || self.free > before;
        (answer, has_grown && self.free > 0)
    }
}

//! Which hold the watchdog checks next, and when.
//!
//! Plain data: every method takes the time. A check is filed under its time and never moved. If another one is planned
//! before it, or if the hold goes, it stays where it is and is skipped when its time comes.
//!
//! # Invariants
//! 1. A hold has at most one planned check, and that one is filed under its time.
//! 2. After a check was filed, at most twice as many are filed as there are holds, and [`SPARE`] more.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;

use crate::clock::Tick;
use crate::config::RENEWAL_BATCH;
use crate::sync::table;

/// How many checks of holds that have gone may stay filed. Few bytes, and so many holds come and go for each clean-up.
const SPARE: usize = 1000;

/// A hold, which has the number of its owner.
pub(super) trait Numbered {
    fn owner_number(&self) -> &u64;
}

/// A hold in the table, where its own number is the key: a copy of the number would take eight bytes for each place.
#[derive(Debug)]
struct Watched<H> {
    hold: H,
    /// The time of the planned check, which is [`Tick::NEVER`] if there is none. A cell, since the entries of a set are not changed.
    planned: Cell<Tick>,
}

impl<H: Numbered> Borrow<u64> for Watched<H> {
    fn borrow(&self) -> &u64 {
        self.hold.owner_number()
    }
}

impl<H: Numbered> Hash for Watched<H> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.hold.owner_number().hash(state);
    }
}

impl<H: Numbered> PartialEq for Watched<H> {
    fn eq(&self, other: &Self) -> bool {
        self.hold.owner_number() == other.hold.owner_number()
    }
}

impl<H: Numbered> Eq for Watched<H> {}

/// The watched holds `H` by the numbers of their owners, and the next check of each.
#[derive(Debug)]
pub(super) struct Agenda<H> {
    holds: HashSet<Watched<H>, RandomState>,
    /// The checks by time: holds that were renewed together are due together.
    filed: BTreeMap<Tick, Vec<u64>>,
    /// How many checks are filed.
    size: usize,
    /// When the task wakes without a notification, if it does. It may find nothing to do then, which is cheaper than a
    /// wake-up for each hold that comes and goes in between.
    armed: Option<Tick>,
}

impl<H> Default for Agenda<H> {
    fn default() -> Self {
        Self {
            holds: HashSet::default(),
            filed: BTreeMap::new(),
            size: 0,
            armed: None,
        }
    }
}

impl<H: Clone + Numbered> Agenda<H> {
    /// Adds a hold, with a check that is planned at `at`. Returns whether it is new.
    pub(super) fn add(&mut self, hold: H, at: Tick) -> bool {
        let at = at.to_whole_millis();
        let number = *hold.owner_number();
        let planned = Cell::new(at);
        let former = self.holds.replace(Watched { hold, planned });
        if at != Tick::NEVER {
            self.file(at, [number]);
        }
        former.is_none()
    }

    pub(super) fn remove(&mut self, number: u64) -> bool {
        let was_watched = self.holds.remove(&number);
        if let Some(room) = table::room(self.holds.capacity(), self.holds.len()) {
            self.holds.shrink_to(room);
        }
        was_watched
    }

    pub(super) fn get(&self, number: u64) -> Option<&H> {
        self.holds.get(&number).map(|watched| &watched.hold)
    }

    pub(super) fn holds(&self) -> impl ExactSizeIterator<Item = &H> {
        self.holds.iter().map(|watched| &watched.hold)
    }

    /// Plans a check of the hold at `at`, unless an earlier one is planned.
    pub(super) fn schedule_check(&mut self, number: u64, at: Tick) {
        // Checks of one millisecond are filed together: tokio's timers fire at no other time.
        let at = at.to_whole_millis();
        if self.plan(number, at) {
            self.file(at, [number]);
        }
    }

    /// Plans a check of each of these holds at its time, unless an earlier one is planned.
    pub(super) fn schedule_checks(&mut self, checks: &[(u64, Tick)]) {
        // Holds that were renewed together are mostly due together.
        for together in
            checks.chunk_by(|one, next| one.1.to_whole_millis() == next.1.to_whole_millis())
        {
            let at = together[0].1.to_whole_millis();
            let numbers = together.iter().map(|(number, _)| *number);
            let planned: Vec<u64> = numbers.filter(|number| self.plan(*number, at)).collect();
            self.file(at, planned);
        }
    }

    /// Plans a check, unless an earlier one is planned. Returns whether it has to be filed.
    fn plan(&self, number: u64, at: Tick) -> bool {
        match self.holds.get(&number) {
            Some(watched) if at < watched.planned.get() => {
                watched.planned.set(at);
                true
            }
            _ => false,
        }
    }

    /// Files checks that were planned just now, all of them.
    fn file(&mut self, at: Tick, numbers: impl IntoIterator<Item = u64>) {
        let mut numbers = numbers.into_iter().peekable();
        if numbers.peek().is_none() {
            return;
        }
        let filed = self.filed.entry(at).or_default();
        let before = filed.len();
        filed.extend(numbers);
        self.size += filed.len() - before;
        if self.size > 2 * self.holds.len() + SPARE {
            self.file_anew();
        }
    }

    /// Files the planned checks alone.
    fn file_anew(&mut self) {
        self.filed.clear();
        self.size = 0;
        for Watched { hold, planned } in &self.holds {
            let planned = planned.get();
            if planned != Tick::NEVER {
                self.filed
                    .entry(planned)
                    .or_default()
                    .push(*hold.owner_number());
                self.size += 1;
            }
        }
    }

    /// Returns whether the task has to be woken, because it would otherwise wake too late.
    pub(super) fn arm(&mut self, at: Tick) -> bool {
        let at = at.to_whole_millis();
        let earlier = at < self.armed.unwrap_or(Tick::NEVER);
        if earlier {
            self.armed = Some(at);
        }
        earlier
    }

    /// When to wake next. An alarm in the future is kept even if its hold is gone.
    pub(super) fn next_alarm(&mut self, now: Tick) -> Tick {
        if self.armed.is_none_or(|armed| armed <= now) {
            self.armed = self.next_check();
        }
        self.armed.unwrap_or(Tick::NEVER)
    }

    fn next_check(&mut self) -> Option<Tick> {
        while let Some(checks) = self.filed.first_entry() {
            let at = *checks.key();
            let planned = |number: &u64| Some(self.holds.get(number)?.planned.get());
            if checks
                .get()
                .iter()
                .any(|number| planned(number) == Some(at))
            {
                return Some(at);
            }
            self.size -= checks.remove().len();
        }
        None
    }

    /// Takes the holds that are due at `now`. If their number is not that of full batches, others are taken along that are
    /// due by `soon`.
    pub(super) fn take_due(&mut self, now: Tick, soon: Tick) -> Vec<H> {
        let mut due = Vec::new();
        while let Some(mut checks) = self.filed.first_entry() {
            let at = *checks.key();
            // Those that are not due yet only fill up a batch that has to be sent anyway.
            let is_enough = |due: &Vec<H>| at > now && due.len().is_multiple_of(RENEWAL_BATCH);
            if at > soon || is_enough(&due) {
                break;
            }
            let numbers = checks.get_mut();
            while let Some(number) = numbers.pop() {
                self.size -= 1;
                if let Some(Watched { hold, planned }) = self.holds.get(&number)
                    && planned.get() == at
                {
                    planned.set(Tick::NEVER);
                    due.push(hold.clone());
                    if is_enough(&due) {
                        break;
                    }
                }
            }
            if numbers.is_empty() {
                checks.remove();
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Numbered for u64 {
        fn owner_number(&self) -> &u64 {
            self
        }
    }

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn agenda(checks: impl IntoIterator<Item = (u64, u64)>) -> Agenda<u64> {
        let mut agenda = Agenda::default();
        for (number, ms) in checks {
            agenda.add(number, at(ms));
        }
        agenda
    }

    /// The holds that are due at `ms`, when nothing is taken along.
    fn due(agenda: &mut Agenda<u64>, ms: u64) -> Vec<u64> {
        let mut due = agenda.take_due(at(ms), at(ms));
        due.sort_unstable();
        due
    }

    #[test]
    fn check_is_due_once_and_an_earlier_one_replaces_it() {
        let mut agenda = agenda([(1, 50), (2, 50), (3, 20)]);
        agenda.schedule_check(2, at(30));
        agenda.schedule_check(3, at(40));
        assert!(due(&mut agenda, 19).is_empty());
        assert_eq!(due(&mut agenda, 30), [2, 3]);
        // Filed under a time at which it was filed before.
        agenda.schedule_check(2, at(50));
        assert!(due(&mut agenda, 49).is_empty());
        assert_eq!(due(&mut agenda, 50), [1, 2]);
        assert!(due(&mut agenda, 1_000).is_empty());
        assert_eq!((agenda.size, agenda.filed.len()), (0, 0));
    }

    #[test]
    fn hold_that_went_is_never_due_and_wakes_nobody() {
        let mut agenda = agenda([(1, 50), (2, 60)]);
        assert!(agenda.remove(1) && !agenda.remove(1));
        assert_eq!(agenda.next_alarm(at(0)), at(60));
        assert!(due(&mut agenda, 55).is_empty());
        // An alarm that was set is kept.
        assert!(agenda.remove(2) && agenda.next_alarm(at(59)) == at(60));
        assert_eq!(agenda.next_alarm(at(60)), Tick::NEVER);
        assert_eq!(agenda.size, 0);
    }

    #[test]
    fn task_is_woken_for_a_check_before_its_alarm_only() {
        let mut agenda = agenda([(1, 50)]);
        assert!(agenda.arm(at(50)) && !agenda.arm(at(60)) && agenda.arm(at(40)));
        assert_eq!(agenda.next_alarm(at(39)), at(40));
        assert_eq!(agenda.next_alarm(at(40)), at(50));
    }

    #[test]
    fn batch_is_filled_up_with_those_that_are_due_soon() {
        let batch = RENEWAL_BATCH as u64;
        let mut agenda = agenda((0..2 * batch).map(|number| (number, 10 + number / 30)));
        // Nothing is due, so nothing is taken along.
        assert!(agenda.take_due(at(9), at(1_000)).is_empty());
        assert_eq!(agenda.take_due(at(10), at(1_000)).len(), RENEWAL_BATCH);
        // The rest of a time whose others were taken along.
        assert_eq!(due(&mut agenda, 13).len(), 20);
        // Only those that are due by then.
        assert_eq!(agenda.take_due(at(14), at(15)).len(), 60);
    }

    #[test]
    fn checks_that_are_planned_together_are_those_that_each_would_be() {
        let checks = [
            (1, 50),
            (2, 50),
            (3, 20),
            (4, 50),
            (9, 50),
            (1, 70),
            (2, 10),
        ];
        let mut agenda = agenda([(1, 60), (2, 60), (3, 60), (4, 40)]);
        let mut one_by_one = self::agenda([(1, 60), (2, 60), (3, 60), (4, 40)]);
        agenda.schedule_checks(&checks.map(|(number, ms)| (number, at(ms))));
        for (number, ms) in checks {
            one_by_one.schedule_check(number, at(ms));
        }
        for ms in [9, 10, 20, 40, 50, 70] {
            assert_eq!(due(&mut agenda, ms), due(&mut one_by_one, ms), "at {ms}");
        }
        assert_eq!((agenda.size, agenda.filed.len()), (0, 0));
        agenda.schedule_checks(&[]);
        assert_eq!(agenda.next_alarm(at(0)), Tick::NEVER);
    }

    #[test]
    fn checks_that_are_not_planned_any_more_do_not_pile_up() {
        let mut agenda = agenda((0..10).map(|number| (number, 5_000)));
        for number in 10..10_000 {
            agenda.add(number, Tick::NEVER);
            // Two times, of which the second one counts: in the middle of it all is filed anew now and then.
            agenda.schedule_checks(&[(number, at(20_000)), (number, at(10_000 + number))]);
            let filed: usize = agenda.filed.values().map(Vec::len).sum();
            assert_eq!(filed, agenda.size);
            assert!(filed <= 2 * agenda.holds.len() + SPARE);
            agenda.remove(number);
        }
        assert_eq!(due(&mut agenda, 5_000).len(), 10);
    }

    #[test]
    fn table_of_holds_shrinks_when_a_rush_of_them_has_gone() {
        let mut agenda = agenda((0..5_000).map(|number| (number, 50)));
        for number in 0..5_000 {
            agenda.remove(number);
        }
        assert!(agenda.holds.capacity() <= 64);
    }
}

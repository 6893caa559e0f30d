//! Changes that several tasks wait for. Each task is woken, also behind one whose waker panics.
//!
//! `Notify` of tokio drops the wakers behind one that panics. An owner would then learn of a loss late, because of another task
//! that waits for the key of that owner.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::sync::{Mutex, foreign};

/// Announces changes to those that wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<Waiters>);

impl Changes {
    /// Wakes all that wait. Not under a mutex: a waker may run any code.
    pub(crate) fn announce(&self) {
        let woken = self.0.lock().take_all();
        foreign::wake_each(woken);
    }

    /// Completes when a change is announced, from this call on.
    pub(crate) fn next(&self) -> Change<'_> {
        Change {
            changes: self,
            after: self.0.lock().announced,
            slot: None,
        }
    }
}

/// Waits for a change. See [`Changes::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub(crate) struct Change<'a> {
    changes: &'a Changes,
    /// How many changes were announced before.
    after: u32,
    /// Where the waker is, until a change is announced.
    slot: Option<u32>,
}

impl Future for Change<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let waiters = self.changes.0.lock();
            if waiters.announced != self.after {
                return Poll::Ready(());
            }
            if waiters.has(self.slot, cx.waker()) {
                return Poll::Pending;
            }
        }
        // The clone and the drop of a waker are foreign code. Neither is called under the mutex.
        let waker = cx.waker().clone();
        let mut waiters = self.changes.0.lock();
        if waiters.announced != self.after {
            return Poll::Ready(());
        }
        let former = self.slot.and_then(|slot| waiters.remove(slot));
        self.slot = Some(waiters.add(waker));
        drop(waiters);
        drop(former);
        Poll::Pending
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut waiters = self.changes.0.lock();
            let own = (waiters.announced == self.after).then(|| waiters.remove(slot));
            // The mutex first: the drop of a waker is foreign code.
            drop(waiters);
            drop(own);
        }
    }
}

/// Marks the end of the list of vacant slots.
const NONE: u32 = u32::MAX;

/// At most this many slots are kept when no waker is left. If there are more, all of them are given back.
const SPARE: usize = 64;

/// The wakers of those that wait for the next change. Each waker keeps its slot until then. So it is removed without a search, also
/// if there are many: all waiters of a client wait for its close.
#[derive(Debug)]
struct Waiters {
    slots: SmallVec<[Slot; 1]>,
    first_vacant: u32,
    /// How many changes were announced. It starts again after the largest number.
    announced: u32,
}

#[derive(Debug)]
enum Slot {
    Taken(Waker),
    /// One of the slots that can be taken.
    Vacant {
        /// The slot that is taken after it.
        next: u32,
        /// The number of vacant slots from this one to the end of the list.
        number: u32,
    },
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            slots: SmallVec::new(),
            first_vacant: NONE,
            announced: 0,
        }
    }
}

impl Waiters {
    fn has(&self, slot: Option<u32>, waker: &Waker) -> bool {
        let slot = slot.and_then(|slot| self.slots.get(slot as usize));
        matches!(slot, Some(Slot::Taken(own)) if own.will_wake(waker))
    }

    fn add(&mut self, waker: Waker) -> u32 {
        let vacant = self.first_vacant;
        match self.slots.get_mut(vacant as usize) {
            Some(slot) => {
                if let Slot::Vacant { next, .. } = mem::replace(slot, Slot::Taken(waker)) {
                    self.first_vacant = next;
                }
                vacant
            }
            None => {
                self.slots.push(Slot::Taken(waker));
                // The number of wakers in memory is far below 2^32.
                self.slots.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, at: u32) -> Option<Waker> {
        let next = self.first_vacant;
        let number = match self.slots.get(next as usize) {
            Some(Slot::Vacant { number, .. }) => number + 1,
            _ => 1,
        };
        let slot = self.slots.get_mut(at as usize)?;
        let former = mem::replace(slot, Slot::Vacant { next, number });
        self.first_vacant = at;
        if number as usize == self.slots.len() && self.slots.len() > SPARE {
            self.slots = SmallVec::new();
            self.first_vacant = NONE;
        }
        taken(former)
    }

    /// Takes all wakers, because a change is announced.
    fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.announced = self.announced.wrapping_add(1);
        self.first_vacant = NONE;
        mem::take(&mut self.slots).into_iter().filter_map(taken)
    }
}

fn taken(slot: Slot) -> Option<Waker> {
    match slot {
        Slot::Taken(waker) => Some(waker),
        Slot::Vacant { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures_util::FutureExt as _;

    use super::*;

    /// Counts its wake-ups, and panics at each if it is told to.
    struct Counts(AtomicUsize, bool);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            if self.1 {
                resume_unwind(Box::new("planned"));
            }
        }
    }

    fn waker(panics: bool) -> (Arc<Counts>, Waker) {
        let counts = Arc::new(Counts(AtomicUsize::new(0), panics));
        (Arc::clone(&counts), Waker::from(counts))
    }

    fn poll(change: &mut Change<'_>, waker: &Waker) -> Poll<()> {
        Pin::new(change).poll(&mut Context::from_waker(waker))
    }

    fn woken(counts: &Counts) -> usize {
        counts.0.load(Ordering::SeqCst)
    }

    #[test]
    fn change_ends_all_waits_that_began_before_it_and_none_that_begins_after() {
        let changes = Changes::default();
        let (counts, waker) = waker(false);
        let (mut polled, unpolled) = (changes.next(), changes.next());
        assert!(poll(&mut polled, &waker).is_pending());
        changes.announce();
        assert_eq!(woken(&counts), 1);
        assert!(poll(&mut polled, &waker).is_ready() && unpolled.now_or_never().is_some());
        let mut later = changes.next();
        assert!(poll(&mut later, &waker).is_pending() && poll(&mut later, &waker).is_pending());
        changes.announce();
        assert_eq!(woken(&counts), 2);
    }

    #[test]
    fn those_behind_a_waker_that_panics_are_woken() {
        let changes = Changes::default();
        let wakers = [false, true, false, true, false].map(waker);
        let mut waits: Vec<_> = wakers.iter().map(|_| changes.next()).collect();
        for (wait, (_, waker)) in waits.iter_mut().zip(&wakers) {
            assert!(poll(wait, waker).is_pending());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| changes.announce())).is_err());
        assert!(wakers.iter().all(|(counts, _)| woken(counts) == 1));
    }

    #[test]
    fn wait_that_is_dropped_or_polled_by_another_task_wakes_its_former_task_no_more() {
        let changes = Changes::default();
        let wakers: Vec<_> = (0..4).map(|_| waker(false)).collect();
        let mut waits: Vec<_> = wakers.iter().map(|_| changes.next()).collect();
        for (wait, (_, waker)) in waits.iter_mut().zip(&wakers) {
            assert!(poll(wait, waker).is_pending());
        }
        let (moved, to) = waker(false);
        assert!(poll(&mut waits[3], &to).is_pending());
        drop(waits.remove(1));
        drop(waits.remove(0));
        // In the slots that are vacant now.
        let (newer, of_newer) = waker(false);
        let mut more: Vec<_> = (0..3).map(|_| changes.next()).collect();
        for wait in &mut more {
            assert!(poll(wait, &of_newer).is_pending());
        }
        changes.announce();
        let woken: Vec<_> = wakers
            .iter()
            .map(|(counts, _)| self::woken(counts))
            .collect();
        assert_eq!(woken, [0, 0, 1, 0]);
        assert_eq!((self::woken(&moved), self::woken(&newer)), (1, 3));
        // The drop of a wait that was woken removes no waker that came later.
        let (latest, of_latest) = waker(false);
        let mut later = changes.next();
        assert!(poll(&mut later, &of_latest).is_pending());
        drop((waits, more));
        changes.announce();
        assert_eq!(self::woken(&latest), 1);
        // No wait keeps a waker.
        drop((to, of_newer));
        assert_eq!(
            (Arc::strong_count(&moved), Arc::strong_count(&newer)),
            (1, 1)
        );
    }

    #[test]
    fn slots_of_a_crowd_that_has_left_are_given_back() {
        let changes = Changes::default();
        let (counts, waker) = waker(false);
        let crowd = 2 * SPARE;
        for _ in 0..3 {
            let mut waits: Vec<_> = (0..crowd).map(|_| changes.next()).collect();
            for wait in &mut waits {
                assert!(poll(wait, &waker).is_pending());
            }
            assert_eq!(changes.0.lock().slots.len(), crowd);
            let kept = waits.swap_remove(crowd / 3);
            drop(waits);
            assert_eq!(changes.0.lock().slots.len(), crowd);
            drop(kept);
            assert_eq!(changes.0.lock().slots.len(), 0);
        }
        let mut later = changes.next();
        assert!(poll(&mut later, &waker).is_pending());
        changes.announce();
        assert_eq!(woken(&counts), 1);
        assert_eq!(size_of::<Slot>(), size_of::<Waker>());
    }
}

//! The keys that are watched, and who waits for each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::backend::Fault;
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::resource::key::Resource;
use crate::sync::{Mutex, foreign, table};
use crate::sync::{Notify, oneshot};

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum FreeAnswer {
    /// There was a moment at which nobody held the key.
    Free,
    /// This owner holds the key. For waiters that only look once.
    Held(SeenHolder),
    Failed(Fault),
}

/// Who was seen to hold a key.
#[derive(Clone, Debug)]
pub(crate) struct SeenHolder {
    /// When the lease ends; `None` if no end is known.
    pub(crate) until: Option<Tick>,
    pub(crate) holder: Option<Box<HeldBy>>,
}

/// The keys that one client watches.
#[derive(Debug, Default)]
pub(crate) struct FreeWatches {
    keys: Mutex<Keys>,
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct Keys {
    watched: HashMap<Resource, Watched, RandomState>,
    /// The number of the next waiter. No number is used twice: a watch may go on with the next waiters of its key.
    next_number: u64,
    /// The keys that the task has not begun to watch.
    new: Vec<Resource>,
}

impl Keys {
    /// Removes a key that has no waiters any more.
    fn remove(&mut self, resource: &Resource) -> Option<Watched> {
        let gone = self.watched.remove(resource);
        table::shrink(&mut self.watched);
        gone
    }
}

/// A key with its waiters. It goes with the last of them.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// In the order in which they came.
    waiters: BTreeMap<u64, Waiter>,
    /// What the last look has seen, if the server answered it.
    pub(super) seen: Option<SeenHolder>,
    /// Why the last look was not answered.
    pub(super) failed: Option<Fault>,
    /// Wakes the watch: somebody looks once, or the last waiter has left.
    wake: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) since: Tick,
    pub(super) looks_once: bool,
    answer: oneshot::Sender<FreeAnswer>,
}

/// One waiter. Its drop ends its wait.
#[derive(Debug)]
pub(crate) struct FreeWaiter<'a> {
    watches: &'a FreeWatches,
    resource: &'a Resource,
    number: u64,
    answer: oneshot::Receiver<FreeAnswer>,
}

impl FreeWaiter<'_> {
    /// Completes when the watch has an answer for this waiter.
    pub(crate) async fn answered(&mut self) -> FreeAnswer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // The client has given its identity up, which its waiters learn of otherwise.
            Err(_gone) => std::future::pending().await,
        }
    }

    /// Who was seen to hold the key, and why the last look was not answered.
    pub(crate) fn seen(&self) -> (Option<SeenHolder>, Option<Fault>) {
        let keys = self.watches.keys.lock();
        let watched = keys.watched.get(self.resource);
        watched.map_or((None, None), |watched| {
            (watched.seen.clone(), watched.failed.clone())
        })
    }
}

impl Drop for FreeWaiter<'_> {
    fn drop(&mut self) {
        // Both are dropped outside of the mutex: the drop of a sender may wake a task.
        let left = {
            let mut keys = self.watches.keys.lock();
            let Some(watched) = keys.watched.get_mut(self.resource) else {
                return;
            };
            let waiter = watched.waiters.remove(&self.number);
            let is_empty = watched.waiters.is_empty();
            let gone = is_empty.then(|| keys.remove(self.resource));
            (waiter, gone.flatten())
        };
        if let (_waiter, Some(gone)) = left {
            foreign::notify_own_task(&gone.wake);
        }
    }
}

impl FreeWatches {
    /// Whether the task has anything to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.keys.lock().watched.is_empty()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn len(&self) -> usize {
        self.keys.lock().watched.len()
    }

    pub(crate) fn wake(&self) {
        foreign::notify_own_task(&self.wake);
    }

    pub(super) fn join<'a>(
        &'a self,
        resource: &'a Resource,
        since: Tick,
        looks_once: bool,
    ) -> FreeWaiter<'a> {
        let (sender, answer) = oneshot::channel();
        let waiter = Waiter {
            since,
            looks_once,
            answer: sender,
        };
        let (number, is_new, is_paused, wake) = {
            let mut keys = self.keys.lock();
            let is_new = !keys.watched.contains_key(resource);
            if is_new {
                keys.new.push(resource.clone());
            }
            let number = keys.next_number;
            keys.next_number += 1;
            let watched = keys.watched.entry(resource.clone()).or_default();
            watched.waiters.insert(number, waiter);
            let is_paused = watched.failed.is_some();
            (number, is_new, is_paused, Arc::clone(&watched.wake))
        };
        if is_new {
            self.wake();
        } else if looks_once || is_paused {
            // The others need no look for a waiter that comes later: a message tells the watch of a release. But the pause after a
            // look that was not answered may be longer than the new wait.
            foreign::notify_own_task(&wake);
        }
        FreeWaiter {
            watches: self,
            resource,
            number,
            answer,
        }
    }

    /// The keys to begin with, for a task that has begun.
    pub(super) fn all(&self) -> Vec<Resource> {
        // A task that begins takes all keys, and these are among them.
        let mut keys = self.keys.lock();
        keys.new.clear();
        keys.watched.keys().cloned().collect()
    }

    pub(super) fn new_keys(&self) -> Vec<Resource> {
        std::mem::take(&mut self.keys.lock().new)
    }

    pub(super) fn has(&self, resource: &Resource) -> bool {
        self.keys.lock().watched.contains_key(resource)
    }

    /// What the next look is for; `None` if nobody waits for the key any more.
    pub(super) fn begin(&self, resource: &Resource) -> Option<Round> {
        let keys = self.keys.lock();
        let watched = keys.watched.get(resource)?;
        let (_, first) = watched.waiters.first_key_value()?;
        Some(Round {
            below: keys.next_number,
            first_since: first.since,
            wake: Arc::clone(&watched.wake),
        })
    }

    /// Notes what a look has come to.
    pub(super) fn note(&self, resource: &Resource, note: impl FnOnce(&mut Watched)) {
        if let Some(watched) = self.keys.lock().watched.get_mut(resource) {
            note(watched);
        }
    }

    /// Answers those waiters below a number that `is_meant` chooses.
    pub(super) fn answer(
        &self,
        resource: &Resource,
        below: u64,
        is_meant: impl Fn(&Waiter) -> bool,
        answer: impl Fn() -> FreeAnswer,
    ) {
        let (meant, gone) = {
            let mut keys = self.keys.lock();
            let Some(watched) = keys.watched.get_mut(resource) else {
                return;
            };
            let later = watched.waiters.split_off(&below);
            let before = std::mem::replace(&mut watched.waiters, later);
            let (meant, rest): (Vec<_>, Vec<_>) =
                before.into_iter().partition(|(_, waiter)| is_meant(waiter));
            watched.waiters.extend(rest);
            let is_empty = watched.waiters.is_empty();
            let gone = is_empty.then(|| keys.remove(resource));
            (meant, gone.flatten())
        };
        // A watch that sleeps next would not hear of the next waiters, who wake it otherwise.
        if let Some(gone) = gone {
            foreign::notify_own_task(&gone.wake);
        }
        foreign::each(meant, |(_, waiter)| {
            // The waiter may have left meanwhile.
            let _gone = foreign::answer(waiter.answer, answer());
        });
    }
}

/// One look, and whom it is for.
pub(super) struct Round {
    /// The look is for the waiters with smaller numbers.
    pub(super) below: u64,
    /// When the first of them began to wait.
    pub(super) first_since: Tick,
    pub(super) wake: Arc<Notify>,
}

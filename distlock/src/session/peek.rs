//! Peeks at the keys of waiters, also of those of latches, that have heard nothing for some time: for all waiters of one client
//! from one task, in batches. [`next_peek`] is the sleep of a waiter until it peeks, and that peek.
//!
//! Thousands of waiters cost the server a few commands a second, and only those whose key has changed repeat their attempt or
//! their read.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::Session;
use crate::backend::{Home, Peeked, Target};
use crate::clock::Tick;
use crate::config::{
    COPIED_MUTEX, MAX_SLEEP_WITHOUT_MESSAGE, PEEK_AFTER, PEEK_BATCH, PEEK_WINDOW, RENEWALS_AT_ONCE,
};
use crate::sync::random::random_range;
use crate::sync::{Mutex, foreign};
use crate::sync::{Notify, Unordered, oneshot};

/// When a lease is over of which the server says that this is left.
pub(crate) fn over_at(ttl: Option<Duration>, now: Tick) -> Tick {
    // The server rounds down: when it answers 0, up to a millisecond is left.
    ttl.map_or(Tick::NEVER, |ttl| now.after(ttl + Duration::from_millis(1)))
}

/// Sleeps, and then peeks at the key of somebody who gets no message. Returns what the peek has seen if an owner still holds the key.
/// Returns `None` if the lease is over, if the peek has found no owner or was not answered, or if messages may not arrive.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and each waiter has room for this"
)]
pub(crate) fn next_peek(
    session: &Arc<Session>,
    target: impl FnOnce() -> Target,
    lease_end: Tick,
    was_active: bool,
) -> impl Future<Output = Option<Peeked>> {
    async move {
        let pause = MAX_SLEEP_WITHOUT_MESSAGE.mul_f64(random_range(PEEK_AFTER));
        let next = session.now().after(pause).min(lease_end);
        session.clock.sleep_until(next).await;
        if !was_active || next == lease_end {
            return None;
        }
        // Boxed: most of the time a waiter sleeps, and each would have room for a peek.
        let peek = Box::pin(async {
            crate::sync::select! {
                // In this order: an answer that has arrived counts, even if the lease has ended.
                biased;
                peeked = session.peek(target()) => peeked,
                // A peek takes its time, and longer at a server that does not answer.
                () = session.clock.sleep_until(lease_end) => None,
            }
        });
        peek.await.filter(|peeked| !peeked.is_open)
    }
}

/// The peeks that one client's waiters wait for.
#[derive(Debug, Default)]
pub(super) struct Peeks {
    wanted: Mutex<Vec<WantedPeek>>,
    wake: Notify,
}

#[derive(Debug)]
struct WantedPeek {
    target: Target,
    answer: oneshot::Sender<Peeked>,
}

impl Peeks {
    /// Asks for a peek at the key of this target. The receiver fails if the server does not answer.
    pub(super) fn ask(&self, target: Target) -> oneshot::Receiver<Peeked> {
        let (answer, peeked) = oneshot::channel();
        self.wanted.lock().push(WantedPeek { target, answer });
        self.wake();
        peeked
    }

    /// Answers none of the peeks that are wanted: their receivers fail.
    pub(super) fn forget(&self) {
        // A thread that the copy of a process does not have may have the mutex. Dropped without it: their waiters are woken, which is
        // foreign code.
        let wanted = self.wanted.try_lock_for(COPIED_MUTEX);
        let wanted = wanted.map(|mut wanted| std::mem::take(&mut *wanted));
        foreign::each(wanted.into_iter().flatten(), drop);
    }

    /// Whether the task has anything to do.
    pub(super) fn has_work(&self) -> bool {
        !self.wanted.lock().is_empty()
    }

    pub(super) fn wake(&self) {
        foreign::notify_own_task(&self.wake);
    }

    /// The peeks that waiters still wait for: for each server in batches, the keys of which one command can name.
    fn take(&self, home: impl Fn(&Target) -> Home) -> Vec<Vec<Vec<WantedPeek>>> {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        // A waiter that has gone, as at a message, needs no peek any more.
        let wanted = wanted.into_iter().filter(|peek| !peek.answer.is_closed());
        let homes = Home::group(wanted.map(|peek| (home(&peek.target), peek)));
        let batches = homes.into_iter().flat_map(|(home, mut peeks)| {
            let mut batches = Vec::new();
            while !peeks.is_empty() {
                let rest = peeks.split_off(peeks.len().min(PEEK_BATCH));
                batches.push((home.of_server(), std::mem::replace(&mut peeks, rest)));
            }
            batches
        });
        let servers = Home::group(batches);
        servers.into_iter().map(|(_, batches)| batches).collect()
    }
}

/// The task of one client that peeks.
pub(super) async fn run(session: Arc<Session>) {
    let peeks = &session.peeks;
    let mut under_way = Unordered::default();
    loop {
        if session.retirement.has_begun() {
            return;
        }
        if !peeks.has_work() {
            crate::sync::select! {
                // The peeks under way are polled as well, here and below: nothing else carries them on.
                () = peeks.wake.notified() => {}
                Some(()) = under_way.next() => {}
            }
            continue;
        }
        // More waiters come in the meantime and share the command. A server that does not answer delays no other one.
        let together = session.now().after(PEEK_WINDOW);
        loop {
            crate::sync::select! {
                () = session.clock.sleep_until(together) => break,
                Some(()) = under_way.next() => {}
            }
        }
        let home = |target: &Target| session.backend.home(&target.resource.key);
        for batches in peeks.take(home) {
            let peek = |batch| peek(&session, batch);
            under_way.push(stream::iter(batches).for_each_concurrent(RENEWALS_AT_ONCE, peek));
        }
    }
}

/// If the server does not answer, the waiters are not answered either.
async fn peek(session: &Session, batch: Vec<WantedPeek>) {
    let targets: Vec<Target> = batch.iter().map(|peek| peek.target.clone()).collect();
    if let Ok(peeked) = session.backend.peek(&targets).await {
        foreign::each(batch.into_iter().zip(peeked), |(peek, peeked)| {
            // The waiter may have left meanwhile.
            let _gone = foreign::answer(peek.answer, peeked);
        });
    }
}

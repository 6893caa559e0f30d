//! What a waiter without messages does: the holder's lease may end, and the key may change without a message.

use std::sync::Arc;
use std::time::Duration;

use super::turn::{Blocking, Turn};
use crate::backend::Target;
use crate::clock::Tick;
use crate::local::QueueSlot;
use crate::resource::kind::Family;
use crate::session::{Session, next_peek, over_at};

/// Completes when a waiter that hears nothing should repeat its attempt: when the lease of the blocking owner is over, if a
/// peek at the key shows that no owner blocks it any more, if the server does not answer, or if messages may not arrive.
///
/// `target`: what is peeked at. Each peek reports the present end of the lease, so a holder that renews its lease costs no attempts.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and each waiter has room for this"
)]
pub(super) fn due_without_a_message(
    session: &Arc<Session>,
    target: impl Fn() -> Target,
    lease: &mut LeaseInTheWay<'_>,
    was_active: bool,
) -> impl Future<Output = ()> {
    async move {
        while let Some(seen) = next_peek(session, &target, lease.over_at, was_active).await {
            // A peek at permits does not tell when the next one ends, but counts those that have ended. The refused attempt has told the
            // next end, and a shorter lease comes with a message, or is noticed by a peek.
            if target().resource.kind.family() != Family::Permit {
                lease.told(seen.ttl, session.now());
            }
        }
    }
}

/// The lease of the owner that blocks a waiter. It keeps the time of its end up to date in the waiter's turn and queue.
pub(super) struct LeaseInTheWay<'a> {
    blocking: &'a mut Blocking,
    pub(super) slot: &'a QueueSlot<'a>,
    over_at: Tick,
}

impl<'a> LeaseInTheWay<'a> {
    /// The lease as an attempt that was just refused reported it.
    pub(super) fn new(turn: &'a mut Turn<'_>, ttl: Option<Duration>, now: Tick) -> Self {
        Self {
            blocking: &mut turn.blocking,
            slot: &turn.slot,
            over_at: over_at(ttl, now),
        }
    }

    fn told(&mut self, ttl: Option<Duration>, now: Tick) {
        self.over_at = over_at(ttl, now);
        *self.blocking = self.blocking.with_time_left(ttl, now);
        if let Blocking::Owner(until) = *self.blocking {
            self.slot.note_busy_until(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::clock::Clock;
    use crate::config::{MAX_SLEEP_WITHOUT_MESSAGE, PEEK_AFTER};
    use crate::{Client, MemoryServer};

    /// A sleeper that nobody watches reads the clock this often.
    const UNWATCHED: Duration = Duration::from_secs(1);

    /// Counts how often a future is polled.
    async fn counted<F: Future>(polls: Arc<AtomicUsize>, future: F) {
        let mut future = pin!(future);
        poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            future.as_mut().poll(cx).map(drop)
        })
        .await;
    }

    /// How often idle waiters, watchers of latches and holders were polled, each by itself, before the first of them peeked.
    /// `None` if that time was too short for a watch that is missing to show, as on a busy machine.
    async fn polls_of(idle: usize) -> Option<usize> {
        let server = MemoryServer::new();
        let client = || Client::on_clock(Clock::boot(), &server);
        let holder = client();
        let waiting = client();
        // The clients' tasks run before the first answer if the server is real.
        drop((
            holder.lock("other").acquire().await,
            waiting.lock("other").acquire().wait(Duration::ZERO).await,
        ));
        yield_now().await;
        let begun = Instant::now();
        let polls = Arc::<AtomicUsize>::default();
        let mut holds = Vec::new();
        let mut tasks = JoinSet::new();
        for n in 0..idle {
            let key = format!("order:{n}");
            let latch = format!("import:{n}");
            let held = holder.lock(&key).acquire().await.unwrap();
            tasks.spawn(counted(Arc::clone(&polls), held.lost()));
            holds.push(held);
            let waits = waiting.lock(key).acquire().into_future();
            tasks.spawn(counted(Arc::clone(&polls), waits));
            let count = holder.count_down_latch(&latch);
            assert!(count.try_set_count(1).await.unwrap());
            let latch = waiting.count_down_latch(latch);
            let polls = Arc::clone(&polls);
            tasks.spawn(async move { counted(polls, latch.wait().into_future()).await });
        }
        // Until all have been polled for the first time, and are idle. None of them runs before this task sleeps.
        let is_time_of_the_first_peek =
            || begun.elapsed() >= MAX_SLEEP_WITHOUT_MESSAGE.mul_f64(*PEEK_AFTER.start());
        let mut before = 0;
        let mut since = Instant::now();
        while before < 3 * idle || before != polls.load(Ordering::Relaxed) {
            // From then on some of them are polled at any time.
            if is_time_of_the_first_peek() {
                return None;
            }
            (before, since) = (polls.load(Ordering::Relaxed), Instant::now());
            sleep(UNWATCHED / 4).await;
        }
        sleep(UNWATCHED * 2).await;
        let polls = polls.load(Ordering::Relaxed) - before;
        (!is_time_of_the_first_peek() && since.elapsed() > UNWATCHED).then_some(polls)
    }

    #[tokio::test]
    async fn idle_waiters_are_not_polled_until_they_peek() {
        let mut idle = 1_000;
        let mut counts = Vec::new();
        while counts.len() < 15 {
            match polls_of(idle).await {
                // A machine that stands still wakes all of them: where each polls by itself, they are polled every time.
                Some(polls) if polls < idle / 10 => return,
                Some(polls) => counts.push((polls, idle)),
                // Fewer are made sooner, on a busy machine as well.
                None => idle = (idle / 2).max(20),
            }
        }
        panic!("(polls, waiters): {counts:?}");
    }
}

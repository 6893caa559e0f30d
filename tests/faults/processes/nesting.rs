//! Rows 75 and 76: a lock inside itself, and branches of one critical section.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, distributed_lock, inherit};
use distlock_tests::{drop_after, size};
use rand::RngExt;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{Inside, SOON, ms};

const KEY: &str = "order:42";
const WAIT: Duration = ms(50);

/// A nesting that must end, one way or the other.
async fn ends<T>(row: &Row, nesting: impl Future<Output = T>) -> T {
    row.injected("nesting", 1);
    timeout(SOON, nesting).await.expect("it hangs")
}

async fn enters(row: &Row, nesting: impl Future<Output = Result<Guard, Error>>) {
    let entered = ends(row, nesting).await.unwrap();
    entered.release().await.unwrap();
}

async fn is_busy(row: &Row, nesting: impl Future<Output = Result<Guard, Error>>) {
    let refused = ends(row, nesting).await.expect_err("it entered");
    assert!(refused.is_busy(), "{refused}");
}

/// Acquires inside the critical section of a guard.
async fn within(
    guard: &Guard,
    acquiring: impl Future<Output = Result<Guard, Error>>,
) -> Result<Guard, Error> {
    guard.scope(acquiring).await?
}

#[distributed_lock(key = KEY, client = client)]
async fn annotated(client: &Client, depth: u64) -> Result<u64, Error> {
    match depth {
        0 => client.lock(KEY).hold_count().await,
        _ => Box::pin(annotated(client, depth - 1)).await,
    }
}

/// Each way to acquire a lock inside its own critical section.
async fn inside_itself(stage: &Stage, row: &Row) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let body = async {
        enters(row, lock.acquire().into_future()).await;
        enters(row, lock.acquire().wait(Duration::ZERO).into_future()).await;
        enters(row, lock.acquire().lease(SOON).into_future()).await;
        enters(row, client.clone().lock(KEY).acquire().into_future()).await;
        let tried = ends(row, lock.try_acquire()).await.unwrap();
        drop(tried.expect("tried inside"));
        let twice = lock.acquire().run(lock.acquire().run(async { 7 }));
        assert_eq!(ends(row, twice).await.unwrap().unwrap(), 7);
        assert_eq!(ends(row, annotated(&client, 3)).await.unwrap(), 5);
        // With another lock between them, and in a task that takes the scope with it.
        let between = client
            .lock("other")
            .acquire()
            .run(lock.acquire().into_future());
        enters(row, async { between.await? }).await;
        let inherited = tokio::spawn(inherit(lock.acquire().into_future()));
        enters(row, async { inherited.await.unwrap() }).await;
    };
    ends(row, guard.scope(body)).await.unwrap();
    enters(row, async { guard.reenter() }).await;
    guard.release().await.unwrap();
    assert_eq!(ends(row, annotated(&client, 2)).await.unwrap(), 3);
    stage.nothing_is_left().await;
}

/// Each way to acquire a lock beside its own hold, which would be waiting for oneself.
async fn beside_itself(stage: &Stage, row: &Row) {
    let (client, other) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let bounded = |lock: &Lock| lock.acquire().wait(WAIT).into_future();
    let guard = lock.acquire().await.unwrap();
    is_busy(row, bounded(&lock)).await;
    is_busy(row, lock.acquire().wait(Duration::ZERO).into_future()).await;
    assert!(ends(row, lock.try_acquire()).await.unwrap().is_none());
    let body = async {
        let spawned = tokio::spawn(bounded(&lock));
        is_busy(row, async { spawned.await.unwrap() }).await;
        is_busy(row, bounded(&other.lock(KEY))).await;
        // A branch beside one that is inside: the gate.
        let sibling = lock.acquire().await.unwrap();
        is_busy(row, bounded(&lock)).await;
        is_busy(row, within(&sibling, bounded(&other.lock(KEY)))).await;
        enters(row, within(&sibling, bounded(&lock))).await;
        sibling
    };
    let kept = ends(row, guard.scope(body)).await.unwrap();
    // The scope is over, and the guard taken out of it still holds.
    guard.release().await.unwrap();
    is_busy(row, bounded(&lock)).await;
    // Without a limit it waits for as long as it is let, and leaves nothing when it is dropped.
    assert!(timeout(WAIT, lock.acquire()).await.is_err());
    kept.release().await.unwrap();
    stage.nothing_is_left().await;
}

async fn crossed_branches(stage: &Stage, row: &Row) {
    let client = stage.client().await;
    let (a, b) = (client.lock("a"), client.lock("b"));
    let cross = async |first: &Lock, then: &Lock, wait: Duration| {
        let outer = first.acquire().await?;
        yield_now().await;
        within(&outer, then.acquire().wait(wait).into_future()).await
    };
    let crossed = async { tokio::join!(cross(&a, &b, WAIT), cross(&b, &a, SOON / 2)) };
    let (gives_up, goes_on) = ends(row, crossed).await;
    assert!(gives_up.unwrap_err().is_busy());
    goes_on.unwrap().release().await.unwrap();
    let siblings = a
        .acquire()
        .run(async { tokio::join!(cross(&a, &b, WAIT), cross(&b, &a, SOON / 2)) });
    let (one, two) = ends(row, siblings).await.unwrap();
    assert!(one.is_ok() || two.is_ok(), "{one:?}, {two:?}");
    drop((one, two));
    stage.nothing_is_left().await;
}

async fn every_nesting(stage: &Stage, row: &Row) {
    inside_itself(stage, row).await;
    beside_itself(stage, row).await;
    crossed_branches(stage, row).await;
}

/// The branches of one critical section.
struct Branches {
    lock: Lock,
    inside: AtomicUsize,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Branches {
    async fn branch(&self) {
        let stay = rand::rng().random_range(0..4);
        let deeper = rand::rng().random_bool(0.2);
        let visit = async {
            let _inside = Inside::enter(&self.inside);
            self.begun.fetch_add(1, Ordering::SeqCst);
            for _ in 0..stay {
                yield_now().await;
            }
            if deeper {
                self.lock.acquire().run(yield_now()).await.unwrap();
            }
            self.ended.fetch_add(1, Ordering::SeqCst);
        };
        self.lock.acquire().run(visit).await.unwrap();
    }

    /// Some branches side by side, ended in one of several ways.
    async fn round(&self) {
        match rand::rng().random_range(0..4) {
            0 => {
                tokio::join!(self.branch(), self.branch(), self.branch());
            }
            1 => tokio::select! {
                () = self.branch() => {}
                () = self.branch() => {}
                () = self.branch() => {}
            },
            2 => {
                let patience = Duration::from_micros(rand::rng().random_range(0..2_000));
                let pair = async { tokio::join!(self.branch(), sleep(patience), self.branch()) };
                let _done = timeout(patience / 2, pair).await;
            }
            _ => {
                let polls = rand::rng().random_range(0..8);
                let pair = async { tokio::join!(self.branch(), self.branch()) };
                let _done = drop_after(polls, pair).await;
            }
        }
        // Nobody is inside, the gate is open, and the count is that of the section alone.
        drop(Inside::enter(&self.inside));
        drop(self.lock.try_acquire().await.unwrap().expect("a shut gate"));
        assert_eq!(self.lock.hold_count().await.unwrap(), 1);
    }
}

async fn branches_dropped_at_random(stage: &Stage, row: &Row) {
    let sections = size(30, 100);
    const ROUNDS: usize = 10;
    let branches = Branches {
        lock: stage.client().await.lock(KEY),
        inside: AtomicUsize::new(0),
        begun: AtomicU64::new(0),
        ended: AtomicU64::new(0),
    };
    for _ in 0..sections {
        let body = async {
            for _ in 0..ROUNDS {
                branches.round().await;
            }
        };
        branches.lock.acquire().run(body).await.unwrap();
    }
    assert_eq!(branches.lock.hold_count().await.unwrap(), 0);
    stage.nothing_is_left().await;
    let (begun, ended) = (branches.begun.into_inner(), branches.ended.into_inner());
    assert!(ended > ROUNDS as u64);
    row.injected("branch dropped inside", begun - ended);
}

rows! {
    Both:
        every_nesting =>
            f75_every_nesting_in_memory_enters_or_is_refused_and_none_hangs,
            f75_every_nesting_enters_or_is_refused_and_none_hangs,
        branches_dropped_at_random =>
            f76_branches_dropped_at_random_in_memory_never_overlap_nor_leave_a_count,
            f76_branches_dropped_at_random_never_overlap_nor_leave_a_count;
}

//! The read/write lock: how readers and writers exclude each other, also by force and with a lock of another kind on the key.

mod cancel;
mod lease;
mod nesting;
mod turns;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{Kind, Verbs};
use distlock::{Client, Error, Guard, RwLock};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::conformance::stage::Stage;

pub(crate) const KEY: &str = "report:42";

/// Reads in the background, from when it is granted to when the task's handle is awaited.
pub(crate) fn reading(lock: &RwLock) -> JoinHandle<Guard> {
    let acquiring = lock.read().acquire().into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

pub(crate) fn writing(lock: &RwLock) -> JoinHandle<Guard> {
    let acquiring = lock.write().acquire().into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

pub(crate) async fn may_read(lock: &RwLock) -> bool {
    lock.read().try_acquire().await.unwrap().is_some()
}

pub(crate) async fn may_write(lock: &RwLock) -> bool {
    lock.write().try_acquire().await.unwrap().is_some()
}

/// Waits until a waiting writer has been refused, and so has its turn: from then on no reader gets in.
pub(crate) async fn turn_is_taken(stage: &Stage, lock: &RwLock) {
    stage
        .eventually("the writer's turn", stage.part(10), async || {
            !may_read(lock).await
        })
        .await;
}

/// Owners of a client that nobody keeps alive.
pub(crate) fn dying(client: &Client, kind: Kind) -> Verbs {
    Verbs::new(client, Uuid::from_u128(13)).of_kind(kind)
}

/// Readers that come and go without a gap, until told to stop.
pub(crate) fn flood(lock: &RwLock, stay: Duration, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    for n in 0..4 {
        let (lock, stop) = (lock.clone(), Arc::clone(stop));
        readers.spawn(async move {
            sleep(stay / 4 * n).await;
            while !stop.load(Ordering::SeqCst) {
                lock.read().acquire().run(sleep(stay)).await.unwrap();
            }
        });
    }
    readers
}

async fn many_read_or_one_writes(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (one, two) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let readers = [
        one.read().acquire().await.unwrap(),
        one.read().acquire().await.unwrap(),
        two.read().acquire().await.unwrap(),
    ];
    assert!(!may_write(&one).await && !may_write(&two).await);
    assert_eq!(two.read().holders().await.unwrap().len(), 3);
    assert!(one.read().is_locked().await.unwrap() && !one.write().is_locked().await.unwrap());
    for reader in readers {
        assert!(!may_write(&two).await);
        reader.release().await.unwrap();
    }
    let writer = two.write().acquire().await.unwrap();
    assert!(!may_write(&one).await && !may_write(&two).await);
    assert!(!may_read(&one).await && !may_read(&two).await);
    let holders = one.write().holders().await.unwrap();
    assert_eq!(holders[0].owner, format!("{}:write", writer.owner()));
    assert!(one.write().is_locked().await.unwrap() && !one.read().is_locked().await.unwrap());
    assert_eq!(one.read().hold_count().await.unwrap(), 0);
    assert_eq!(one.read().remaining_lease().await.unwrap(), None);
    assert!(one.write().remaining_lease().await.unwrap().is_some());
    writer.release().await.unwrap();
    assert!(!one.is_locked().await.unwrap());
}

async fn nobody_is_inside_with_a_writer_whatever_comes(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let (readers, writers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for n in 0..120 {
        let lock = clients[n % 2].rw_lock(KEY);
        let (readers, writers) = (Arc::clone(&readers), Arc::clone(&writers));
        let inside = |readers: &AtomicUsize, writers: &AtomicUsize| {
            (
                readers.load(Ordering::SeqCst),
                writers.load(Ordering::SeqCst),
            )
        };
        tasks.spawn(async move {
            if n % 3 == 0 {
                let body = async {
                    writers.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                    assert_eq!(inside(&readers, &writers), (0, 1));
                    writers.fetch_sub(1, Ordering::SeqCst);
                    lock.read().acquire().run(yield_now()).await.unwrap();
                };
                lock.write().acquire().run(body).await.unwrap();
            } else {
                let body = async {
                    readers.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                    assert_eq!(writers.load(Ordering::SeqCst), 0);
                    readers.fetch_sub(1, Ordering::SeqCst);
                };
                lock.read().acquire().run(body).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn force_release_frees_what_is_held_in_its_mode(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let other = stage.client().await.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    assert!(!other.write().force_release().await.unwrap() && reader.is_held());
    let (waiter, start) = (writing(&other), Instant::now());
    assert!(other.read().force_release().await.unwrap());
    let writer = waiter.await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    assert!(reader.release().await.unwrap_err().is_lost());
    assert!(!lock.read().force_release().await.unwrap());
    let inside = writer.scope(other.read().acquire().into_future());
    let inside = inside.await.unwrap().unwrap();
    assert!(!lock.read().force_release().await.unwrap());
    assert!(lock.write().force_release().await.unwrap());
    assert!(may_write(&lock).await);
    assert!(inside.release().await.unwrap_err().is_lost());
    assert!(writer.release().await.unwrap_err().is_lost());
    for kind in [Kind::Read, Kind::Write] {
        let guard = match kind {
            Kind::Read => lock.read().acquire().await.unwrap(),
            _ => lock.write().acquire().await.unwrap(),
        };
        assert!(other.force_release().await.unwrap() && !other.force_release().await.unwrap());
        // Told by the next renewal.
        guard.lost().await;
        drop(guard);
    }
}

async fn lock_of_another_kind_on_the_key_is_held_by_another(stage: &Stage) {
    let client = stage.client().await;
    let (plain, lock) = (client.lock(KEY), client.rw_lock(KEY));
    let held = plain.acquire().await.unwrap();
    assert!(!may_read(&lock).await && !may_write(&lock).await);
    for refused in [
        lock.is_locked().await.unwrap_err(),
        lock.read().holders().await.unwrap_err(),
        lock.force_release().await.unwrap_err(),
        lock.write().force_release().await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::WrongType { .. }), "{refused}");
    }
    assert_eq!(plain.hold_count().await.unwrap(), 1);
    held.release().await.unwrap();
    for read in [true, false] {
        let acquire = if read {
            lock.read().acquire()
        } else {
            lock.write().acquire()
        };
        let held = acquire.await.unwrap();
        assert!(plain.try_acquire().await.unwrap().is_none());
        assert_eq!(plain.hold_count().await.unwrap(), 1);
        held.release().await.unwrap();
    }
    assert!(plain.try_acquire().await.unwrap().is_some());
}

on_every_backend![
    many_read_or_one_writes,
    nobody_is_inside_with_a_writer_whatever_comes,
    force_release_frees_what_is_held_in_its_mode,
    lock_of_another_kind_on_the_key_is_held_by_another,
];

on_threads![nobody_is_inside_with_a_writer_whatever_comes];

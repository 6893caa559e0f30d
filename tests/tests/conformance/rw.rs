//! The read/write lock: who keeps whom out, reading inside one's own write, leases of readers, and whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::{Answer, Fault, Kind, Op, Verbs, sizes};
use distlock::{Client, Error, Guard, RwLock};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::stage::{Stage, drop_after, refused};

const KEY: &str = "report:42";

/// Reads in the background, from when it is granted to when the task's handle is awaited.
fn reading(lock: &RwLock) -> JoinHandle<Guard> {
    let acquiring = lock.read().acquire().into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

fn writing(lock: &RwLock) -> JoinHandle<Guard> {
    let acquiring = lock.write().acquire().into_future();
    tokio::spawn(async move { acquiring.await.unwrap() })
}

async fn may_read(lock: &RwLock) -> bool {
    lock.read().try_acquire().await.unwrap().is_some()
}

async fn may_write(lock: &RwLock) -> bool {
    lock.write().try_acquire().await.unwrap().is_some()
}

/// Waits until a waiting writer has been refused, and so has its turn: from then on no reader gets in.
async fn turn_is_taken(stage: &Stage, lock: &RwLock) {
    stage
        .eventually("the writer's turn", stage.part(10), async || {
            !may_read(lock).await
        })
        .await;
}

/// Owners of a client that nobody keeps alive.
fn dying(client: &Client, kind: Kind) -> Verbs {
    Verbs::new(client, Uuid::from_u128(13)).of_kind(kind)
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

async fn end_of_the_last_reader_wakes_a_writer_and_that_of_a_writer_all_readers(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let (first, last) = (reading(&lock).await.unwrap(), reading(&lock).await.unwrap());
    let writer = writing(&other);
    turn_is_taken(stage, &other).await;
    first.release().await.unwrap();
    sleep(stage.part(20)).await;
    assert!(!writer.is_finished());
    let start = Instant::now();
    last.release().await.unwrap();
    let writer = writer.await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    let readers: Vec<_> = [&lock, &lock, &other, &other].map(reading).into();
    stage.waiting(&one, 2).await;
    stage.waiting(&two, 2).await;
    let start = Instant::now();
    writer.release().await.unwrap();
    // All of them at once, and none before another has left.
    let readers = join_all(readers).await;
    stage.assert_took(start, Duration::ZERO);
    assert!(readers.iter().flatten().all(Guard::is_held));
    assert_eq!(lock.read().hold_count().await.unwrap(), 4);
}

async fn read_inside_a_write_outlives_it_and_lets_other_readers_in(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let writer = lock.write().acquire().await.unwrap();
    let inside = lock.read().acquire().into_future();
    let inside = writer.scope(inside).await.unwrap().unwrap();
    assert_ne!(inside.owner(), writer.owner());
    assert!(lock.read().is_locked().await.unwrap() && lock.write().is_locked().await.unwrap());
    // Nobody else, though the mode of the lock is the writer's: not beside its scope either.
    assert!(!may_read(&other).await && !may_read(&lock).await);
    let (waiter, next) = (reading(&other), writing(&other));
    stage.waiting(&two, 2).await;
    sleep(stage.part(20)).await;
    let start = Instant::now();
    writer.release().await.unwrap();
    let waiter = waiter.await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    assert!(inside.is_held() && !next.is_finished());
    assert!(!other.write().is_locked().await.unwrap());
    // Over several leases it is renewed as a read lock.
    sleep(stage.lease() * 2).await;
    assert!(inside.is_held() && waiter.is_held() && !next.is_finished());
    waiter.release().await.unwrap();
    inside.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
}

async fn read_inside_a_write_that_ends_first_leaves_the_write(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let other = stage.client().await.rw_lock(KEY);
    let writer = lock.write().acquire().await.unwrap();
    let body = async {
        for _ in 0..3 {
            let brief = lock.read().acquire().lease(stage.part(10)).await.unwrap();
            let long = lock.read().try_acquire().await.unwrap().unwrap();
            assert_eq!(lock.read().holders().await.unwrap().len(), 2);
            brief.release().await.unwrap();
            long.release().await.unwrap();
            assert!(!lock.read().is_locked().await.unwrap());
        }
        sleep(stage.lease() * 2).await;
    };
    writer.scope(body).await.unwrap();
    assert!(writer.is_held() && !may_read(&other).await);
    writer.release().await.unwrap();
    assert!(may_write(&other).await);
}

async fn write_inside_ones_own_read_is_an_error_at_once(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let error = refused(
        reader
            .scope(lock.write().acquire().into_future())
            .await
            .unwrap(),
    );
    assert!(matches!(error, Error::Nested { .. }), "{error}");
    reader.release().await.unwrap();
    // Also where a write is further out.
    let write = lock.write();
    let body = lock.read().acquire().run(write.try_acquire());
    let error = refused(lock.write().acquire().run(body).await.unwrap().unwrap());
    assert!(matches!(error, Error::Nested { .. }), "{error}");
}

async fn holds_are_entered_again_in_their_own_scopes(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let observer = stage.client().await.rw_lock(KEY);
    let writer = lock.write().acquire().await.unwrap();
    let body = async {
        let again = lock.write().acquire().await.unwrap();
        assert_eq!(again.owner(), writer.owner());
        assert_eq!(lock.write().hold_count().await.unwrap(), 2);
        stage
            .eventually("the count", stage.part(3), async || {
                observer.write().hold_count().await.unwrap() == 2
            })
            .await;
    };
    writer.scope(body).await.unwrap();
    writer.release().await.unwrap();
    let reader = lock.read().acquire().await.unwrap();
    let stay = stage.part(10);
    let start = Instant::now();
    let branch = || lock.read().acquire().run(sleep(stay));
    let body = async {
        let branches = join_all((0..3).map(|_| branch()));
        let watch = stage.eventually("the count", stage.part(3), async || {
            observer.read().hold_count().await.unwrap() == 4
        });
        let (done, ()) = tokio::join!(branches, watch);
        assert!(done.iter().all(Result::is_ok));
    };
    reader.scope(body).await.unwrap();
    // Branches that read do so at the same time.
    stage.assert_took(start, stay);
    stage
        .eventually("the count", stage.part(3), async || {
            observer.read().hold_count().await.unwrap() == 1
        })
        .await;
    reader.release().await.unwrap();
    assert!(may_write(&observer).await);
}

async fn each_reader_has_a_lease_of_its_own(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let start = Instant::now();
    let short = lock.read().acquire().lease(stage.part(3)).await.unwrap();
    let long = other.read().acquire().lease(stage.lease()).await.unwrap();
    let writer = writing(&lock);
    short.lost().await;
    stage.assert_took(start, stage.part(3));
    assert!(long.is_held());
    stage
        .eventually("one reader", stage.part(3), async || {
            lock.read().holders().await.unwrap().len() == 1
        })
        .await;
    let writer = writer.await.unwrap();
    stage.assert_took(start, stage.lease());
    assert!(!long.is_held());
    drop((short, long, writer));
}

async fn readers_are_renewed_and_end_as_all_that_is_held(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let readers = [
        lock.read().acquire().await.unwrap(),
        lock.read().acquire().await.unwrap(),
        other.read().acquire().await.unwrap(),
    ];
    let end = Instant::now() + stage.lease() * 3;
    while Instant::now() < end {
        assert!(!may_write(&other).await);
        assert_eq!(other.read().hold_count().await.unwrap(), 3);
        sleep(stage.part(5)).await;
    }
    assert!(readers.iter().all(Guard::is_held));
    let start = Instant::now();
    let brief = lock.read().acquire().lease(stage.part(4)).await.unwrap();
    let cut = brief.scope(std::future::pending::<()>()).await;
    assert!(refused(cut).is_lost());
    stage.assert_took(start, stage.part(4));
    assert!(refused(brief.release().await).is_lost());
    for reader in readers {
        assert!(reader.is_held());
        reader.release().await.unwrap();
    }
    assert!(may_write(&other).await);
}

async fn reader_that_died_is_kept_alive_by_nobody(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let dead = dying(&client, Kind::Read);
    let granted = dead.attempt(KEY, 1, stage.part(3)).await.unwrap();
    assert_eq!(granted, Answer::Granted);
    // Renewed for long after the other's end.
    let reader = lock.read().acquire().await.unwrap();
    assert_eq!(lock.read().holders().await.unwrap().len(), 2);
    sleep(stage.lease() * 2).await;
    assert_eq!(lock.read().holders().await.unwrap().len(), 1);
    let renewed = dead.renew(&[(KEY, 1, 1, stage.lease())]).await.unwrap();
    assert_eq!(renewed, Answer::Renewed(vec![false]));
    let writer = writing(&lock);
    stage.waiting(&client, 1).await;
    let start = Instant::now();
    reader.release().await.unwrap();
    drop(writer.await.unwrap());
    stage.assert_took(start, Duration::ZERO);
}

async fn release_leaves_the_lock_for_as_long_as_the_longest_reader(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let dead = dying(&client, Kind::Read);
    let long = lock
        .read()
        .acquire()
        .lease(stage.lease() * 4)
        .await
        .unwrap();
    dead.attempt(KEY, 1, stage.part(3)).await.unwrap();
    let start = Instant::now();
    long.release().await.unwrap();
    // Nobody told of its end: the lease did.
    drop(lock.write().acquire().await.unwrap());
    stage.assert_took(start, stage.part(3));
}

/// Readers that come and go without a gap, until told to stop.
fn flood(lock: &RwLock, stay: Duration, stop: &Arc<AtomicBool>) -> JoinSet<()> {
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

async fn stream_of_readers_does_not_keep_writers_out(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let stay = stage.part(30);
    let mut readers = flood(&one.rw_lock(KEY), stay, &stop);
    let mut others = flood(&two.rw_lock(KEY), stay, &stop);
    for lock in [one.rw_lock(KEY), two.rw_lock(KEY), one.rw_lock(KEY)] {
        sleep(stay * 3).await;
        let start = Instant::now();
        let writer = lock
            .write()
            .acquire()
            .wait(stage.lease() * 2)
            .await
            .unwrap();
        // As long as those read who were in already.
        assert!(
            start.elapsed() <= stay + stage.slack(),
            "{:?}",
            start.elapsed()
        );
        sleep(stay).await;
        writer.release().await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
}

async fn stream_of_writers_does_not_keep_readers_out(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for client in [&one, &one, &one, &two, &two, &two] {
        let (lock, stop, stay) = (client.rw_lock(KEY), Arc::clone(&stop), stage.part(300));
        writers.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                lock.write().acquire().run(sleep(stay)).await.unwrap();
            }
        });
    }
    stage
        .eventually("a crowd of writers", stage.lease(), async || {
            one.rw_lock(KEY).write().is_locked().await.unwrap()
        })
        .await;
    for lock in [one.rw_lock(KEY), two.rw_lock(KEY)] {
        for _ in 0..3 {
            let start = Instant::now();
            let reader = lock.read().acquire().wait(stage.lease() * 2).await.unwrap();
            // One client's run of hand-overs, and whoever took the lock before it heard of the reader.
            let few = Duration::from_millis(50) + stage.part(300) * 3;
            assert!(
                start.elapsed() <= few + stage.slack(),
                "{:?}",
                start.elapsed()
            );
            reader.release().await.unwrap();
        }
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
}

async fn turn_of_a_writer_that_gives_up_ends_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (lock, other) = (one.rw_lock(KEY), two.rw_lock(KEY));
    let reader = lock.read().acquire().await.unwrap();
    for by_drop in [false, true] {
        let wait = stage.part(4);
        let start = Instant::now();
        let acquiring = lock.write().acquire().wait(wait);
        let writer = tokio::spawn(acquiring.into_future());
        turn_is_taken(stage, &other).await;
        let waiter = reading(&other);
        stage.waiting(&two, 1).await;
        sleep(wait / 2).await;
        assert!(!waiter.is_finished());
        if by_drop {
            writer.abort();
            drop(writer.await);
        } else {
            assert!(refused(writer.await.unwrap()).is_busy());
            stage.assert_took(start, wait);
        }
        let start = Instant::now();
        drop(waiter.await.unwrap());
        stage.assert_took(start, Duration::ZERO);
    }
    reader.release().await.unwrap();
}

async fn turn_is_kept_for_as_long_as_the_writer_waits(stage: &Stage) {
    let lock = stage.client().await.rw_lock(KEY);
    let other = stage.client().await.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let writer = writing(&lock);
    turn_is_taken(stage, &other).await;
    // For longer than a sign of life lasts.
    for _ in 0..70 {
        sleep(Duration::from_millis(100)).await;
        assert!(!may_read(&other).await);
    }
    // Who is in already may enter again, and try as well as wait.
    let body = async { lock.read().try_acquire().await.unwrap().is_some() };
    assert!(reader.scope(body).await.unwrap());
    reader.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
}

async fn turn_of_a_writer_that_died_ends(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let dead = dying(&client, Kind::Write).waiting(stage.part(3));
    let start = Instant::now();
    let held = dead.attempt(KEY, 1, stage.lease()).await.unwrap();
    assert!(matches!(held, Answer::Held(Some(_))));
    drop(lock.read().acquire().await.unwrap());
    stage.assert_took(start, stage.part(3));
    reader.release().await.unwrap();
}

async fn writes_are_handed_over_but_not_with_a_reader_inside(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let first = lock.write().acquire().await.unwrap();
    let owner = first.owner();
    let next = writing(&lock);
    stage.waiting(&client, 1).await;
    first.release().await.unwrap();
    let second = next.await.unwrap();
    assert_eq!(
        (second.owner(), stage.faults().calls(Op::Release)),
        (owner, 0)
    );
    let reader = second.scope(lock.read().acquire().into_future());
    let reader = reader.await.unwrap().unwrap();
    let next = writing(&lock);
    stage.waiting(&client, 1).await;
    second.release().await.unwrap();
    sleep(stage.part(20)).await;
    assert!(!next.is_finished());
    reader.release().await.unwrap();
    let third = next.await.unwrap();
    assert_ne!(third.owner(), owner);
    third.release().await.unwrap();
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
    assert!(!lock.is_locked().await.unwrap() && !lock.force_release().await.unwrap());
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

async fn readers_of_one_client_do_not_stand_behind_each_other(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let slow = stage.part(20);
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let start = Instant::now();
    let readers: Vec<_> = (0..64).map(|_| reading(&lock)).collect();
    let readers = join_all(readers).await;
    stage.assert_took(start, slow);
    stage.faults().clear(Op::Attempt);
    drop(readers);
    // Nor do those that a writer made stand in line.
    let writer = lock.write().acquire().await.unwrap();
    let readers: Vec<_> = (0..64).map(|_| reading(&lock)).collect();
    stage.waiting(&client, 64).await;
    sleep(stage.part(20)).await;
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let start = Instant::now();
    writer.release().await.unwrap();
    let readers = join_all(readers).await;
    stage.assert_took(start, 2 * slow);
    drop(readers);
}

async fn line_of_readers_ends_also_while_readers_come_in_all_the_time(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let stop = Arc::new(AtomicBool::new(false));
    // Served one by one they would take longer than until the next one comes.
    let (stay, slow) = (stage.part(100), stage.part(30));
    stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
    let mut readers = flood(&lock, stay, &stop);
    sleep(slow * 4).await;
    let writer = lock.write().acquire().await.unwrap();
    stage.waiting(&client, 4).await;
    writer.release().await.unwrap();
    sleep(slow * 10).await;
    for _ in 0..3 {
        let start = Instant::now();
        drop(lock.read().acquire().await.unwrap());
        stage.assert_took(start, slow);
    }
    stage.faults().clear(Op::Attempt);
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
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

/// What is dropped at each of its polls.
async fn dropped<F: Future>(stage: &Stage, start: impl AsyncFn() -> (JoinHandle<()>, F)) {
    for polls in 0..100 {
        let (other, future) = start().await;
        let done = drop_after(polls, future).await.is_some();
        stage.faults().clear(Op::Attempt);
        other.await.unwrap();
        stage.is_quiet_within(stage.part(10)).await;
        if done {
            assert!(polls >= 2, "it never waited");
            return;
        }
    }
    panic!("not done after 100 polls");
}

async fn acquisitions_dropped_at_any_point_leave_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let slow = Duration::from_millis(10);
    // Longer than a waiter trusts a neighbour, so that it asks the server, too.
    let stay = Duration::from_millis(60);
    for holder in [&client, &other] {
        for (held_by_writer, wanted) in [
            (true, Kind::Read),
            (true, Kind::Write),
            (false, Kind::Write),
        ] {
            let start = async || {
                let held = holder.rw_lock(KEY);
                let held = if held_by_writer {
                    held.write().acquire()
                } else {
                    held.read().acquire()
                };
                let held = held.await.unwrap();
                let holder = tokio::spawn(async move {
                    sleep(stay).await;
                    held.release().await.unwrap();
                });
                stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
                let lock = client.rw_lock(KEY);
                let acquire = if wanted == Kind::Read {
                    lock.read().acquire()
                } else {
                    lock.write().acquire()
                };
                (holder, acquire.into_future())
            };
            dropped(stage, start).await;
        }
    }
}

async fn reads_inside_a_write_dropped_at_any_point_leave_nothing(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let slow = Duration::from_millis(10);
    let start = async || {
        stage.faults().always(Op::Attempt, Fault::DelayReply(slow));
        let lock = lock.clone();
        let body = async move {
            let writer = lock.write().acquire().await.unwrap();
            let reader = writer.scope(lock.read().acquire().into_future());
            let reader = reader.await.unwrap().unwrap();
            writer.release().await.unwrap();
            reader.release().await.unwrap();
        };
        (tokio::spawn(async {}), body)
    };
    dropped(stage, start).await;
}

async fn reader_that_was_let_go_and_never_looked_has_no_place_any_more(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, other) = (client.rw_lock(KEY), other.rw_lock(KEY));
    let writer = other.write().acquire().await.unwrap();
    let first = reading(&lock);
    stage.waiting(&client, 1).await;
    let mut sleepy = Box::pin(lock.read().acquire().into_future());
    assert!((&mut sleepy).now_or_never().is_none());
    stage.waiting(&client, 2).await;
    writer.release().await.unwrap();
    // Its end lets the whole line go, and the line is forgotten.
    first.await.unwrap().release().await.unwrap();
    let writer = other.write().acquire().await.unwrap();
    let head = reading(&lock);
    stage.waiting(&client, 1).await;
    let second = reading(&lock);
    stage.waiting(&client, 2).await;
    drop(sleepy);
    assert_eq!(sizes(&client).waiters, 2);
    writer.release().await.unwrap();
    let both = async { (head.await.unwrap(), second.await.unwrap()) };
    let (head, second) = timeout(stage.lease(), both).await.expect("both were woken");
    head.release().await.unwrap();
    second.release().await.unwrap();
}

on_every_backend![
    reader_that_was_let_go_and_never_looked_has_no_place_any_more,
    many_read_or_one_writes,
    end_of_the_last_reader_wakes_a_writer_and_that_of_a_writer_all_readers,
    read_inside_a_write_outlives_it_and_lets_other_readers_in,
    read_inside_a_write_that_ends_first_leaves_the_write,
    write_inside_ones_own_read_is_an_error_at_once,
    holds_are_entered_again_in_their_own_scopes,
    each_reader_has_a_lease_of_its_own,
    readers_are_renewed_and_end_as_all_that_is_held,
    reader_that_died_is_kept_alive_by_nobody,
    release_leaves_the_lock_for_as_long_as_the_longest_reader,
    stream_of_readers_does_not_keep_writers_out,
    stream_of_writers_does_not_keep_readers_out,
    turn_of_a_writer_that_gives_up_ends_at_once,
    turn_is_kept_for_as_long_as_the_writer_waits,
    turn_of_a_writer_that_died_ends,
    writes_are_handed_over_but_not_with_a_reader_inside,
    force_release_frees_what_is_held_in_its_mode,
    lock_of_another_kind_on_the_key_is_held_by_another,
    readers_of_one_client_do_not_stand_behind_each_other,
    line_of_readers_ends_also_while_readers_come_in_all_the_time,
    nobody_is_inside_with_a_writer_whatever_comes,
    acquisitions_dropped_at_any_point_leave_nothing,
    reads_inside_a_write_dropped_at_any_point_leave_nothing,
];

on_threads![
    nobody_is_inside_with_a_writer_whatever_comes,
    stream_of_readers_does_not_keep_writers_out,
];

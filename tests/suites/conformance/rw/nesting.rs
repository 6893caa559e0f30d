//! A read or a write inside a hold of the same client: a read in a write may outlive it, a write in a read is an error, and each is
//! entered again in its own scope.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use distlock::{Error, Guard, RwLock, inherit};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, may_read, may_write, reading, writing};
use crate::conformance::stage::{Stage, refused};

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

/// Reads in a new task, inside the scopes around the caller.
fn inherited_read(lock: &RwLock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(inherit(lock.read().acquire().into_future()))
}

/// Reads inside the scopes around the caller. Returns after an attempt that met this fault, as those after it do.
async fn faulty_read(
    stage: &Stage,
    lock: &RwLock,
    fault: Fault,
) -> JoinHandle<Result<Guard, Error>> {
    let attempted = stage.faults().calls(Op::Attempt);
    stage.faults().always(Op::Attempt, fault);
    let read = inherited_read(lock);
    stage
        .eventually("an attempt", stage.part(3), async || {
            stage.faults().calls(Op::Attempt) > attempted
        })
        .await;
    read
}

async fn granted(stage: &Stage, read: JoinHandle<Result<Guard, Error>>) -> Guard {
    let read = timeout(stage.lease(), read).await.expect("it still waits");
    read.unwrap().unwrap()
}

/// The attempts of a read inside a write meet this fault until the scope has closed.
async fn goes_on_after_its_scope(stage: &Stage, fault: Fault) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let writer = lock.write().acquire().await.unwrap();
    let mut read = None;
    let body = async { read = Some(faulty_read(stage, &lock, fault).await) };
    writer.scope(body).await.unwrap();
    let read = read.unwrap();
    stage.faults().clear(Op::Attempt);
    sleep(stage.part(2)).await;
    assert!(writer.is_held() && !read.is_finished(), "{fault:?}");
    // The read is not in a branch of the writer's scopes any more.
    let again = writer.scope(lock.write().acquire().into_future());
    let again = timeout(stage.lease(), again).await;
    let again = again.expect("it waits for the read").unwrap().unwrap();
    again.release().await.unwrap();
    writer.release().await.unwrap();
    granted(stage, read).await.release().await.unwrap();
}

async fn read_that_goes_on_after_the_scope_of_its_write_waits_for_the_writer(stage: &Stage) {
    goes_on_after_its_scope(stage, Fault::FailBefore).await;
}

async fn read_that_is_sent_or_answered_after_the_scope_of_its_write_waits_for_the_writer(
    stage: &Stage,
) {
    for fault in [Fault::Delay, Fault::DelayReply] {
        goes_on_after_its_scope(stage, fault(stage.most_delay())).await;
    }
}

/// The section of a guard stays open when the guard ends.
async fn read_that_goes_on_after_the_guard_of_its_write_waits_for_the_writer(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let writer = lock.write().acquire().await.unwrap();
    let inner = writer.reenter().unwrap();
    let mut section = inner.section();
    let mut reading = pin!(faulty_read(stage, &lock, Fault::FailBefore));
    let read = poll_fn(|cx| section.poll_in(cx, |cx| reading.as_mut().poll(cx)));
    let read = read.await.unwrap();
    inner.release().await.unwrap();
    stage.faults().clear(Op::Attempt);
    sleep(stage.part(5)).await;
    assert!(writer.is_held() && !read.is_finished());
    writer.release().await.unwrap();
    granted(stage, read).await.release().await.unwrap();
    drop(section);
}

async fn read_that_goes_on_after_an_inner_scope_comes_in_by_the_outer_one(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.rw_lock(KEY);
    let body = async {
        let mut read = None;
        let inner = async { read = Some(faulty_read(stage, &lock, Fault::FailBefore).await) };
        lock.write().acquire().run(inner).await.unwrap();
        stage.faults().clear(Op::Attempt);
        granted(stage, read.unwrap()).await.release().await.unwrap();
    };
    lock.write().acquire().run(body).await.unwrap();
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
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
    reader.release().await.unwrap();
    // Also where a write is further out.
    let write = lock.write();
    let body = lock.read().acquire().run(write.try_acquire());
    let error = refused(lock.write().acquire().run(body).await.unwrap().unwrap());
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
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

/// Each entry is a key in the server.
async fn reader_enters_a_thousand_times_and_no_more(stage: &Stage) {
    const MOST: u64 = 1_000;
    let lock = stage.client().await.rw_lock(KEY);
    let reader = lock.read().acquire().await.unwrap();
    let mut again: Vec<_> = (1..MOST).map(|_| reader.reenter().unwrap()).collect();
    let inside = reader.scope(lock.read().acquire().into_future()).await;
    for error in [reader.reenter().unwrap_err(), inside.unwrap().unwrap_err()] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.is_permanent() && error.to_string().contains("1000"));
    }
    assert!(reader.is_held());
    assert_eq!(lock.read().hold_count().await.unwrap(), MOST);
    again.pop().unwrap().release().await.unwrap();
    again.push(reader.reenter().unwrap());
    for guard in again {
        guard.release().await.unwrap();
    }
    reader.release().await.unwrap();
    // Entries of a writer are a number in one field.
    let writer = lock.write().acquire().await.unwrap();
    let again: Vec<_> = (0..MOST).map(|_| writer.reenter().unwrap()).collect();
    for guard in again {
        guard.release().await.unwrap();
    }
    writer.release().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

on_every_backend![
    reader_enters_a_thousand_times_and_no_more,
    read_inside_a_write_outlives_it_and_lets_other_readers_in,
    read_inside_a_write_that_ends_first_leaves_the_write,
    read_that_goes_on_after_the_scope_of_its_write_waits_for_the_writer,
    read_that_is_sent_or_answered_after_the_scope_of_its_write_waits_for_the_writer,
    read_that_goes_on_after_the_guard_of_its_write_waits_for_the_writer,
    read_that_goes_on_after_an_inner_scope_comes_in_by_the_outer_one,
    write_inside_ones_own_read_is_an_error_at_once,
    holds_are_entered_again_in_their_own_scopes,
];

//! Foreign code panics: a waker, a subscriber of the log, the metrics, a function of the user. One call panics in each play,
//! from the first that the crate makes to the last, and afterwards the key is free.
//!
//! A program apart from the other tests of this package, whose exporter counts what a whole process does.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod after_panics;
mod red_panics;

use std::future::poll_fn;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use distlock::test_util::ForeignPanic;
use distlock::{Client, Error, MemoryServer};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::{AnyLock, Disturbed as _, LockKind, RedisServer, eventually_eq};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout};

use after_panics::{MOST, SOON, expect_nothing_is_left, is_free, play_all};

const HOUR: Duration = Duration::from_secs(3600);

const WAIT: Duration = Duration::from_secs(3);

async fn turns(number: usize) {
    for _ in 0..number {
        yield_now().await;
    }
}

/// Three acquisitions one after the other, whose guards end in three ways, beside one that is dropped while it waits. Each is
/// a task, so that a panic ends that task alone.
async fn play(lock: &AnyLock, lease: Option<Duration>) {
    let mut tasks = JoinSet::<Result<(), Error>>::new();
    let acquire = |lock: &AnyLock| {
        let lock = lock.clone();
        async move { lock.acquire(Some(WAIT), lease).await }
    };
    let (dropped, released, scoped, left) =
        (acquire(lock), acquire(lock), acquire(lock), acquire(lock));
    tasks.spawn(async move {
        let guard = dropped.await?;
        let lost = guard.lost();
        let watcher = tokio::spawn(lost);
        turns(20).await;
        drop(guard);
        let _seen = timeout(WAIT, watcher).await;
        Ok(())
    });
    turns(5).await;
    tasks.spawn(async move {
        let guard = released.await?;
        turns(5).await;
        guard.release().await
    });
    tasks.spawn(async move {
        tokio::select! {
            biased;
            _ = left => {}
            () = turns(12) => {}
        }
        Ok(())
    });
    tasks.spawn(async move {
        let guard = scoped.await?;
        guard.scope(turns(5)).await?;
        drop(guard);
        Ok(())
    });
    let all = async { while tasks.join_next().await.is_some() {} };
    let _ended = timeout(4 * WAIT, all).await;
    tasks.shutdown().await;
}

async fn set_permits(client: &Client, kind: LockKind, key: &str) {
    if kind == LockKind::Semaphore {
        let semaphore = client.semaphore(key);
        assert!(semaphore.try_set_permits(kind.capacity()).await.unwrap());
    }
}

/// Plays once. Returns whether a call has panicked.
async fn play_with_a_panic(
    [client, other]: [Client; 2],
    (kind, lease): (LockKind, Option<Duration>),
    succeeding: u32,
) -> bool {
    let key = format!("panics:{kind:?}:{lease:?}:{succeeding}");
    set_permits(&other, kind, &key).await;
    let panic = ForeignPanic::after(succeeding);
    play(&kind.lock(&client, &key), lease).await;
    let has_come = panic.has_come();
    drop(panic);
    let what = format!("{key}, which panics: {has_come}");
    expect_nothing_is_left([&client, &other], kind, &key, &what).await;
    has_come
}

fn in_memory(kind: LockKind) {
    for lease in [None, Some(HOUR)] {
        if lease.is_some() && !kind.has_lease() {
            continue;
        }
        let play = async |succeeding| {
            let server = MemoryServer::new();
            let client = || Client::builder().in_memory(&server).unwrap();
            play_with_a_panic([client(), client()], (kind, lease), succeeding).await
        };
        play_all(0..MOST, 10, play, true);
    }
}

macro_rules! in_memory {
    ($($name:ident: $kind:ident,)*) => {$(
        #[test]
        fn $name() {
            in_memory(LockKind::$kind);
        }
    )*};
}

in_memory! {
    lock_is_free_after_any_call_of_foreign_code_has_panicked: Reentrant,
    spin_lock_is_free_after_any_call_of_foreign_code_has_panicked: Spin,
    fenced_lock_is_free_after_any_call_of_foreign_code_has_panicked: Fenced,
    fair_lock_is_free_after_any_call_of_foreign_code_has_panicked: Fair,
    write_lock_is_free_after_any_call_of_foreign_code_has_panicked: Write,
    read_lock_is_free_after_any_call_of_foreign_code_has_panicked: Read,
    permits_are_free_after_any_call_of_foreign_code_has_panicked: Permit,
    permits_without_a_lease_are_free_after_any_call_of_foreign_code_has_panicked: Semaphore,
    multi_lock_is_free_after_any_call_of_foreign_code_has_panicked: Multi,
    red_lock_is_free_after_any_call_of_foreign_code_has_panicked: Red,
}

/// A section panics, and one call of foreign code that the drop of its guard makes panics as well: a second panic that went on
/// would end the process. Returns whether that call has come.
async fn section_with_two_panics(kind: LockKind, is_waited_for: bool, succeeding: u32) -> bool {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (client(), client());
    set_permits(&other, kind, "section").await;
    let lock = kind.lock(&client, "section");
    let guard = lock.acquire(None, None).await.unwrap();
    let lost = tokio::spawn(guard.lost());
    let waiter = is_waited_for.then(|| tokio::spawn(async move { lock.acquire(None, None).await }));
    turns(20).await;
    let panic = ForeignPanic::after(succeeding);
    let section = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard;
        resume_unwind(Box::new("the section"));
    }));
    let has_come = panic.has_come();
    drop(panic);
    let what = format!("{kind:?}, waited for: {is_waited_for}, {succeeding}");
    let text = section.unwrap_err();
    assert_eq!(text.downcast_ref(), Some(&"the section"), "{what}");
    let _seen = timeout(WAIT, lost).await;
    if let Some(waiter) = waiter {
        let acquired = timeout(SOON, waiter).await;
        assert!(matches!(acquired, Ok(Ok(Ok(_)))), "{what}");
    }
    let freed = is_free(&other, kind, "section").await;
    assert!(freed.is_ok(), "{what}: {freed:?}");
    has_come
}

#[test]
fn section_that_panics_ends_no_process_where_a_call_of_foreign_code_panics_as_well() {
    for kind in [
        LockKind::Reentrant,
        LockKind::Fair,
        LockKind::Write,
        LockKind::Permit,
        LockKind::Multi,
        LockKind::Red,
    ] {
        for is_waited_for in [false, true] {
            let play = async |at| section_with_two_panics(kind, is_waited_for, at).await;
            play_all(0..MOST, 2, play, true);
        }
    }
}

/// A client takes another identity, and one call of foreign code that this makes panics. What it held is lost, and what waits begins
/// anew under the new identity. Returns whether that call has come.
async fn identity_with_a_panic(succeeding: u32) -> bool {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (client(), client());
    let mut held = Vec::new();
    for key in ["one", "two"] {
        held.push(client.lock(key).acquire().await.unwrap());
    }
    let lost: Vec<_> = held
        .iter()
        .map(|guard| tokio::spawn(guard.lost()))
        .collect();
    let blocker = other.lock("waited for").acquire().await.unwrap();
    let lock = client.lock("waited for");
    let waiter = tokio::spawn(lock.acquire().into_future());
    let until_free = tokio::spawn(lock.until_free().into_future());
    turns(20).await;
    let former = client.id();
    let panic = ForeignPanic::after(succeeding);
    let renewed = catch_unwind(AssertUnwindSafe(|| client.renew_identity()));
    let has_come = panic.has_come();
    drop(panic);
    let what = format!("a panic of call {succeeding}");
    assert_eq!(renewed.is_err(), has_come, "{what}");
    assert_ne!(client.id(), former, "{what}");
    assert!(!client.is_closed(), "{what}");
    for lost in lost {
        assert!(timeout(SOON, lost).await.is_ok(), "{what}: lost");
    }
    assert!(held.iter().all(|guard| !guard.is_held()), "{what}");
    assert_eq!(client.snapshot().losses.len(), 2, "{what}");
    turns(20).await;
    blocker.release().await.unwrap();
    let granted = timeout(SOON, waiter).await;
    let granted = granted.unwrap_or_else(|_| panic!("{what}: it waits"));
    let guard = granted.unwrap().unwrap();
    assert_eq!(guard.owner().client_id(), client.id(), "{what}");
    let freed = timeout(SOON, until_free).await;
    let freed = freed.unwrap_or_else(|_| panic!("{what}: it waits until the lock is free"));
    freed.unwrap().unwrap();
    guard.release().await.unwrap();
    drop((client, other, lock, held));
    let tasks = || async { Handle::current().metrics().num_alive_tasks() };
    eventually_eq(SOON, format!("tasks after {what}"), 0, tasks).await;
    has_come
}

#[test]
fn client_has_another_identity_after_any_call_of_foreign_code_has_panicked() {
    play_all(0..MOST, 4, identity_with_a_panic, true);
}

/// A client is closed, and one call of foreign code that this makes panics. Those that wait behind its own hold, and one that waits for
/// the end of that, are told at once. Returns whether that call has come.
async fn close_with_a_panic(succeeding: u32) -> bool {
    let client = Client::in_memory();
    let lock = client.lock("held");
    let guard = lock.acquire().await.unwrap();
    let waiters = (0..3).map(|_| lock.acquire().into_future());
    let mut waits: Vec<_> = waiters
        .map(|waiter| tokio::spawn(async { waiter.await.map(drop) }))
        .collect();
    waits.push(tokio::spawn(lock.until_free().into_future()));
    turns(20).await;
    let start = Instant::now();
    let panic = ForeignPanic::after(succeeding);
    let closing = tokio::spawn(async move { client.close(Duration::ZERO).await });
    let _closed = closing.await;
    let what = format!("a panic of call {succeeding}");
    for wait in waits {
        let ended = timeout(SOON, wait).await;
        match ended.unwrap_or_else(|_| panic!("{what}: it waits")) {
            Ok(ended) => assert!(matches!(ended, Err(Error::Closed { .. })), "{what}"),
            Err(panicked) => assert!(panicked.is_panic(), "{what}"),
        }
    }
    let has_come = panic.has_come();
    drop(panic);
    assert_eq!(start.elapsed(), Duration::ZERO, "{what}");
    guard.release().await.unwrap();
    has_come
}

#[test]
fn waits_of_a_closed_client_end_at_once_after_any_call_of_foreign_code_has_panicked() {
    play_all(0..MOST, 2, close_with_a_panic, true);
}

/// A release finds that its hold is gone, and one call of foreign code on the way panics. The snapshot shows the loss. Returns whether
/// that call has come.
async fn loss_with_a_panic(is_dropped: bool, succeeding: u32) -> bool {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = Client::builder().faults(&faults).in_memory(&server);
    let (client, other) = (
        client.unwrap(),
        Client::builder().in_memory(&server).unwrap(),
    );
    // A release that is sent again takes nothing for a loss, because the first try may have ended the hold.
    faults.always(Op::Release, Fault::DelayReply(Duration::from_millis(1)));
    let guard = client.lock("gone").acquire().await.unwrap();
    turns(20).await;
    assert!(other.lock("gone").force_release().await.unwrap());
    let panic = ForeignPanic::after(succeeding);
    let ending = tokio::spawn(async move {
        if is_dropped {
            drop(guard);
        } else {
            let _lost = guard.release().await;
        }
    });
    let _ended = ending.await;
    let what = format!("dropped: {is_dropped}, a panic of call {succeeding}");
    let losses = || async { client.snapshot().losses.len() };
    eventually_eq(SOON, format!("losses, {what}"), 1, losses).await;
    let has_come = panic.has_come();
    drop(panic);
    has_come
}

#[test]
fn loss_that_a_release_finds_is_shown_after_any_call_of_foreign_code_has_panicked() {
    for is_dropped in [true, false] {
        let play = async |succeeding| loss_with_a_panic(is_dropped, succeeding).await;
        play_all(0..MOST, 2, play, true);
    }
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("the waker"));
    }
}

#[tokio::test]
async fn branch_that_panics_ends_no_process_where_the_waker_of_the_next_branch_panics_as_well() {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (client(), client());
    let lock = client.lock("scope");
    let guard = lock.acquire().await.unwrap();
    let branch = async {
        let _inner = lock.acquire().await.unwrap();
        let mut is_polled = false;
        poll_fn(|_| {
            if replace(&mut is_polled, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        resume_unwind(Box::new("the branch"));
    };
    let both = async { tokio::join!(branch, lock.acquire()) };
    let mut scope = Box::pin(guard.scope(both));
    let waker = Waker::from(Arc::new(Panics));
    let mut context = Context::from_waker(&waker);
    assert!(scope.as_mut().poll(&mut context).is_pending());
    let poll = AssertUnwindSafe(|| scope.as_mut().poll(&mut context).is_ready());
    let panic = catch_unwind(poll).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the branch"));
    drop(scope);
    guard.release().await.unwrap();
    is_free(&other, LockKind::Reentrant, "scope").await.unwrap();
}

/// How many threads play over Redis, where a play waits for real.
const THREADS: u32 = 8;

fn over_redis(kind: LockKind, lease: Option<Duration>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(RedisServer::start());
    let url = server.url();
    let play = async |succeeding| {
        let connect = async || Client::connect(&url).await.unwrap();
        let clients = [connect().await, connect().await];
        play_with_a_panic(clients, (kind, lease), succeeding).await
    };
    thread::scope(|scope| {
        for first in 0..THREADS {
            let play = &play;
            scope.spawn(move || play_all((first..MOST).step_by(THREADS as usize), 10, play, false));
        }
    });
}

#[test]
fn lock_on_redis_is_free_after_any_call_of_foreign_code_has_panicked() {
    over_redis(LockKind::Reentrant, None);
}

#[test]
fn lock_with_a_long_lease_on_redis_is_free_after_any_call_of_foreign_code_has_panicked() {
    over_redis(LockKind::Reentrant, Some(HOUR));
}

#[test]
fn fair_lock_on_redis_is_free_after_any_call_of_foreign_code_has_panicked() {
    over_redis(LockKind::Fair, Some(HOUR));
}

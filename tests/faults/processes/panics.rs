//! Rows 69, 79 and 87: panics in the critical section, and in user code that runs while the library works.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::test_util::{is_waking, sizes};
use distlock::{Client, Error, distributed_lock};
use distlock_tests::{RedisServer, eventually};
use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::row::{Row, rows};
use crate::stage::Stage;
use crate::support::{OURS, SOON, client_with, free, ms};

pub(super) const KEY: &str = "order:42";

/// Short, so that a client that does not renew is found out soon, and longer than a machine with other work stands still.
const LEASE: Duration = ms(2_400);

/// Runs what must panic with our words.
async fn panics<T>(row: &Row, section: impl Future<Output = T>) {
    let Err(panic) = AssertUnwindSafe(section).catch_unwind().await else {
        panic!("no panic came through");
    };
    assert_eq!(panic.downcast_ref(), Some(&OURS));
    row.injected("panic in a section", 1);
}

/// As [`panics`], of a task.
async fn task_panics<T: Send + 'static>(
    row: &Row,
    section: impl Future<Output = T> + Send + 'static,
) {
    let error = tokio::spawn(section).await.err().expect("no panic");
    assert!(error.is_panic(), "{error}");
    row.injected("panic in a task's section", 1);
}

/// The key is free, soon, and no frame was left behind on this thread.
async fn released(stage: &Stage, client: &Client) {
    stage.free_within(ms(200)).await;
    let guard = client.lock(KEY).try_acquire().await.unwrap();
    let beside = client.lock(KEY).try_acquire().await.unwrap();
    assert!(beside.is_none(), "it entered a hold that is beside it");
    guard.expect("free").release().await.unwrap();
}

#[distributed_lock(key = KEY, client = client)]
async fn annotated(client: &Client, depth: u32) -> Result<(), Error> {
    yield_now().await;
    match depth {
        0 => panic!("{}", OURS),
        _ => Box::pin(annotated(client, depth - 1)).await,
    }
}

async fn panics_in_sections(stage: &Stage, row: &Row) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let section = async || -> () { std::panic::panic_any(OURS) };
    panics(row, lock.acquire().run(section())).await;
    released(stage, &client).await;
    let tried = async {
        section().await;
        Ok::<(), Error>(())
    };
    panics(row, lock.acquire().try_run(tried)).await;
    released(stage, &client).await;
    panics(row, lock.acquire().run(lock.acquire().run(section()))).await;
    released(stage, &client).await;
    // Until the future that panicked is dropped it holds the key, and code that runs after it on this thread is not inside.
    let mut kept = Box::pin(lock.acquire().run(section()));
    panics(row, &mut kept).await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    drop(kept);
    released(stage, &client).await;
    let with_a_guard = async {
        let _guard = lock.acquire().await.unwrap();
        section().await;
    };
    panics(row, with_a_guard).await;
    released(stage, &client).await;

    // A scope borrows its guard, which goes on.
    let guard = lock.acquire().await.unwrap();
    let body = async {
        let _nested = lock.acquire().await.unwrap();
        section().await;
    };
    panics(row, guard.scope(body)).await;
    assert!(guard.is_held());
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    released(stage, &client).await;
}

async fn panics_in_tasks(stage: &Stage, row: &Row) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let nested = lock.acquire();
    let body = async move { nested.run(async { panic!("{}", OURS) }).await };
    task_panics(row, lock.acquire().run(body)).await;
    released(stage, &client).await;
    for depth in 0..3 {
        let client = client.clone();
        task_panics(row, async move { annotated(&client, depth).await }).await;
    }
    released(stage, &client).await;
    // Those who wait for a task that panics come next.
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(lock.acquire().into_future());
    task_panics(row, async move {
        let _guard = guard;
        yield_now().await;
        panic!("{}", OURS)
    })
    .await;
    drop(timeout(SOON, waiter).await.unwrap().unwrap().unwrap());
    released(stage, &client).await;
}

async fn panics_under_the_lock(stage: &Stage, row: &Row) {
    panics_in_sections(stage, row).await;
    panics_in_tasks(stage, row).await;
}

/// A waker of the user's own: it calls the library, as a waker may that polls at once, and panics.
pub(super) struct Panics {
    client: Client,
    armed: AtomicBool,
    woken: AtomicU64,
}

impl Panics {
    pub(super) fn of(client: &Client) -> Arc<Self> {
        Arc::new(Self {
            client: client.clone(),
            armed: AtomicBool::new(false),
            woken: AtomicU64::new(0),
        })
    }

    pub(super) fn woken(&self) -> u64 {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        // Never if a mutex of the library were held here.
        let _kept = sizes(&self.client);
        // Once for each poll, and not where a timer wakes it: then it is the runtime that panics.
        if is_waking() && self.armed.swap(false, Ordering::SeqCst) {
            self.woken.fetch_add(1, Ordering::SeqCst);
            std::panic::panic_any(OURS);
        }
    }
}

/// Polls once, with a waker that panics.
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Arc<Panics>) -> Poll<F::Output> {
    waker.armed.store(true, Ordering::SeqCst);
    let waker = Waker::from(Arc::clone(waker));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

async fn short_lived(stage: &Stage) -> Client {
    stage
        .client_with(|builder| builder.watchdog_timeout(LEASE))
        .await
}

/// The client does all it could before: hold, renew, hand over, wait, tell of losses.
async fn client_goes_on(stage: &Stage, client: &Client) {
    let lock = client.lock(KEY);
    let guard = timeout(SOON, lock.acquire()).await.unwrap().unwrap();
    sleep(2 * LEASE).await;
    assert!(guard.is_held(), "nobody renewed it");
    let local = tokio::spawn(lock.acquire().into_future());
    yield_now().await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, local).await.unwrap().unwrap().unwrap();
    let other = stage.client().await.lock(KEY);
    let elsewhere = tokio::spawn(other.acquire().into_future());
    sleep(LEASE / 3).await;
    drop(guard);
    let guard = timeout(SOON, elsewhere).await.unwrap().unwrap().unwrap();
    let waiting = tokio::spawn(lock.acquire().into_future());
    sleep(LEASE / 3).await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    other.force_release().await.unwrap();
    // Told by the next renewal, a third of the lease later.
    timeout(SOON + LEASE, guard.lost()).await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    stage.nothing_is_left().await;
}

/// Wakers that panic where the library wakes: in the task that releases, and in the library's own tasks.
async fn panicking_wakers(stage: &Stage, row: &Row) {
    let (client, other) = (short_lived(stage).await, stage.client().await);
    let (lock, panics) = (client.lock(KEY), Panics::of(&client));

    // The caller's: a guard is dropped, and its hold handed over to a waiter.
    let guard = lock.acquire().await.unwrap();
    let mut waiter = lock.acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(guard))).is_err());
    drop(waiter);
    released(stage, &client).await;

    // The releaser's: it wakes a waiter when it frees a hold with a fixed lease.
    let guard = lock.acquire().lease(LEASE).await.unwrap();
    let mut waiter = lock.acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    drop(guard);
    woken(&panics, 2).await;
    drop(waiter);
    released(stage, &client).await;

    // The watchdog's: it reports the loss of a hold. It renews another hold, without any call of its client.
    let kept = client.lock("kept").acquire().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    let mut lost = Box::pin(guard.lost());
    assert!(poll_once(&mut lost, &panics).is_pending());
    other.lock(KEY).force_release().await.unwrap();
    woken(&panics, 3).await;
    sleep(3 * LEASE).await;
    assert!(kept.is_held(), "nobody renews any more");
    drop((lost, guard, kept));
    client_goes_on(stage, &client).await;
    row.injected("waker that panics", panics.woken());
}

/// The backend's own task: the word of another client's release wakes a waiter.
async fn panicking_listener(stage: &Stage, row: &Row) {
    let (client, other) = (short_lived(stage).await, stage.client().await);
    let (lock, panics) = (client.lock(KEY), Panics::of(&client));
    let held = other.lock(KEY).acquire().await.unwrap();
    let mut waiter = lock.acquire().into_future();
    // It listens and sleeps before it gets the waker that panics.
    assert!(timeout(LEASE / 3, &mut waiter).await.is_err());
    assert!(poll_once(&mut waiter, &panics).is_pending());
    let releasing = AssertUnwindSafe(held.release()).catch_unwind();
    drop(timeout(SOON, releasing).await.unwrap());
    woken(&panics, 1).await;
    drop(waiter);
    client_goes_on(stage, &client).await;
    row.injected("waker that panics", panics.woken());
}

pub(super) async fn woken(panics: &Panics, times: u64) {
    distlock_tests::eventually_eq(SOON, "wakers that panicked", times, || async {
        panics.woken()
    })
    .await;
}

/// A body that panics when it is dropped.
struct PanicsInDrop<'a>(&'a Row);

impl Drop for PanicsInDrop<'_> {
    fn drop(&mut self) {
        self.0.injected("drop that panics", 1);
        std::panic::panic_any(OURS);
    }
}

/// Bodies whose drop panics: at their end, when the future around them is dropped, and at a loss.
async fn panicking_drops(stage: &Stage, row: &Row) {
    let (client, other) = (short_lived(stage).await, stage.client().await);
    let lock = client.lock(KEY);
    let body = async |ends: bool| {
        let _drop = PanicsInDrop(row);
        let _nested = lock.acquire().await.unwrap();
        if !ends {
            std::future::pending::<()>().await;
        }
    };
    panics(row, lock.acquire().run(body(true))).await;
    released(stage, &client).await;
    let cut = async { timeout(ms(50), lock.acquire().run(body(false))).await };
    panics(row, cut).await;
    released(stage, &client).await;
    let guard = lock.acquire().await.unwrap();
    let cut = async { timeout(ms(50), guard.scope(body(false))).await };
    panics(row, cut).await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    released(stage, &client).await;
    let lost = async {
        let wipe = async {
            sleep(ms(50)).await;
            other.lock(KEY).force_release().await.unwrap();
        };
        tokio::join!(lock.acquire().run(body(false)), wipe)
    };
    panics(row, timeout(SOON, lost)).await;
    released(stage, &client).await;
    client_goes_on(stage, &client).await;
}

async fn f79_panics_of_wakers_and_drops_in_memory_poison_nothing(row: &Row) {
    panicking_wakers(&Stage::memory(), row).await;
    panicking_drops(&Stage::memory(), row).await;
}

/// A task waits for a key that its own client has, and its waker panics when that hold is lost. The owner, which began to wait
/// for the loss after it, is told by the renewal that finds it, and not at the deadline only.
async fn f79_panic_of_a_waiters_waker_keeps_no_loss_from_the_owner(row: &Row) {
    let stage = Stage::memory();
    let (client, other) = (short_lived(&stage).await, stage.client().await);
    let (lock, panics) = (client.lock(KEY), Panics::of(&client));
    let guard = lock.acquire().await.unwrap();
    let mut waiter = lock.acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    let lost = tokio::spawn(guard.lost());
    yield_now().await;
    let key = other.lock(KEY);
    key.force_release().await.unwrap();
    let told = timeout(LEASE / 3 + ms(50), lost).await;
    told.expect("told by the renewal").unwrap();
    row.injected("waker that panics", panics.woken());
    drop(waiter);
    drop(guard);
    client_goes_on(&stage, &client).await;
}

async fn f79_panicking_wakers_poison_nothing(row: &Row) {
    panicking_wakers(&Stage::redis().await, row).await;
}

async fn f79_panicking_listener_leaves_the_subscriptions_alive(row: &Row) {
    panicking_listener(&Stage::redis().await, row).await;
}

async fn f79_panicking_drops_of_bodies_poison_nothing(row: &Row) {
    panicking_drops(&Stage::redis().await, row).await;
}

/// Where the log is written to: it panics at what this test has lost.
#[derive(Clone)]
struct PanickingLog(Arc<AtomicU64>);

impl io::Write for PanickingLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if String::from_utf8_lossy(bytes).contains("row:87:lost") {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::panic::panic_any(OURS);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn f87_log_that_panics_at_a_loss_stops_no_renewals(row: &Row) {
    let (server, panics) = (RedisServer::start().await, PanickingLog(Arc::default()));
    let log = panics.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone());
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let lease = ms(3_000);
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let lost = client.lock("row:87:lost").acquire().await.unwrap();
    let kept = client.lock("row:87:kept").acquire().await.unwrap();
    server.cli(&["DEL", "row:87:lost"]).await;
    timeout(SOON, lost.lost()).await.expect("told");
    eventually(SOON, "an event", || async {
        panics.0.load(Ordering::SeqCst) > 0
    })
    .await;
    row.injected("log that panics", panics.0.load(Ordering::SeqCst));
    let gone = timeout(lease * 4 / 3, kept.lost()).await;
    assert!(gone.is_err() && kept.is_held(), "not renewed");
    kept.release().await.unwrap();
    assert!(lost.release().await.unwrap_err().is_lost());
    free(&server, &[&client]).await;
}

rows! {
    Both:
        panics_under_the_lock =>
            f69_panic_in_a_section_in_memory_releases_within_200_ms,
            f69_panic_in_a_section_releases;
    Paused:
        f79_panics_of_wakers_and_drops_in_memory_poison_nothing,
        f79_panic_of_a_waiters_waker_keeps_no_loss_from_the_owner;
    Real:
        f79_panicking_wakers_poison_nothing,
        f79_panicking_listener_leaves_the_subscriptions_alive,
        f79_panicking_drops_of_bodies_poison_nothing,
        f87_log_that_panics_at_a_loss_stops_no_renewals;
}

//! What the public types promise to the compiler: which futures may be sent to other threads, and kept.

use std::cell::Cell;
use std::fmt::Debug;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use distlock::kinds::{Fair, Fenced, LockKind, Read, Reentrant, Spin, Write};
use distlock::{
    Acquire, Builder, Client, CountDownLatch, Error, ExpirableSemaphore, FairLock, FencedLock,
    Lock, MemoryServer, NonReentrantFairLock, NonReentrantLock, ReadLock, RwLock, Semaphore,
    SpinLock, WriteLock, inherit, with_client,
};
use futures_util::FutureExt as _;

fn is_send<T: Send>(_: &T) {}
fn is_send_and_static<T: Send + 'static>(_: &T) {}

#[test]
fn handles_and_errors_are_cheap_to_clone() {
    fn is_cheap_to_clone<T: Clone>() {}
    is_cheap_to_clone::<Client>();
    is_cheap_to_clone::<Builder>();
    is_cheap_to_clone::<MemoryServer>();
    is_cheap_to_clone::<ExpirableSemaphore>();
    is_cheap_to_clone::<RwLock>();
    is_cheap_to_clone::<Semaphore>();
    is_cheap_to_clone::<CountDownLatch>();
    is_cheap_to_clone::<Acquire>();
    is_cheap_to_clone::<Error>();
}

/// The kind is known to the compiler alone: it adds nothing to a lock, and takes nothing from it.
#[test]
fn locks_of_every_kind_are_values_of_one_size() {
    fn is_lock<L: Clone + Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Debug + 'static>() {
        assert_eq!(size_of::<L>(), size_of::<RwLock>());
        assert_eq!(size_of::<Option<L>>(), size_of::<Option<RwLock>>());
    }
    is_lock::<Lock>();
    is_lock::<NonReentrantLock>();
    is_lock::<FairLock>();
    is_lock::<NonReentrantFairLock>();
    is_lock::<SpinLock>();
    is_lock::<FencedLock>();
    is_lock::<ReadLock>();
    is_lock::<WriteLock>();
}

/// Each name is an alias that a user may write out, and `Lock` alone is the reentrant lock.
#[test]
fn kind_of_a_lock_is_its_parameter() {
    fn kind_of<K: LockKind>(lock: &Lock<K>) -> String {
        format!("{lock:?}")
    }
    let client = Client::in_memory();
    let rw: RwLock = client.rw_lock("k");
    let lock: Lock = client.lock("k");
    let spin: Lock<Spin> = client
        .spin_lock("k")
        .backoff(Duration::ZERO, Duration::ZERO);
    let fair: Lock<Fair> = client.fair_lock("k");
    for (written, kind) in [
        (kind_of(&lock), "Reentrant"),
        (kind_of::<Reentrant>(&lock.clone()), "Reentrant"),
        (kind_of(&client.non_reentrant_lock("k")), "NonReentrant"),
        (kind_of(&spin), "Spin"),
        (kind_of::<Fenced>(&client.fenced_lock("k")), "Fenced"),
        (kind_of(&fair), "Fair"),
        (
            kind_of(&client.non_reentrant_fair_lock("k")),
            "NonReentrantFair",
        ),
        (kind_of::<Read>(&rw.read()), "Read"),
        (kind_of::<Write>(&rw.write()), "Write"),
    ] {
        let start = format!("Lock {{ handle: Handle {{ kind: {kind}, ");
        assert!(written.starts_with(&start), "{written}");
    }
}

/// Those of asynchronous functions are in `auto_traits`.
#[tokio::test]
async fn futures_that_functions_return_are_send_and_most_outlive_what_they_come_from() {
    let client = Client::in_memory();
    let lock = client.lock("k");
    is_send(&lock.try_acquire());
    is_send(&client.semaphore("pool").try_acquire_many(1));
    is_send_and_static(&with_client(&client, async {}));
    is_send_and_static(&inherit(async {}));
    let guard = lock.acquire().await.unwrap();
    is_send_and_static(&guard.lost());
    let told = |value: u32, _| Ok(value);
    is_send_and_static(&lock.acquire().on_lost(told).run(async { 1 }));
    is_send_and_static(
        &lock
            .acquire()
            .on_lost(told)
            .try_run(async { Ok::<_, Error>(1) }),
    );
    is_send(&guard.scope(async {}));
    is_send(&guard.try_scope(async { Ok::<_, Error>(()) }));
    is_send_and_static(&guard.release());
    let seats = client.expirable_semaphore("seats");
    is_send(&seats.try_acquire());
    seats.set_permits(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    is_send_and_static(&permit.ids());
    is_send_and_static(&permit.lost());
    is_send(&permit.scope(async {}));
    is_send_and_static(&permit.release());
}

/// Whether a future panics that is polled once more after its completion.
async fn panics_if_polled_again<F: Future>(future: F) -> bool {
    let mut future = Box::pin(future);
    future.as_mut().await;
    let again = AssertUnwindSafe(poll_fn(|cx| {
        Poll::Ready(future.as_mut().poll(cx).is_ready())
    }));
    again.catch_unwind().await.is_err()
}

#[tokio::test]
async fn every_future_that_is_polled_after_its_completion_panics() {
    let client = Client::in_memory();
    let lock = client.lock("k");
    assert!(panics_if_polled_again(lock.acquire().into_future()).await);
    let refused = client.lock("").acquire();
    assert!(panics_if_polled_again(refused.into_future()).await);
    assert!(panics_if_polled_again(lock.try_acquire()).await);
    assert!(panics_if_polled_again(lock.acquire().run(async {})).await);
    let ok = async { Ok::<_, Error>(()) };
    assert!(panics_if_polled_again(lock.acquire().try_run(ok)).await);
    let refused = client.lock("").acquire();
    assert!(panics_if_polled_again(refused.run(async {})).await);
    assert!(panics_if_polled_again(inherit(async {})).await);
    assert!(panics_if_polled_again(with_client(&client, async {})).await);
    assert!(panics_if_polled_again(client.count_down_latch("none").wait().into_future()).await);
    let guard = lock.acquire().await.unwrap();
    assert!(panics_if_polled_again(guard.scope(async {})).await);
    let lost = guard.lost();
    assert!(panics_if_polled_again(guard.release()).await);
    assert!(panics_if_polled_again(lost).await);
}

#[tokio::test(start_paused = true)]
async fn future_that_is_polled_after_the_loss_of_its_hold_panics() {
    let lock = Client::in_memory().lock("k");
    let short = || lock.acquire().lease(Duration::from_secs(1));
    let never = std::future::pending::<()>;
    assert!(panics_if_polled_again(short().run(never())).await);
    let guard = short().await.unwrap();
    assert!(panics_if_polled_again(guard.scope(never())).await);
}

#[tokio::test]
async fn run_goes_with_its_body_send_or_not_borrowing_or_not() {
    let client = Client::in_memory();
    // Borrows, and is sent.
    let names = [String::from("a"), String::from("b")];
    let run = client.lock("k").acquire().run(async {
        let mut length = 0;
        for name in names.iter().map(|name| name.as_str()) {
            tokio::task::yield_now().await;
            length += name.len();
        }
        length
    });
    is_send(&run);
    assert_eq!(run.await.unwrap(), 2);
    // Stays on its thread.
    let local = Rc::new(Cell::new(0));
    let body = async {
        tokio::task::yield_now().await;
        local.set(local.get() + 1);
    };
    client.lock("k").acquire().run(body).await.unwrap();
    assert_eq!(local.get(), 1);
    // Spawned, and boxed.
    let owned = client.lock("k").acquire().run(async { 7 });
    assert_eq!(tokio::spawn(owned).await.unwrap().unwrap(), 7);
    let boxed: std::pin::Pin<Box<dyn Future<Output = Result<u32, Error>> + Send + '_>> =
        Box::pin(client.lock("k").acquire().run(async { 7 }));
    assert_eq!(boxed.await.unwrap(), 7);
}

#[tokio::test]
async fn builder_outlives_its_lock_and_is_taken_bare() {
    let client = Client::in_memory();
    let acquire = client.lock("k").acquire();
    let again = acquire.clone();
    drop(acquire.await.unwrap());
    let wait = Duration::from_secs(1);
    let guard = tokio::time::timeout(wait, again).await.unwrap().unwrap();
    drop(guard);
    let (one, two) = tokio::join!(client.lock("a").acquire(), client.lock("b").acquire());
    drop((one.unwrap(), two.unwrap()));
    let joined = futures_util::future::join_all(
        ["c", "d"].map(|key| client.lock(key).acquire().into_future()),
    );
    assert!(joined.await.iter().all(Result::is_ok));
}

#[test]
fn run_is_little_larger_than_its_body() {
    let client = Client::in_memory();
    let body = async {
        let kept = [0_u8; 4096];
        tokio::task::yield_now().await;
        kept.len()
    };
    let size = size_of_val(&body);
    let run = client.lock("k").acquire().run(body);
    assert!(
        size_of_val(&run) <= size + 512,
        "{} for {size}",
        size_of_val(&run)
    );
    assert!(size_of::<Acquire>() <= 104, "{}", size_of::<Acquire>());
}

//! Clients, guards and futures that outlive their runtime, and drops without a runtime.
//!
//! These tests make runtimes of their own, so they do not play on a stage. Memory only: what is tested is the client's
//! own tasks.

mod several;

use std::future::IntoFuture;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::test_util::{Sizes, sizes, stored};
use distlock::{Client, Guard, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(30);
/// After how long a wait is looked at for the log.
const WARN_AFTER: Duration = Duration::from_secs(30);

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn client(server: &MemoryServer, faults: &Faults) -> Client {
    let builder = Client::builder().watchdog_timeout(LEASE).faults(faults);
    builder.in_memory(server).unwrap()
}

fn acquired(runtime: &Runtime, client: &Client, keys: usize) -> Vec<Guard> {
    runtime.block_on(async {
        let mut guards = Vec::new();
        for n in 0..keys {
            guards.push(client.lock(format!("k:{n}")).acquire().await.unwrap());
        }
        guards
    })
}

/// Waits in the runtime's own time until nothing is left.
async fn quiet(server: &MemoryServer, client: &Client) {
    let start = tokio::time::Instant::now();
    while stored(server) != (0, 0) || sizes(client) != Sizes::default() {
        let left = (stored(server), sizes(client));
        assert!(start.elapsed() < LEASE / 3, "left: {left:?}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn guards_dropped_after_their_runtime_are_released_by_the_next() {
    for make in [paused, threads] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let first = make();
        let guards = acquired(&first, &client, 1_000);
        drop(first);
        drop(guards);
        assert_eq!(sizes(&client).pending_releases, 1_000);
        let second = make();
        second.block_on(async {
            // Any call starts again what has to run.
            drop(client.lock(KEY).try_acquire().await.unwrap());
            quiet(&server, &client).await;
        });
    }
}

#[test]
fn close_in_another_runtime_flushes_what_was_dropped_without_one() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let first = paused();
    let guards = acquired(&first, &client, 10);
    drop(first);
    drop(guards);
    paused().block_on(async {
        client.close(Duration::from_secs(1)).await.unwrap();
        quiet(&server, &client).await;
    });
}

#[test]
fn runtime_that_ends_under_running_scopes_drops_them_quietly() {
    for make in [paused, threads] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let first = make();
        first.block_on(async {
            for n in 0..20 {
                let lock = client.lock(format!("k:{}", n % 5));
                let nested = lock.clone();
                tokio::spawn(lock.acquire().run(async move {
                    let _nested = nested.acquire().await.unwrap();
                    std::future::pending::<()>().await;
                }));
            }
            while sizes(&client).waiters < 15 {
                sleep(Duration::from_millis(1)).await;
            }
        });
        drop(first);
        make().block_on(async {
            drop(client.lock(KEY).try_acquire().await.unwrap());
            quiet(&server, &client).await;
        });
    }
}

#[test]
fn guard_dropped_on_a_plain_thread_is_released_by_the_runtime_that_lives() {
    for make in [paused, threads] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let runtime = make();
        for keys in [1, 3] {
            let mut guards = acquired(&runtime, &client, keys);
            let guard = guards.pop().unwrap();
            thread::spawn(move || drop(guard)).join().unwrap();
            drop(guards);
            // Nobody calls the client any more.
            runtime.block_on(quiet(&server, &client));
        }
    }
}

#[test]
fn watchdog_starts_again_in_the_next_runtime() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let first = paused();
    let guards = acquired(&first, &client, 3);
    first.block_on(async { sleep(2 * LEASE).await });
    // A renewal is under way when the runtime ends: nobody will hear its answer.
    faults.always(Op::Renew, Fault::Delay(Duration::from_secs(1)));
    first.block_on(async {
        while faults.hits(Op::Renew) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    drop(first);
    faults.clear(Op::Renew);
    let second = paused();
    second.block_on(async {
        drop(client.lock(KEY).try_acquire().await.unwrap());
        sleep(3 * LEASE).await;
        assert!(guards.iter().all(Guard::is_held));
        for guard in guards {
            guard.release().await.unwrap();
        }
        quiet(&server, &client).await;
    });
}

#[test]
fn release_under_way_when_the_runtime_ends_is_sent_by_the_next() {
    for (dropped, fault) in [
        (true, Fault::Delay(LEASE / 10)),
        (false, Fault::Delay(LEASE / 10)),
        (true, Fault::Never),
        (true, Fault::FailBefore),
    ] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let first = paused();
        let guard = acquired(&first, &client, 1).pop().unwrap();
        faults.always(Op::Release, fault);
        first.block_on(async {
            if dropped {
                drop(guard);
            } else {
                tokio::spawn(guard.release());
            }
            sleep(Duration::from_millis(10)).await;
        });
        assert!(faults.hits(Op::Release) > 0);
        drop(first);
        faults.clear(Op::Release);
        paused().block_on(async {
            drop(client.lock(KEY).try_acquire().await.unwrap());
            quiet(&server, &client).await;
        });
    }
}

#[test]
fn late_attempt_is_cleaned_up_also_when_the_runtime_changes_meanwhile() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let first = paused();
    let owner = first.block_on(async {
        // Late: its connection is broken, and it may come any time before its lease is over.
        faults.next(Op::Attempt, Fault::Late(LEASE));
        let guard = client.lock(KEY).acquire().await.unwrap();
        let owner = guard.owner();
        guard.release().await.unwrap();
        sleep(LEASE / 10).await;
        owner
    });
    drop(first);
    paused().block_on(async {
        drop(client.lock("other").try_acquire().await.unwrap());
        let verbs = distlock::test_util::Verbs::new(&client, owner.client_id());
        verbs.attempt(KEY, owner.number(), LEASE).await.unwrap();
        quiet(&server, &client).await;
    });
}

#[test]
fn waiters_may_be_dropped_after_their_runtime() {
    for make in [paused, threads] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let first = make();
        let (guard, waiters) = first.block_on(async {
            let guard = client.lock(KEY).acquire().await.unwrap();
            let mut waiters = Vec::new();
            for _ in 0..10 {
                let mut waiter = Box::pin(client.lock(KEY).acquire().into_future());
                let polled = std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(waiter.as_mut().poll(cx).is_pending())
                });
                assert!(polled.await);
                waiters.push(waiter);
            }
            (guard, waiters)
        });
        drop(first);
        drop(guard);
        drop(waiters);
        make().block_on(async {
            drop(client.lock("other").try_acquire().await.unwrap());
            quiet(&server, &client).await;
        });
    }
}

#[test]
fn one_static_client_serves_runtime_after_runtime() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let start = Instant::now();
    for n in 0..20 {
        let runtime = if n % 2 == 0 { paused() } else { threads() };
        runtime.block_on(async {
            let guard = client.lock(KEY).acquire().await.unwrap();
            let next = tokio::spawn(client.lock(KEY).acquire().into_future());
            tokio::task::yield_now().await;
            if n % 3 == 0 {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            drop(next.await.unwrap().unwrap());
        });
    }
    paused().block_on(async {
        drop(client.lock("other").try_acquire().await.unwrap());
        quiet(&server, &client).await;
    });
    assert!(start.elapsed() < LEASE / 2);
}

#[test]
fn guard_that_is_leaked_with_its_runtime_panics_nowhere() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let first = paused();
    let mut guards = acquired(&first, &client, 2);
    let lost = guards[0].lost();
    drop(first);
    // On a thread that is just ending, after its thread-locals have gone.
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Guard>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let kept = guards.pop().unwrap();
    thread::spawn(move || KEPT.with(|slot| slot.borrow_mut().push(kept)))
        .join()
        .unwrap();
    drop(guards);
    drop(lost);
    assert_eq!(sizes(&client).pending_releases, 2);
}

#[test]
fn release_under_way_when_its_client_takes_another_identity_is_not_begun_again_and_again() {
    let (ended, end) = mpsc::channel();
    // A thread of its own: where a task is always ready, paused time stands still.
    thread::spawn(move || {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let runtime = paused();
        let guard = acquired(&runtime, &client, 1).pop().unwrap();
        faults.always(Op::Release, Fault::Never);
        runtime.block_on(async {
            drop(guard);
            sleep(Duration::from_millis(10)).await;
            client.renew_identity().unwrap();
            sleep(2 * LEASE).await;
        });
        let _gone = ended.send(faults.hits(Op::Release));
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(1));
}

#[test]
fn last_handle_that_goes_while_long_waits_are_looked_at_leaves_no_task() {
    let runtime = paused();
    runtime.block_on(async {
        let client = Client::in_memory();
        // Nobody sets their permits. The waits are over while the first look is under way.
        for key in ["one", "two"] {
            let over = WARN_AFTER + Duration::from_millis(10);
            tokio::spawn(client.semaphore(key).acquire().wait(over).into_future());
        }
        drop(client);
        sleep(10 * LEASE).await;
    });
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
}

#[test]
fn client_runs_only_the_tasks_that_have_something_to_do() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let runtime = paused();
    let tasks = || runtime.metrics().num_alive_tasks();
    let guard = acquired(&runtime, &client, 1).pop().unwrap();
    assert_eq!(tasks(), 1, "the watchdog");
    runtime.block_on(guard.release()).unwrap();
    assert_eq!(tasks(), 1);
    drop(acquired(&runtime, &client, 1));
    runtime.block_on(quiet(&server, &client));
    assert_eq!(tasks(), 2, "the releaser as well");
}

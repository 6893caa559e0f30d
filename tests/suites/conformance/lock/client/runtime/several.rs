//! Clients that are used in several runtimes, of which one ends and another lives.

use std::future::IntoFuture;
use std::thread;
use std::time::Duration;

use distlock::test_util::stored;
use distlock::{Guard, MemoryServer};
use distlock_tests::faults::{Fault, Faults, Op};
use tokio::time::{advance, sleep};

use super::{KEY, LEASE, acquired, client, paused, quiet};

#[test]
fn watchdog_goes_on_in_the_newest_runtime_when_its_own_has_ended() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let (first, second) = (paused(), paused());
    let mut guards = acquired(&first, &client, 1);
    second.block_on(async {
        guards.push(client.lock(KEY).acquire().await.unwrap());
    });
    drop(first);
    // Nobody calls the client any more.
    second.block_on(async {
        sleep(3 * LEASE).await;
        assert!(guards.iter().all(Guard::is_held));
    });
}

#[test]
fn watchdog_goes_on_in_a_runtime_that_only_changes_a_number() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let (first, second) = (paused(), paused());
    let guard = acquired(&first, &client, 1).pop().unwrap();
    drop(first);
    second.block_on(async {
        let number = client.semaphore("number");
        number.add_permits(1).await.unwrap();
        sleep(3 * LEASE).await;
        assert!(guard.is_held());
        number.delete().await.unwrap();
        guard.release().await.unwrap();
        quiet(&server, &client).await;
    });
}

#[test]
fn watchdog_goes_on_in_a_runtime_that_only_reads() {
    for read in 0..7 {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let (first, second) = (paused(), paused());
        let guard = acquired(&first, &client, 1).pop().unwrap();
        drop(first);
        second.block_on(async {
            let free = client.lock("free");
            match read {
                0 => drop(free.is_locked().await.unwrap()),
                1 => drop(free.holders().await.unwrap()),
                2 => drop(free.force_release().await.unwrap()),
                3 => drop(client.scan("*").next_page().await.unwrap()),
                4 => drop(client.ping().await.unwrap()),
                5 => drop(client.inspect("free").await.unwrap()),
                _ => {
                    let seen = client.inspect("free").await.unwrap();
                    drop(client.force_release(&seen).await.unwrap());
                }
            }
            sleep(3 * LEASE).await;
            assert!(guard.is_held(), "read {read}");
            guard.release().await.unwrap();
            quiet(&server, &client).await;
        });
    }
}

/// The guard of its task calls the client while the runtime ends, which makes that runtime the newest caller's.
#[test]
fn watchdog_goes_on_in_a_runtime_that_lives_whatever_the_ending_one_has_called_last() {
    for makes_last_call in [false, true] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let (first, second) = (paused(), paused());
        first.block_on(async {
            let lock = client.lock("k:0");
            tokio::spawn(async move {
                let _guard = lock.acquire().await.unwrap();
                std::future::pending::<()>().await;
            });
            sleep(Duration::from_millis(1)).await;
        });
        let guard = second.block_on(client.lock(KEY).acquire().into_future());
        let guard = guard.unwrap();
        if makes_last_call {
            let other = first.block_on(client.lock("other").try_acquire());
            first.block_on(other.unwrap().unwrap().release()).unwrap();
        }
        drop(first);
        // Nobody calls the client any more.
        second.block_on(async {
            sleep(3 * LEASE).await;
            assert!(guard.is_held(), "last call: {makes_last_call}");
            guard.release().await.unwrap();
            quiet(&server, &client).await;
        });
    }
}

/// Time has passed in the first runtime, and nobody has read its clock since.
#[test]
fn hold_of_a_new_runtime_is_no_older_in_one_that_has_rested_for_longer_than_a_lease() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let (first, second) = (paused(), paused());
    first.block_on(async {
        let guard = client.lock("k:0").acquire().await.unwrap();
        guard.release().await.unwrap();
        quiet(&server, &client).await;
        // Tasks of the client may read the clock for a while.
        sleep(10 * LEASE).await;
        advance(2 * LEASE).await;
    });
    let guard = second.block_on(client.lock(KEY).acquire().into_future());
    let guard = guard.unwrap();
    // The watchdog wakes up there.
    first.block_on(async {
        sleep(Duration::from_millis(50)).await;
        assert!(client.lock(KEY).is_locked().await.unwrap());
    });
    assert!(guard.is_held());
    second.block_on(guard.release()).unwrap();
}

/// On a plain thread there is no runtime but those that were seen, and the newest of them has ended.
#[test]
fn guard_dropped_on_a_plain_thread_is_released_also_if_the_newest_runtime_has_ended() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let (first, second) = (paused(), paused());
    let guard = acquired(&first, &client, 1).pop().unwrap();
    let other = second.block_on(client.lock(KEY).acquire().into_future());
    drop(second);
    thread::spawn(move || drop((guard, other))).join().unwrap();
    first.block_on(quiet(&server, &client));
}

#[test]
fn release_under_way_when_its_runtime_ends_is_sent_also_if_the_watchdog_runs_in_another() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let client = client(&server, &faults);
    let (first, newest) = (paused(), paused());
    // The first acquisition starts the watchdog.
    let guard = acquired(&first, &client, 1).pop().unwrap();
    faults.always(Op::Release, Fault::Never);
    newest.block_on(async {
        drop(client.lock(KEY).acquire().await.unwrap());
        sleep(Duration::from_millis(10)).await;
    });
    assert!(faults.hits(Op::Release) > 0);
    drop(newest);
    faults.clear(Op::Release);
    first.block_on(async {
        // Released by its caller, so it gives the releaser no work.
        let other = client.lock("other").acquire().await.unwrap();
        other.release().await.unwrap();
        guard.release().await.unwrap();
        quiet(&server, &client).await;
    });
}

#[test]
fn release_under_way_when_its_runtime_ends_is_sent_also_if_no_handle_of_the_client_is_left() {
    for is_dropped_before in [true, false] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let client = client(&server, &faults);
        let (first, second) = (paused(), paused());
        let guard = acquired(&first, &client, 1).pop().unwrap();
        faults.always(Op::Release, Fault::Never);
        first.block_on(async {
            drop(guard);
            sleep(Duration::from_millis(10)).await;
        });
        assert!(faults.hits(Op::Release) > 0);
        let drop_client = || {
            second.block_on(async move {
                if is_dropped_before {
                    // Its runtime is the newest one.
                    drop(client.lock("other").acquire().await.unwrap());
                }
                drop(client);
            });
        };
        if is_dropped_before {
            drop_client();
            drop(first);
        } else {
            drop(first);
            drop_client();
        }
        faults.clear(Op::Release);
        second.block_on(async {
            let start = tokio::time::Instant::now();
            while stored(&server) != (0, 0) {
                assert!(start.elapsed() < LEASE / 3, "{is_dropped_before}");
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

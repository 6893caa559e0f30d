//! Row 112: a command carries the operations of many tasks, and its outcome is unknown.
//!
//! On one thread, of several operations that begin at once the first may go alone, and the others go together.

use std::time::Duration;

use distlock::test_util::collect_always;
use distlock::{Client, Error, Guard};
use distlock_tests::{Select, Which};
use futures_util::future::join_all;

use crate::row::{Row, rows};
use crate::support::{SOON, client, free, server_and_proxy, warm_up};

/// So many operations at once are a batch, and perhaps a single one before it.
const AT_ONCE: usize = 8;

/// One of those that go together.
const TOGETHER: &str = "key:3";

/// A client that collects what comes up while anything is under way, as a busy one does.
async fn collecting(url: &str) -> Client {
    let client = client(url).await;
    collect_always(&client);
    client
}

/// Acquires so many keys at once.
async fn acquired(client: &Client, wait: Duration) -> Vec<Result<Guard, Error>> {
    let acquire = |number| {
        let lock = client.lock(format!("key:{number}"));
        lock.acquire().wait(wait).into_future()
    };
    join_all((0..AT_ONCE).map(acquire)).await
}

/// Acquires so many readers at once, two for each lock.
async fn readers(client: &Client, wait: Duration) -> Vec<Result<Guard, Error>> {
    let acquire = |number| {
        let lock = client.rw_lock(format!("key:{}", number / 2));
        lock.read().acquire().wait(wait).into_future()
    };
    join_all((0..AT_ONCE).map(acquire)).await
}

async fn release_all(guards: Vec<Guard>) {
    for released in join_all(guards.into_iter().map(Guard::release)).await {
        released.unwrap();
    }
}

async fn f112_lost_reply_of_a_batch_of_attempts_leaves_each_unknown_and_frees_its_key(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    warm_up(&client).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let mut failed = 0;
    for acquired in acquired(&client, Duration::ZERO).await {
        match acquired {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => {
                assert!(error.is_unavailable(), "{error}");
                failed += 1;
            }
        }
    }
    row.injected("reply eaten", fault.hits());
    // All but the first, which may have gone alone.
    assert!(failed >= AT_ONCE - 1, "{failed}");
    // The lease is 30 s: only releases of the unknown holds free the keys in time.
    free(&server, &[&client]).await;
}

async fn f112_attempts_of_a_batch_without_reply_are_sent_again_and_count_once(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    warm_up(&client).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let guards = acquired(&client, SOON).await;
    let guards: Vec<Guard> = guards.into_iter().map(Result::unwrap).collect();
    row.injected("reply eaten", fault.hits());
    for guard in &guards {
        let once = [(guard.owner().to_string(), String::from("1"))].into();
        assert_eq!(server.hgetall(guard.key()).await, once);
    }
    release_all(guards).await;
    free(&server, &[&client]).await;
}

async fn f112_lost_reply_of_a_batch_of_releases_is_no_error(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    warm_up(&client).await;
    let guards = acquired(&client, SOON).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    release_all(guards.into_iter().map(Result::unwrap).collect()).await;
    row.injected("reply eaten", fault.hits());
    free(&server, &[&client]).await;
}

async fn f112_batch_that_is_lost_with_its_connection_is_sent_over_the_next_one(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    warm_up(&client).await;
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let cut = async {
        drop(batch.caught(SOON).await);
        row.injected("batch cut", 1);
    };
    let (guards, ()) = tokio::join!(acquired(&client, SOON), cut);
    let guards: Vec<Guard> = guards.into_iter().map(Result::unwrap).collect();
    for guard in &guards {
        let once = [(guard.owner().to_string(), String::from("1"))].into();
        assert_eq!(server.hgetall(guard.key()).await, once);
    }
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let cut = async {
        drop(batch.caught(SOON).await);
        row.injected("batch cut", 1);
    };
    tokio::join!(release_all(guards), cut);
    free(&server, &[&client]).await;
}

async fn f112_batch_that_comes_after_its_callers_have_left_keeps_no_key(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    warm_up(&client).await;
    let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let leave = async {
        let batch = batch.caught(SOON).await;
        row.injected("batch late", 1);
        batch
    };
    // None of them is answered in time.
    let (failed, batch) = tokio::join!(acquired(&client, Duration::ZERO), leave);
    assert!(failed.iter().filter(|one| one.is_err()).count() >= AT_ONCE - 1);
    batch.deliver().await;
    drop(failed);
    free(&server, &[&client]).await;
}

async fn f112_lost_reply_of_a_batch_of_readers_leaves_each_unknown_and_frees_the_locks(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    let guards = readers(&client, SOON).await;
    release_all(guards.into_iter().map(Result::unwrap).collect()).await;
    let fault = proxy.eat_reply(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
    let mut failed = 0;
    for acquired in readers(&client, Duration::ZERO).await {
        match acquired {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => {
                assert!(error.is_unavailable(), "{error}");
                failed += 1;
            }
        }
    }
    row.injected("reply eaten", fault.hits());
    // The two readers of that lock, and those in the same batch.
    assert!(failed >= 2, "{failed}");
    // The lease is 30 s: only releases of the unknown holds free the locks in time.
    free(&server, &[&client]).await;
}

async fn f112_batch_of_readers_that_is_lost_with_its_connection_is_sent_over_the_next_one(
    row: &Row,
) {
    let (server, proxy) = server_and_proxy().await;
    let client = collecting(&proxy.url()).await;
    let guards = readers(&client, SOON).await;
    release_all(guards.into_iter().map(Result::unwrap).collect()).await;
    let lost_once = async || {
        let batch = proxy.hold(Select::COMMANDS, Which::NEXT.containing(TOGETHER));
        drop(batch.caught(SOON).await);
        row.injected("batch cut", 1);
    };
    let (guards, ()) = tokio::join!(readers(&client, SOON), lost_once());
    let guards: Vec<Guard> = guards.into_iter().map(Result::unwrap).collect();
    for pair in guards.chunks(2) {
        // The mode, and each owner once.
        let fields = server.hgetall(pair[0].key()).await;
        assert_eq!(fields.len(), 3, "{fields:?}");
        for guard in pair {
            assert_eq!(fields[&guard.owner().to_string()], "1");
        }
    }
    tokio::join!(release_all(guards), lost_once());
    free(&server, &[&client]).await;
}

rows! {
    Real: f112_lost_reply_of_a_batch_of_attempts_leaves_each_unknown_and_frees_its_key,
        f112_attempts_of_a_batch_without_reply_are_sent_again_and_count_once,
        f112_lost_reply_of_a_batch_of_releases_is_no_error,
        f112_batch_that_is_lost_with_its_connection_is_sent_over_the_next_one,
        f112_batch_that_comes_after_its_callers_have_left_keeps_no_key,
        f112_lost_reply_of_a_batch_of_readers_leaves_each_unknown_and_frees_the_locks,
        f112_batch_of_readers_that_is_lost_with_its_connection_is_sent_over_the_next_one;
}

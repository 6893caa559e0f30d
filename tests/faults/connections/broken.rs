//! Rows 44 to 47: connections that break with commands under way, fall silent, or bring bytes one by one.

use std::time::Duration;

use distlock::{Builder, Client, Error, Guard};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, eventually_eq, size};
use futures_util::future::join_all;
use rand::RngExt;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::foreign::names;
use crate::row::{Row, rows};
use crate::support::{
    SOON, client, client_with, default_client, free, idle, listened, ms, warm_up,
};

/// Breaks the connection for commands while 500 of them are under way, somewhere in their bytes. How often it did.
async fn break_somewhere(proxy: &Proxy, seed: usize) -> u64 {
    let random = |most: usize| rand::rng().random_range(1..most);
    let existing = Select::COMMANDS.existing();
    // An operation is some 70 bytes of a batch, and its answer at least 3.
    let cut = match seed % 4 {
        0 => proxy.cut_after(existing, Way::Up, random(30_000)),
        1 => proxy.cut_after(existing, Way::Down, random(1_400)),
        at => {
            for _ in 0..random(40) {
                yield_now().await;
            }
            let way = if at == 2 { Way::Up } else { Way::Down };
            return proxy.fin(existing, way) as u64;
        }
    };
    cut.reach(1, SOON).await;
    cut.hits()
}

/// Acquires 500 keys at once: half of them with a single try, which may fail with the connection, and half with a wait.
async fn acquire_all(client: &Client, keys: &[String]) -> Vec<Guard> {
    let acquire = async |n: usize| match n % 2 {
        0 => client.lock(&keys[n]).try_acquire().await,
        _ => {
            let guard = client.lock(&keys[n]).acquire().wait(6 * SOON).await;
            Ok(Some(guard.expect("tried again within its wait")))
        }
    };
    let mut guards = Vec::new();
    for outcome in join_all((0..keys.len()).map(acquire)).await {
        match outcome {
            Ok(guard) => guards.push(guard.expect("nobody else is there")),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
    guards
}

/// Is each guard's hold in the server, once?
async fn all_are_held(server: &RedisServer, guards: &[Guard]) {
    let mut pipe = redis::pipe();
    for guard in guards {
        pipe.hget(guard.key(), guard.owner().to_string());
    }
    let mut connection = server.connection().await;
    let counts: Vec<Option<u32>> = pipe.query_async(&mut connection).await.unwrap();
    assert!(counts.iter().all(|count| *count == Some(1)), "{counts:?}");
}

/// Each attempt that was in doubt is released once a second for as long as its lease could last: with more breaks in one
/// lease that would be most of the load.
async fn f44_connection_that_breaks_under_500_commands_loses_none_of_them(row: &Row) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    // So many at once take a busy machine long.
    let patient = |builder: Builder| builder.unavailable_after(6 * SOON);
    let client = client_with(&proxy.url(), patient).await;
    warm_up(&client).await;
    for seed in 0..size(8, 48) {
        let keys = names(seed, 500);
        let under_release = seed % 8 >= 4;
        let guards = if under_release {
            acquire_all(&client, &keys).await
        } else {
            let (guards, hits) =
                tokio::join!(acquire_all(&client, &keys), break_somewhere(&proxy, seed));
            row.injected("connection broken under acquisitions", hits);
            guards
        };
        all_are_held(&server, &guards).await;
        let released = join_all(guards.into_iter().map(Guard::release));
        let released: Vec<Result<(), Error>> = if under_release {
            let (released, hits) = tokio::join!(released, break_somewhere(&proxy, seed));
            row.injected("connection broken under releases", hits);
            released
        } else {
            released.await
        };
        assert!(released.iter().all(Result::is_ok), "{released:?}");
        // The lease is 30 s, so a hold without a guard was released.
        idle(&client).await;
        eventually_eq(SOON, "keys", 0, || async { server.keys().await.len() }).await;
    }
}

async fn f45_silent_connection_is_replaced_after_two_timeouts(row: &Row) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = client(&proxy.url()).await;
    warm_up(&client).await;
    let stall = proxy.flow(Select::EXISTING, Way::Both, Flow::Stall);
    let (start, before) = (Instant::now(), proxy.accepted());
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    println!("after {:?}, of 3 x 300 ms", start.elapsed());
    assert!(start.elapsed() < row.stretch(SOON / 2));
    assert_eq!(proxy.accepted(), before + 1);
    row.injected("message stalled", stall.hits());
    guard.release().await.unwrap();
    free(&server, &[&client]).await;
}

/// With a cap of 2 s and a jitter of a half, a client comes every 1 to 2 s: of 100 clients that makes 50 to 100
/// connections a second, each with one at a time.
async fn f46_clients_of_a_server_that_is_down_come_back_neither_often_nor_in_step(row: &Row) {
    const CLIENTS: u64 = 100;
    const CAP: Duration = Duration::from_secs(2);
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&proxy.url()).await);
    }
    let refused = proxy.refuse();
    assert_eq!(proxy.cut(Select::ALL), clients.len());
    // Pauses have grown to the cap by then.
    sleep(ms(3_000)).await;
    let (mut fullest, mut late, watched, before) = (0, 0.0, Instant::now(), refused.hits());
    for _ in 0..40 {
        let (window, hits) = (Instant::now(), refused.hits());
        sleep(ms(100)).await;
        let late_before = late;
        late = window.elapsed().as_secs_f64() - 0.1;
        // Clients that were due while this thread stood still come together, in this window or the next one.
        let due = CLIENTS as f64 * (late + late_before);
        fullest = fullest.max((refused.hits() - hits).saturating_sub(due.ceil() as u64));
    }
    let (all, watched) = (refused.hits() - before, watched.elapsed().as_secs_f64());
    println!("{all} connections in {watched:.1} s, {fullest} in the fullest tenth of one");
    assert!(all >= CLIENTS, "{all}");
    assert!(
        all as f64 <= 1.25 * watched * CLIENTS as f64,
        "{all} in {watched} s"
    );
    assert!(fullest < CLIENTS / 2, "{fullest} at once");
    row.injected("connection refused", refused.hits());
    refused.lift();
    let start = Instant::now();
    for locked in join_all(clients.iter().map(comes_back)).await {
        locked.unwrap();
    }
    println!("all back after {:?}", start.elapsed());
    assert!(start.elapsed() < row.stretch(3 * CAP));
}

async fn comes_back(client: &Client) -> Result<(), Error> {
    let mut last = client.lock("k").is_locked().await;
    let start = Instant::now();
    while last.is_err() && start.elapsed() < SOON {
        last = client.lock("k").is_locked().await;
    }
    last.map(drop)
}

/// Waits until the TTL of a key grows.
async fn renewed(server: &RedisServer, key: &str) {
    let mut left = i64::MAX;
    loop {
        let last = std::mem::replace(&mut left, server.pttl(key).await);
        if left > last {
            return;
        }
        sleep(ms(20)).await;
    }
}

async fn f47_bytes_that_come_one_by_one_are_understood(row: &Row) {
    let server = RedisServer::start().await;
    // A segment for each byte of a script takes a busy machine longer than clients wait: the server knows most of them.
    let direct = default_client(&server.url()).await;
    warm_up(&direct).await;
    assert!(direct.lock("k").holders().await.unwrap().is_empty());
    let proxy = Proxy::start(server.addr()).await;
    let rechunk = proxy.flow(Select::ALL, Way::Both, Flow::Rechunk(1));
    let lease = |builder: Builder| builder.watchdog_timeout(ms(9_000));
    let build = async || client_with(&proxy.url(), lease).await;
    let (one, two) = (build().await, build().await);
    let guard = one.lock("k").acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    timeout(SOON, renewed(&server, "k")).await.expect("renewed");
    let holders = two.lock("k").holders().await.unwrap();
    assert_eq!((holders.len(), holders[0].count), (1, 2));
    server.cli(&["SET", "text", "x"]).await;
    let wrong = one.lock("text").acquire().await.unwrap_err();
    assert!(matches!(wrong, Error::WrongType { .. }), "{wrong}");
    server.cli(&["DEL", "text"]).await;
    again.release().await.unwrap();
    guard.release().await.unwrap();
    // So long a lease that only the message lets the waiter in.
    let keys = names("long", 1);
    let guard = one.lock(&keys[0]).acquire().lease(6 * SOON).await.unwrap();
    let waiter = tokio::spawn(two.lock(&keys[0]).acquire().into_future());
    listened(&server, &keys[0], 1).await;
    guard.release().await.unwrap();
    let told = timeout(SOON, waiter).await.expect("woken");
    told.unwrap().unwrap().release().await.unwrap();
    // Many at once, and a script that the server does not know yet.
    let patient = |builder: Builder| builder.response_timeout(2 * SOON);
    let three = client_with(&proxy.url(), patient).await;
    let keys = names("many", 30);
    let released = acquire_all(&three, &keys).await.into_iter();
    for released in join_all(released.map(Guard::release)).await {
        released.unwrap();
    }
    let permits = three.semaphore("unknown").available_permits().await;
    assert_eq!(permits.unwrap(), 0);
    row.injected("message in single bytes", rechunk.hits());
    free(&server, &[&direct, &one, &two, &three]).await;
}

rows! {
    Real: f44_connection_that_breaks_under_500_commands_loses_none_of_them,
        f45_silent_connection_is_replaced_after_two_timeouts,
        f46_clients_of_a_server_that_is_down_come_back_neither_often_nor_in_step,
        f47_bytes_that_come_one_by_one_are_understood;
}

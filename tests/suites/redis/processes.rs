//! Several processes on one server: what one does is felt by the others, also when it dies.

use std::time::{Duration, Instant};

use distlock_tests::{Process, RedisServer, eventually};

use super::{SOON, client, listened};

fn holder(server: &RedisServer, watchdog: Duration) -> Process {
    let watchdog = watchdog.as_millis().to_string();
    Process::start(env!("CARGO_BIN_EXE_holder"), [server.url(), watchdog])
}

async fn answer(process: &mut Process, line: &str, begins: &str) -> String {
    process.ask(line, begins, SOON).await
}

async fn expect(process: &mut Process, begins: &str) -> String {
    process.expect(begins, SOON).await
}

fn nanos(line: &str) -> Duration {
    let nanos = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.expect("a time in the answer"))
}

#[tokio::test]
async fn waiter_in_another_process_has_the_lock_long_before_the_lease_would_end() {
    let server = RedisServer::start().await;
    let lease = Duration::from_secs(30);
    let (mut one, mut two) = (holder(&server, lease), holder(&server, lease));
    answer(&mut one, "acquire k", "granted").await;
    two.send("acquire k");
    listened(&server, "k", 1).await;
    let released = answer(&mut one, "release", "released").await;
    let granted = expect(&mut two, "granted").await;
    let took = nanos(&granted).saturating_sub(nanos(&released));
    println!("from the confirmed release to the grant in another process: {took:?}");
    assert!(took < SOON);
}

#[tokio::test]
async fn thousand_waiters_on_thousand_keys_share_two_connections_and_do_not_poll() {
    const KEYS: usize = 1_000;
    let server = RedisServer::start().await;
    let us = client(&server).await;
    let mut guards = Vec::new();
    for n in 0..KEYS {
        guards.push(us.lock(format!("crowd:{n}")).acquire().await.unwrap());
    }
    let (ours, before) = (connections(&server).await, attempts(&server).await);
    let mut crowd = holder(&server, Duration::from_secs(30));
    answer(&mut crowd, &format!("crowd {KEYS} crowd:"), "waiting").await;
    // Each waiter attempts, subscribes and attempts once more; then nothing is sent until a lease could have ended.
    eventually(2 * SOON, "two attempts for each", || async {
        let attempts = attempts(&server).await;
        (attempts >= before + 2 * KEYS as u64)
            .then_some(())
            .ok_or(attempts)
    })
    .await;
    assert_eq!(server.pubsub_channels().await.len(), KEYS);
    assert_eq!(connections(&server).await - ours, 2);

    let before = (attempts(&server).await, calls(&server).await);
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let attempted = attempts(&server).await - before.0;
    let sent = calls(&server).await - before.1;
    let took = start.elapsed();
    // One attempt for each key within its remaining lease, which is 20 s and more, and 10 renewals.
    let most = 10 + (KEYS as f64 / 20.0 * took.as_secs_f64()) as u64;
    assert!(sent <= most, "{sent} commands in {took:?}");
    assert!(attempted <= most, "{attempted} attempts in {took:?}");
}

/// Attempts at plain locks, of which several may come in one call.
async fn attempts(server: &RedisServer) -> u64 {
    server.command_calls("exists").await
}

/// Script calls that the server knew the script of.
async fn calls(server: &RedisServer) -> u64 {
    server.command_calls("evalsha").await
}

async fn connections(server: &RedisServer) -> usize {
    server
        .client_list()
        .await
        .iter()
        .filter(|line| !line.is_harness())
        .count()
}

//! What it costs that the server tells losses: for short holds, shared keys, a storm of words, and a server that may not.

use std::future::IntoFuture as _;
use std::time::Duration;

use distlock::{Client, Guard, RwLock};
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{Process, RedisServer, eventually, size};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::{SOON, client_of_lease, ms};
use super::{LONG, sent, told, tracked, tracked_keys};

in_real_time!(
    ms(250);
    client_that_does_not_want_it_sends_nothing_for_it,
    clients_that_track_one_key_do_not_confirm_each_other,
    renewals_of_a_hold_that_nobody_else_changes_lead_to_no_read,
    renewals_of_many_tracked_holds_are_followed_by_one_read_of_their_keys,
    user_without_the_rights_holds_as_before_and_the_server_is_asked_once,
);

#[tokio::test]
async fn short_holds_cost_no_command_more() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let since = Instant::now();
    let (mut pairs, mut long) = (0, 0);
    while since.elapsed() < Duration::from_secs(3) {
        let begun = Instant::now();
        let guard = client.lock("k").acquire().await.unwrap();
        sleep(ms(100)).await;
        guard.release().await.unwrap();
        pairs += 1;
        // On a machine that stood still.
        long += u64::from(begun.elapsed() > ms(900));
    }
    for command in ["client|tracking", "client|caching"] {
        let calls = server.command_calls(command).await;
        assert!(
            calls <= long,
            "{calls} {command} in {pairs} pairs, {long} of them long"
        );
    }
}

async fn client_that_does_not_want_it_sends_nothing_for_it() {
    let server = RedisServer::start().await;
    let url = format!("{}?track_holds=false", server.url());
    let client = Client::builder()
        .watchdog_timeout(ms(1_500))
        .connect(&url)
        .await
        .unwrap();
    let _guard = client.lock("k").acquire().await.unwrap();
    let before = server.command_calls("pexpire").await;
    eventually(SOON, "six renewals", || async {
        server.command_calls("pexpire").await >= before + 6
    })
    .await;
    for command in ["client|tracking", "client|caching"] {
        assert_eq!(server.command_calls(command).await, 0, "{command}");
    }
}

async fn clients_that_track_one_key_do_not_confirm_each_other() {
    const SECONDS: u64 = 6;
    let server = RedisServer::start().await;
    // Each of them renews once a second, which is told to the others.
    let lease = Duration::from_secs(3);
    let mut clients = Vec::new();
    let mut guards = Vec::new();
    for _ in 0..3 {
        let client = client_of_lease(&server, lease).await;
        guards.push(client.rw_lock("k").read().acquire().await.unwrap());
        clients.push(client);
    }
    tracked(&server, 1).await;
    let (before, since) = (server.command_calls("evalsha").await, Instant::now());
    sleep(Duration::from_secs(SECONDS)).await;
    let calls = server.command_calls("evalsha").await - before;
    // A renewal and a read for each client and second.
    let most = 3 * 2 * (since.elapsed().as_secs() + 2);
    assert!(
        calls <= most,
        "{calls} scripts in {:?}, at most {most}",
        since.elapsed()
    );
    assert!(guards.iter().all(Guard::is_held));
}

async fn renewals_of_a_hold_that_nobody_else_changes_lead_to_no_read() {
    let server = RedisServer::start().await;
    // It renews every half a second.
    let client = client_of_lease(&server, ms(1_500)).await;
    let guard = client.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    let scripts = server.command_calls("evalsha").await;
    let renewals = server.command_calls("pexpire").await;
    let all = || async { server.command_calls("pexpire").await >= renewals + 6 };
    eventually(SOON, "six renewals", all).await;
    let scripts = server.command_calls("evalsha").await - scripts;
    let renewals = server.command_calls("pexpire").await - renewals;
    // One may be under way.
    assert!(
        scripts <= renewals + 1,
        "{scripts} scripts for {renewals} renewals"
    );
    assert!(guard.is_held());
}

/// What clients send in this time, as MONITOR shows it: the words of each command, without those inside of scripts.
async fn sent_during(server: &RedisServer, time: Duration) -> Vec<Vec<String>> {
    let monitor = server.client().get_async_monitor().await.unwrap();
    let mut lines = monitor.into_on_message::<String>();
    let mut sent = Vec::new();
    let until = Instant::now() + time;
    while let Ok(Some(line)) = timeout_at(until, lines.next()).await {
        if !line.contains(" lua]") {
            let words = line.split('"').skip(1).step_by(2);
            sent.push(words.map(str::to_lowercase).collect());
        }
    }
    sent
}

/// A script behind `CLIENT CACHING YES` would have the server track all its keys for each of its reads.
async fn renewals_of_many_tracked_holds_are_followed_by_one_read_of_their_keys() {
    const HOLDS: usize = 50;
    let server = RedisServer::start().await;
    // It renews every half a second.
    let client = client_of_lease(&server, ms(1_500)).await;
    let acquire = |n: usize| client.lock(format!("k{n}")).acquire();
    let acquiring = (0..HOLDS).map(|n| acquire(n).into_future());
    let guards: Vec<Guard> = join_all(acquiring)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    tracked(&server, HOLDS as u64).await;
    let sent = sent_during(&server, Duration::from_secs(3)).await;
    let caching = |words: &[String]| words.starts_with(&["client", "caching"].map(String::from));
    let behind: Vec<_> = sent.windows(2).filter(|two| caching(&two[0])).collect();
    assert!(behind.len() >= 3, "{} renewals", behind.len());
    for two in behind {
        assert_eq!(two[1][0], "exists", "{:?}", two[1]);
    }
    let scripts = sent.iter().filter(|words| words[0] == "evalsha").count();
    let reads = sent.iter().filter(|words| words[0] == "exists").count();
    // One may be under way.
    assert!(reads <= scripts + 1, "{reads} reads for {scripts} scripts");
    assert!(guards.iter().all(Guard::is_held));
}

#[tokio::test]
async fn key_that_others_change_all_the_time_is_read_once_a_second() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let guard = client.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    let (before, since) = (server.command_calls("evalsha").await, Instant::now());
    let mut changes = 0_u64;
    while since.elapsed() < Duration::from_secs(4) {
        server.cli(&["PEXPIRE", "k", "300000"]).await;
        changes += 1;
    }
    let reads = server.command_calls("evalsha").await - before;
    let most = since.elapsed().as_secs() + 2;
    println!("{reads} reads for {changes} changes");
    assert!((2..=most).contains(&reads), "{reads} reads, at most {most}");
    assert!(guard.is_held());
    server.cli(&["DEL", "k"]).await;
    told(&[guard], "DEL in a storm").await;
}

#[tokio::test]
async fn table_of_tracked_keys_that_overflows_costs_a_read_a_second_and_no_hold() {
    const HOLDS: usize = 20;
    let server = RedisServer::builder()
        .arg("--tracking-table-max-keys", "1")
        .start()
        .await;
    let client = client_of_lease(&server, LONG).await;
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        guards.push(client.lock(format!("k{n}")).acquire().await.unwrap());
    }
    eventually(SOON, "tracking", || async {
        tracked_keys(&server).await > 0
    })
    .await;
    let (before, since) = (server.command_calls("evalsha").await, Instant::now());
    sleep(Duration::from_secs(4)).await;
    let reads = server.command_calls("evalsha").await - before;
    // Keys that were told at different times are read by different commands.
    let most = (since.elapsed().as_secs() + 2) * HOLDS as u64;
    println!("{reads} reads of {HOLDS} holds in {:?}", since.elapsed());
    assert!(reads <= most, "{reads} reads, at most {most}");
    assert!(guards.iter().all(Guard::is_held));
    server.cli(&["FLUSHALL"]).await;
    told(&guards, "FLUSHALL").await;
}

/// A reader comes and goes.
async fn read_once(lock: &RwLock) {
    let guard = lock.read().acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn user_without_the_rights_holds_as_before_and_the_server_is_asked_once() {
    let server = RedisServer::builder().without_default_user().start().await;
    let locks = rights::of(rights::LOCKS);
    server.set_user("shop", &locks).await;
    let builder = Client::builder()
        .key_prefix("shop:")
        .watchdog_timeout(ms(3_000));
    let builder = builder.credentials("shop", PASSWORD);
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let denied = || async { server.denied_to("shop").await.contains("client|tracking") };
    eventually(SOON, "a denial", denied).await;
    server.cli(&["ACL", "LOG", "RESET"]).await;
    let before = server.command_calls("pexpire").await;
    eventually(SOON, "three renewals", || async {
        server.command_calls("pexpire").await >= before + 3
    })
    .await;
    assert!(!denied().await, "asked again over the same connection");
    assert!(guard.is_held());
    server.cli(&["DEL", "shop:k"]).await;
    told(&[guard], "a renewal").await;
}

#[tokio::test]
async fn server_that_refuses_it_is_sent_one_read_and_no_other() {
    let server = RedisServer::builder().without_default_user().start().await;
    let rights = ["+@all", "-client|tracking", "&*", "~*"];
    server.set_user("shop", &rights).await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let builder = builder.credentials("shop", PASSWORD);
    let client = builder.connect(&server.url()).await.unwrap();
    let shared = client.rw_lock("shared");
    let mut guards = vec![shared.read().acquire().await.unwrap()];
    let denied = || async { server.denied_to("shop").await.contains("client|tracking") };
    eventually(SOON, "a denial", denied).await;
    // A hold that is old, and a key with an old hold that is written to, for as long as some reads of each would take.
    let before = sent(&server).await;
    let since = Instant::now();
    let mut own = 0;
    while since.elapsed() < Duration::from_secs(4) {
        guards.push(client.lock(format!("k{own}")).acquire().await.unwrap());
        read_once(&shared).await;
        own += 1;
        sleep(ms(200)).await;
    }
    let reads = sent(&server).await - before - 3 * own;
    // What was under way, and the scripts that the server did not know yet.
    assert!(
        reads <= 3,
        "{reads} commands beside those of {own} locks and readers"
    );
    assert!(guards.iter().all(Guard::is_held));
}

/// How many commands each pair of an acquisition and a release takes of 64 readers in four processes, that come and go.
async fn commands_of_a_pair(server: &RedisServer, track: bool) -> f64 {
    let time = size(Duration::from_secs(4), Duration::from_secs(30));
    let url = format!("{}?track_holds={track}", server.url());
    let watchdog = LONG.as_millis().to_string();
    let start = || Process::start(env!("CARGO_BIN_EXE_holder"), [&url, &watchdog]);
    let mut processes: Vec<Process> = (0..4).map(|_| start()).collect();
    let before = sent(server).await;
    // Some holds are older than a second, and most are not.
    let line = format!("readers k {} 16 1500", time.as_millis());
    let read = processes
        .iter_mut()
        .map(|process| process.ask(&line, "done", time + 2 * SOON));
    let lines = join_all(read).await;
    let pairs = lines
        .iter()
        .map(|line| line["done ".len()..].parse::<u64>());
    let pairs: u64 = pairs.map(Result::unwrap).sum();
    let commands = sent(server).await - before;
    println!("tracked: {track}, {pairs} pairs, {commands} commands");
    commands as f64 / pairs as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_in_four_processes_that_come_and_go_cost_at_most_a_tenth_more() {
    // A client whose answers are late collects its readers' commands. A machine that is slower in the first of the two windows makes
    // those few, so both are counted again.
    const PLAYS: u32 = 3;
    for play in 1..=PLAYS {
        let server = RedisServer::start().await;
        let without = commands_of_a_pair(&server, false).await;
        let with = commands_of_a_pair(&server, true).await;
        println!("{without} commands for a pair without tracking, {with} with it");
        assert!(
            server.command_calls("client|caching").await > 0,
            "nothing was tracked"
        );
        if with <= without * 1.1 {
            return;
        }
        assert!(play < PLAYS, "{with} and {without}");
    }
}

#[tokio::test]
async fn reader_is_told_within_some_seconds_beside_readers_of_its_own_client_that_come_and_go() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let old = client.rw_lock("k").read().acquire().await.unwrap();
    tracked(&server, 1).await;
    // A write of the own client ends the tracking, and the server does not tell it.
    for _ in 0..5 {
        read_once(&client.rw_lock("k")).await;
    }
    tracked(&server, 1).await;
    server.cli(&["DEL", "k"]).await;
    told(&[old], "DEL").await;
}

#[tokio::test]
async fn reader_is_told_after_another_old_reader_of_its_own_client_was_released() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let old = client.rw_lock("k").read().acquire().await.unwrap();
    let other = client.rw_lock("k").read().acquire().await.unwrap();
    // By then the key was read after both grants, and nothing but the release leads to another read.
    sleep(Duration::from_secs(4)).await;
    tracked(&server, 1).await;
    other.release().await.unwrap();
    tracked(&server, 1).await;
    server.cli(&["DEL", "k"]).await;
    told(&[old], "DEL").await;
}

//! Rows 2, 9 and 10, as the scripts have them: run twice, run with odd arguments, and broken off in the middle.

use std::time::Duration;

use distlock::test_util::{Verbs, script};
use distlock::{Client, Error};
use distlock_tests::{RedisServer, size};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use redis::Value;
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

use crate::row::{Row, rows};
use crate::support::{client_with, ms};

/// Name, and how many arguments it takes.
const SCRIPTS: [(&str, usize); 8] = [
    ("LOCK_ACQUIRE", 2),
    ("LOCK_RENEW", 3),
    ("LOCK_BATCH", 2),
    ("LOCK_RELEASE", 2),
    ("LOCK_ACQUIRE_ALL", 2),
    ("LOCK_RELEASE_ALL", 2),
    ("LOCK_FORCE_RELEASE", 1),
    ("LOCK_INSPECT", 0),
];

const LEASE: Duration = Duration::from_secs(30);

/// One step of a random history on a key, run this often.
async fn step(verbs: &Verbs, key: &str, (verb, owner, count): (u32, u64, u32), times: usize) {
    for _ in 0..times {
        let answer = match verb {
            0..=3 => verbs.attempt(key, owner, LEASE).await,
            4..=6 => verbs.renew(&[(key, owner, count, LEASE)]).await,
            7..=8 => verbs.release(key, owner).await,
            _ => verbs.force_release(key).await,
        };
        answer.unwrap();
    }
}

async fn f02_script_run_many_times_leaves_what_it_left_once(row: &Row) {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let verbs = Verbs::new(&client, Uuid::new_v4());
    let seed: u64 = rand::rng().random();
    let mut random: StdRng = rand::SeedableRng::seed_from_u64(seed);
    for n in 0..300 {
        let step = |key, what, times| step(&verbs, key, what, times);
        let what = (
            random.random_range(0..10),
            random.random_range(1..4),
            random.random_range(1..4),
        );
        let times = random.random_range(2..5);
        let mut seen = Vec::new();
        for (key, times) in [("once", 1), ("often", times)] {
            let told = server.command_calls("publish").await;
            step(key, what, times).await;
            let told = server.command_calls("publish").await - told;
            let lives = server.pttl(key).await > 20_000;
            seen.push((server.hgetall(key).await, lives, told));
        }
        assert_eq!(seen[0], seen[1], "step {n} of seed {seed}, {what:?}");
        row.injected("script run again", times as u64 - 1);
    }
}

/// As long as an owner is.
const OWNER: &str = "0f0e0d0c-0b0a-0908-0706-050403020100:1";

/// What may stand where a script expects an owner, a count, a lease or a channel.
const ODD: [&[u8]; 23] = [
    b"",
    b" ",
    b"0",
    b"-0",
    b"-1",
    b"1",
    b"01",
    b"1.5",
    b" 5",
    b"5 ",
    b"0x10",
    b"1e3",
    b"1e18",
    b"nan",
    b"-nan",
    b"inf",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"99999999999999999999",
    b"soon",
    b"\0\r\n\xff",
];

async fn f09_no_argument_of_any_script_leaves_a_key_without_a_ttl(row: &Row) {
    let server = RedisServer::start().await;
    let mut connection = server.connection().await;
    let seed: u64 = rand::rng().random();
    let mut random: StdRng = rand::SeedableRng::seed_from_u64(seed);
    for _ in 0..size(200, 3_000) {
        let (source, args) = odd_call(&mut random);
        for key in ["fresh", "held"] {
            hold_by_hand(&mut connection).await;
            let mut eval = redis::cmd("EVAL");
            eval.arg(source).arg(1).arg(key).arg(&args);
            let answer = eval.query_async::<Value>(&mut connection).await;
            row.injected("odd arguments refused", u64::from(answer.is_err()));
            let mut pttl = redis::cmd("PTTL");
            let ttl: i64 = pttl.arg(key).query_async(&mut connection).await.unwrap();
            let shown: Vec<_> = args
                .iter()
                .map(|arg| arg.escape_ascii().to_string())
                .collect();
            let script = source.lines().next().unwrap_or_default();
            assert_ne!(ttl, -1, "{key}, {shown:?}, {script:?}, seed {seed}");
        }
    }
}

/// A script, mostly with as many arguments as it takes, and with the owner of the held key before others.
fn odd_call(random: &mut StdRng) -> (&'static str, Vec<&'static [u8]>) {
    let (name, wanted) = SCRIPTS[random.random_range(0..SCRIPTS.len())];
    let source = script(name).unwrap();
    let given = match random.random_range(0..10) {
        0 => random.random_range(0..6),
        _ => wanted,
    };
    let mut args: Vec<&[u8]> = (0..given).map(|_| *ODD.choose(random).unwrap()).collect();
    if let Some(owner) = args.first_mut().filter(|_| random.random_bool(0.5)) {
        *owner = OWNER.as_bytes();
    }
    (source, args)
}

/// One key that is free, and one that `owner` holds.
async fn hold_by_hand(connection: &mut MultiplexedConnection) {
    let mut reset = redis::pipe();
    reset.cmd("DEL").arg("fresh").arg("held").ignore();
    reset.cmd("HSET").arg("held").arg(OWNER).arg(1).ignore();
    reset.cmd("PEXPIRE").arg("held").arg(30_000).ignore();
    reset.query_async::<()>(connection).await.unwrap();
}

async fn f09_script_denied_in_the_middle_leaves_no_key_without_a_ttl(row: &Row) {
    let server = RedisServer::start().await;
    let url = format!("redis://shop:p@127.0.0.1:{}", server.port());
    let all = ["ACL", "SETUSER", "shop", "on", ">p", "~*", "&*", "+@all"];
    let single = [
        "-exists", "-hexists", "-pexpire", "-hset", "-hget", "-pttl", "-del", "-publish", "-hdel",
    ];
    let single = single.iter().map(std::slice::from_ref);
    // What would undo an attempt whose lease is refused.
    let both: [&[&str]; 2] = [&["-pexpire", "-hdel"], &["-pexpire", "-del"]];
    for denied in single.chain(both) {
        server.cli(&["FLUSHALL"]).await;
        server.cli(&all).await;
        let client = client_with(&url, |builder| builder.watchdog_timeout(ms(900))).await;
        let held = client.lock("held").acquire().await.unwrap();
        server
            .cli(&[&["ACL", "SETUSER", "shop"], denied].concat())
            .await;
        let acquired = client.lock("fresh").acquire().wait(ms(100)).await;
        let several = client.multi_lock(["fresh", "other"]).try_acquire().await;
        for key in ["fresh", "other"] {
            assert_ne!(server.pttl(key).await, -1, "{key} acquired with {denied:?}");
        }
        let again = held.reenter();
        drop((again, acquired, several));
        let released = held.release().await;
        for key in ["fresh", "held"] {
            assert_ne!(
                server.pttl(key).await,
                -1,
                "{key} released with {denied:?}, {released:?}"
            );
        }
    }
    let refusals: Vec<Value> = server.try_cli(&["ACL", "LOG"]).await.unwrap();
    row.injected("kind of denial seen by the server", refusals.len() as u64);
}

/// That the server executed no script so far but the one with which a client asks for commands when it connects.
async fn nothing_was_sent(server: &RedisServer) {
    let scripts = (
        server.command_calls("evalsha").await,
        server.command_calls("eval").await,
    );
    assert_eq!((scripts, server.keys().await), ((0, 1), vec![]));
}

async fn f09_leases_out_of_bounds_are_refused_before_anything_is_sent(row: &Row) {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3_600);
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        ten_years + ms(1),
        Duration::MAX,
    ] {
        let asked = client.lock("k").acquire().lease(lease);
        let refused = asked.await.unwrap_err();
        assert!(
            matches!(refused, Error::InvalidLease { .. }) && refused.is_permanent(),
            "{refused}"
        );
        let builder = Client::builder().watchdog_timeout(lease);
        let refused = builder.connect(&server.url()).await.unwrap_err();
        assert!(refused.is_permanent(), "{refused}");
        row.injected("bad lease refused", 2);
    }
    nothing_was_sent(&server).await;
}

async fn f10_lease_below_a_millisecond_is_refused_and_never_rounded_to_0(row: &Row) {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos(999_999),
    ] {
        let lock = client.lock("k");
        let refused = [
            lock.acquire().lease(lease).await.unwrap_err(),
            lock.acquire()
                .lease(lease)
                .wait(Duration::ZERO)
                .await
                .unwrap_err(),
            lock.acquire().lease(lease).run(async {}).await.unwrap_err(),
        ];
        assert!(
            refused
                .iter()
                .all(|error| matches!(error, Error::InvalidLease { .. }))
        );
        let builder = Client::builder().watchdog_timeout(lease);
        assert!(
            builder
                .connect(&server.url())
                .await
                .unwrap_err()
                .is_permanent()
        );
        row.injected("lease below 1 ms refused", 4);
    }
    nothing_was_sent(&server).await;
}

rows! {
    Real: f02_script_run_many_times_leaves_what_it_left_once,
        f09_no_argument_of_any_script_leaves_a_key_without_a_ttl,
        f09_script_denied_in_the_middle_leaves_no_key_without_a_ttl,
        f09_leases_out_of_bounds_are_refused_before_anything_is_sent,
        f10_lease_below_a_millisecond_is_refused_and_never_rounded_to_0;
}

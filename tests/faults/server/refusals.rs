//! Rows 49 to 52 and 55: servers that answer with a refusal, for a time or for ever.

use std::future::IntoFuture;

use distlock::test_util::collect_always;
use distlock::{Builder, Client, Error, Guard};
use distlock_tests::{Proxy, RedisServer, Select, eventually, eventually_eq, lock_once};
use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::busy::{self, Endless};
use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::support::{SOON, client, client_with, free, ms, warm_up};

/// How often the server has answered with an error of this code.
pub(crate) async fn errors(server: &RedisServer, code: &str) -> u64 {
    let stats = server.info("errorstats").await;
    let count = stats.get(&format!("errorstat_{code}"));
    count.map_or(0, |count| {
        count.trim_start_matches("count=").parse().unwrap()
    })
}

/// One server and its clients: `hasty` gives up after 400 ms without a real answer, with or without a wait.
pub(super) struct Scene {
    pub(super) server: RedisServer,
    client: Client,
    hasty: Client,
}

impl Scene {
    pub(super) async fn with(server: RedisServer, url: &str) -> Self {
        let hasty = client_with(url, |builder| builder.unavailable_after(ms(400))).await;
        // A busy machine loads for longer than the five seconds after which a client gives up by default.
        let patient = |builder: Builder| {
            let builder = builder.response_timeout(ms(300));
            builder.unavailable_after(2 * SOON)
        };
        let client = client_with(url, patient).await;
        warm_up(&client).await;
        Self {
            server,
            client,
            hasty,
        }
    }

    async fn of(server: RedisServer) -> Self {
        let url = server.url();
        Self::with(server, &url).await
    }

    /// Completes when both clients have heard the server's word for it over a new connection. The last try to connect may have been
    /// before that.
    pub(super) async fn hears(&self, word: &str) {
        for client in [&self.client, &self.hasty] {
            eventually(SOON, word, || async {
                let short = client.lock("other").acquire().wait(ms(400)).await;
                let error = short.unwrap_err().to_string();
                error.to_uppercase().contains(word)
            })
            .await;
        }
    }

    /// While the server refuses: a short wait or little patience ends as unavailable, with the server's own word for
    /// it, and a long wait goes on until the refusals end.
    pub(super) async fn waits_it_out(&self, word: &str, end: impl Future<Output = ()>) {
        let long = self.client.lock("k").acquire().wait(2 * SOON);
        let long = tokio::spawn(long.into_future());
        let short = self.client.lock("other").acquire().wait(ms(400));
        let hasty = self.hasty.lock("other").acquire();
        let (short, hasty) = tokio::join!(short.into_future(), hasty.into_future());
        for error in [short.expect_err(word), hasty.expect_err(word)] {
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().to_uppercase().contains(word), "{error}");
        }
        assert!(!long.is_finished(), "{word}: {long:?}");
        end.await;
        let guard = long.await.unwrap().unwrap();
        guard.release().await.unwrap();
        free(&self.server, &[&self.client, &self.hasty]).await;
    }
}

async fn busy(row: &Row) {
    let scene = Scene::of(busy::server().await).await;
    let endless = Endless::at(&scene.server).await;
    scene.waits_it_out("BUSY", endless.kill()).await;
    row.injected("BUSY", errors(&scene.server, "BUSY").await);
}

async fn loading(row: &Row) {
    let scene = Scene::of(RedisServer::start().await).await;
    let (heavy, mut foreign) = (names("heavy", 1_000), Foreign::on(&scene.server).await);
    foreign.hold(&heavy).await;
    // 2 ms for each key, and commands are looked at in between.
    for (setting, value) in [
        ("key-load-delay", "2000"),
        ("loading-process-events-interval-bytes", "1024"),
    ] {
        foreign.send(&["CONFIG", "SET", setting, value]).await;
    }
    let reload = tokio::spawn(async move {
        foreign.send(&["DEBUG", "RELOAD"]).await;
        foreign.free(&heavy).await;
    });
    eventually(SOON, "loading", || async {
        scene.server.info("persistence").await["loading"] == "1"
    })
    .await;
    let loaded = async { reload.await.unwrap() };
    scene.waits_it_out("LOADING", loaded).await;
    row.injected("LOADING", errors(&scene.server, "LOADING").await);
}

async fn master_down(row: &Row) {
    let scene = Scene::of(RedisServer::start().await).await;
    let mut admin = Foreign::on(&scene.server).await;
    let stale = ["CONFIG", "SET", "replica-serve-stale-data", "no"];
    admin.send(&stale).await;
    // Nobody listens on port 1.
    admin.send(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let promote = async { admin.send(&["REPLICAOF", "NO", "ONE"]).await };
    // After its first refusal the client leaves the connection, and a new one finds that the server is a replica.
    scene.waits_it_out("REPLICA", promote).await;
    row.injected("MASTERDOWN", errors(&scene.server, "MASTERDOWN").await);
}

async fn misconf(row: &Row) {
    // Once there is a folder of that name, no file can be.
    let builder = RedisServer::builder().arg("--dbfilename", "blocked");
    let scene = Scene::of(builder.start().await).await;
    let held = scene.client.lock("held").acquire().await.unwrap();
    let folder = scene.server.dir().join("blocked");
    let saved = async |status: &str| {
        scene.server.cli(&["BGSAVE"]).await;
        eventually_eq(SOON, "the last save", status.to_owned(), || async {
            let mut info = scene.server.info("persistence").await;
            info.remove("rdb_last_bgsave_status").unwrap_or_default()
        })
        .await;
    };
    std::fs::create_dir(&folder).unwrap();
    scene.server.cli(&["CONFIG", "SET", "save", "3600 1"]).await;
    saved("err").await;
    let mut releasing = tokio::spawn(held.release());
    let end = async {
        // It goes on while attempts have long been given up.
        assert!(!releasing.is_finished());
        std::fs::remove_dir(&folder).unwrap();
        saved("ok").await;
        (&mut releasing).await.unwrap().unwrap();
    };
    scene.waits_it_out("MISCONF", end).await;
    row.injected("MISCONF", errors(&scene.server, "MISCONF").await);
}

async fn too_many_clients(row: &Row) {
    let server = RedisServer::builder()
        .arg("--maxclients", "8")
        .start()
        .await;
    let proxy = Proxy::start(server.addr()).await;
    let scene = Scene::with(server, &proxy.url()).await;
    let mut foreign = Foreign::on(&scene.server).await;
    let refused = proxy.refuse();
    assert_eq!(proxy.cut(Select::ALL), 2);
    let mut crowd = crowd(&scene.server, &mut foreign).await;
    refused.lift();
    let word = "MAX NUMBER OF CLIENTS";
    scene.hears(word).await;
    scene.waits_it_out(word, async { crowd.clear() }).await;
    row.injected("connection rejected", rejected(&mut foreign).await);
}

/// As many connections as a server with `maxclients` of at most 8 admits, and more. `admin` has the only one before.
async fn crowd(server: &RedisServer, admin: &mut Foreign) -> Vec<TcpStream> {
    // The server must have noticed that others have ended, or their places are free again later.
    let connected = async |admin: &mut Foreign| {
        let list: String = admin.ask(&["CLIENT", "LIST"]).await.unwrap();
        list.lines().count()
    };
    while connected(admin).await > 1 {
        sleep(ms(1)).await;
    }
    let mut crowd = Vec::new();
    for _ in 0..12 {
        crowd.push(TcpStream::connect(server.addr()).await.unwrap());
    }
    crowd
}

/// How many connections the server has rejected.
async fn rejected(admin: &mut Foreign) -> u64 {
    let stats: String = admin.ask(&["INFO", "stats"]).await.unwrap();
    let field = |line: &str| Some(line.strip_prefix("rejected_connections:")?.parse().unwrap());
    stats.lines().find_map(field).unwrap()
}

async fn f49_connect_to_a_full_server_says_so_and_goes_on_when_others_leave(row: &Row) {
    let builder = RedisServer::builder().arg("--maxclients", "4");
    let server = builder.start().await;
    let mut admin = Foreign::on(&server).await;
    let mut crowd = crowd(&server, &mut admin).await;
    // A database as well: the driver then sends more at once, and hears less of the answer.
    for url in [server.url(), format!("{}/3", server.url())] {
        let error = Client::connect(&url).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        let text = error.to_string();
        let address = server.addr().to_string();
        for word in ["max number of clients reached", "`maxclients`", &address] {
            assert!(text.contains(word), "{text}");
        }
    }
    let url = server.url();
    let connecting = tokio::spawn(async move { Client::connect(&url).await });
    let before = rejected(&mut admin).await;
    while rejected(&mut admin).await < before + 2 {
        sleep(ms(1)).await;
    }
    assert!(!connecting.is_finished());
    crowd.clear();
    let client = connecting.await.unwrap().unwrap();
    lock_once(&client, "k").await;
    row.injected("connection rejected", rejected(&mut admin).await);
}

async fn f49_server_that_cannot_serve_just_now_is_waited_for(row: &Row) {
    tokio::join!(
        busy(row),
        loading(row),
        master_down(row),
        misconf(row),
        too_many_clients(row)
    );
}

async fn f50_holds_are_renewed_and_released_while_memory_is_out(row: &Row) {
    let lease = ms(1_200);
    let server = RedisServer::start().await;
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let keys = names("k", 100);
    let acquire = async |n: usize| {
        let mut guards = vec![client.lock(&keys[n]).acquire().await.unwrap()];
        for _ in 0..n % 3 {
            guards.push(guards[0].reenter().unwrap());
        }
        guards
    };
    let mut held = join_all((0..keys.len()).map(acquire)).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = async || {
        let set = server.try_cli::<redis::Value>(&["SET", "x", "y"]).await;
        row.injected(
            "write refused with OOM",
            u64::from(set.unwrap_err().code() == Some("OOM")),
        );
    };
    refused().await;
    sleep(3 * lease).await;
    assert!(held.iter().flatten().all(|guard| guard.is_held()));
    // Deeper, and for the first time, also when the script has to be sent.
    for guards in &mut held {
        guards.push(guards[0].reenter().unwrap());
    }
    let deepest = || async { server.hgetall("k:2").await.into_values().next() };
    eventually_eq(SOON, "the count", Some(String::from("4")), deepest).await;
    server.cli(&["SCRIPT", "FLUSH"]).await;
    held.push(vec![client.lock("fresh").acquire().await.unwrap()]);
    // Several that are acquired together, and a batch of single ones.
    let several = client.multi_lock(names("several", 3)).acquire();
    held.push(vec![several.await.unwrap()]);
    collect_always(&client);
    let batch = names("batch", 20);
    let batch = batch
        .iter()
        .map(|key| client.lock(key).acquire().into_future());
    let batch = join_all(batch).await.into_iter();
    held.extend(batch.map(|guard| vec![guard.unwrap()]));
    for guard in held.into_iter().flatten() {
        guard.release().await.unwrap();
    }
    refused().await;
    free(&server, &[&client]).await;
}

async fn f51_locks_that_the_server_evicts_are_told_to_their_holders(row: &Row) {
    const HOLDS: usize = 50;
    let builder = RedisServer::builder().arg("--maxmemory-policy", "allkeys-random");
    let server = builder.start().await;
    let lease = ms(3_000);
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let keys = names("k", HOLDS);
    let acquiring = keys
        .iter()
        .map(|key| client.lock(key).acquire().into_future());
    let guards = join_all(acquiring).await;
    let guards: Vec<Guard> = guards.into_iter().map(Result::unwrap).collect();
    let used = server.info("memory").await["used_memory"]
        .parse::<u64>()
        .unwrap();
    let limit = (used + 500_000).to_string();
    server.cli(&["CONFIG", "SET", "maxmemory", &limit]).await;
    let (mut foreign, filler) = (Foreign::on(&server).await, "x".repeat(5_000));
    let evicted = async |foreign: &mut Foreign| {
        let words: Vec<&str> = ["EXISTS"]
            .into_iter()
            .chain(keys.iter().map(String::as_str))
            .collect();
        HOLDS - foreign.ask::<usize>(&words).await.unwrap()
    };
    for n in 0.. {
        assert!(n < 100_000, "no lock was evicted");
        foreign
            .send(&["SET", &format!("filler:{n}"), &filler])
            .await;
        if evicted(&mut foreign).await > 0 {
            break;
        }
    }
    // Nothing more is evicted from here on.
    foreign.send(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let gone = evicted(&mut foreign).await;
    row.injected("lock evicted", gone as u64);
    eventually_eq(SOON, "holds that were lost", gone, || async {
        guards.iter().filter(|guard| !guard.is_held()).count()
    })
    .await;
    for guard in guards {
        let (held, released) = (guard.is_held(), guard.release().await);
        assert_eq!(held, released.is_ok(), "{released:?}");
    }
    assert_eq!(evicted(&mut foreign).await, HOLDS);
}

async fn f55_server_without_its_replicas_is_waited_for_also_by_a_release(row: &Row) {
    let scene = Scene::of(RedisServer::start().await).await;
    let mut admin = Foreign::on(&scene.server).await;
    let setting = ["CONFIG", "SET", "min-replicas-to-write"];
    let held = scene.client.lock("held").acquire().await.unwrap();
    admin.send(&[&setting[..], &["1"]].concat()).await;
    let mut releasing = tokio::spawn(held.release());
    let back = async {
        // It goes on while attempts have long been given up.
        assert!(!releasing.is_finished());
        admin.send(&[&setting[..], &["0"]].concat()).await;
        (&mut releasing).await.unwrap().unwrap();
    };
    scene.waits_it_out("NOREPLICAS", back).await;
    row.injected("NOREPLICAS", errors(&scene.server, "NOREPLICAS").await);
}

/// The errors of all operations of a lock on a key that holds something else.
async fn all_operations(client: &Client, key: &str) -> [Option<Error>; 8] {
    let lock = client.lock(key);
    [
        lock.acquire().await.err(),
        lock.acquire().wait(SOON).await.err(),
        lock.try_acquire().await.err(),
        lock.is_locked().await.err(),
        lock.holders().await.err(),
        lock.hold_count().await.err(),
        lock.remaining_lease().await.err(),
        lock.force_release().await.err(),
    ]
}

async fn f52_key_of_another_type_is_an_error_that_names_it_and_stays(row: &Row) {
    let server = RedisServer::start().await;
    let client = client(&server.url()).await;
    warm_up(&client).await;
    assert!(client.lock("warm:up").holders().await.unwrap().is_empty());
    assert!(!client.lock("warm:up").force_release().await.unwrap());
    let values: [&[&str]; 5] = [
        &["SET", "text", "precious"],
        &["RPUSH", "list", "precious"],
        &["SADD", "set", "precious"],
        &["ZADD", "sorted", "1", "precious"],
        &["XADD", "stream", "1-1", "precious", "1"],
    ];
    for value in values {
        server.cli(value).await;
        let (key, before) = (value[1], server.cli(&["DUMP", value[1]]).await);
        let calls = server.command_calls("evalsha").await;
        for error in all_operations(&client, key).await {
            let error = error.expect("an error");
            assert!(matches!(error, Error::WrongType { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
        }
        assert_eq!(
            server.command_calls("evalsha").await - calls,
            8,
            "tried again"
        );
        assert_eq!(server.cli(&["DUMP", key]).await, before);
        server.cli(&["DEL", key]).await;
    }
    // A hold whose key was overwritten is lost, and its release touches nothing.
    let guard = client.lock("k").acquire().await.unwrap();
    server.cli(&["SET", "k", "precious"]).await;
    assert!(guard.release().await.is_err());
    let kept: String = server.try_cli(&["GET", "k"]).await.unwrap();
    assert_eq!(kept, "precious");
    row.injected("WRONGTYPE", errors(&server, "WRONGTYPE").await);
    server.cli(&["DEL", "k"]).await;
    free(&server, &[&client]).await;
}

rows! {
    Real: f49_server_that_cannot_serve_just_now_is_waited_for,
        f49_connect_to_a_full_server_says_so_and_goes_on_when_others_leave,
        f50_holds_are_renewed_and_released_while_memory_is_out,
        f51_locks_that_the_server_evicts_are_told_to_their_holders,
        f55_server_without_its_replicas_is_waited_for_also_by_a_release,
        f52_key_of_another_type_is_an_error_that_names_it_and_stays;
}

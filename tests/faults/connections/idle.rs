//! Rows 104 and 105: idle connections that are closed or fall silent, and refusals in words that nobody knows.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock::test_util::connections;
use distlock::{Client, Health};
use distlock_tests::log::lines_with;
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, eventually, eventually_eq};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::replication::pair::Pair;
use crate::row::{Row, rows};
use crate::support::{SOON, client_with, free, ms, warm_up};

/// The number of the connection for commands.
fn epoch(client: &Client) -> u64 {
    let seen = connections(client);
    let commands = seen.iter().find(|one| one.name.starts_with("commands"));
    commands.and_then(|one| one.in_use).unwrap_or_default()
}

/// Completes when another connection for commands stands than that of this number.
async fn replaced(client: &Client, before: u64) {
    let now = || async { epoch(client) > before };
    eventually_eq(SOON, "another connection", true, now).await;
}

async fn f104_idle_connection_that_the_server_closes_is_no_outage(row: &Row) {
    let server = RedisServer::builder().arg("--timeout", "1").start().await;
    let address = server.addr().to_string();
    let settings = |builder: distlock::Builder| builder.ping_interval(ms(0));
    let client = client_with(&server.url(), settings).await;
    warm_up(&client).await;
    for _ in 0..2 {
        replaced(&client, epoch(&client)).await;
        row.injected("idle connection closed by the server", 1);
    }
    assert_eq!(lines_with(&["WARN", &address]), 0);
    assert_eq!(lines_with(&["INFO", &address]), 0);
    assert_eq!(client.health(), Health::Connected);
    warm_up(&client).await;
}

async fn f104_signs_of_life_keep_a_connection_open_and_find_its_silent_end(row: &Row) {
    let server = RedisServer::builder().arg("--timeout", "1").start().await;
    let proxy = Proxy::start(server.addr()).await;
    let settings = |builder: distlock::Builder| {
        let builder = builder.ping_interval(ms(200));
        builder.response_timeout(ms(300))
    };
    let client = client_with(&proxy.url(), settings).await;
    warm_up(&client).await;
    let before = epoch(&client);
    // Three times as old as an idle one may become.
    let pings = || async { server.command_calls("ping").await > 15 };
    eventually_eq(SOON, "signs of life", true, pings).await;
    assert_eq!(epoch(&client), before, "closed");
    let silent = proxy.flow(Select::EXISTING, Way::Down, Flow::Stall);
    replaced(&client, before).await;
    row.injected("silence on an idle connection", silent.hits());
    // Found before somebody needs it.
    drop(client.lock("k").try_acquire().await.unwrap().unwrap());
}

async fn f104_ends_for_one_cause_are_warned_of_once(row: &Row) {
    let server = RedisServer::start().await;
    let address = server.addr().to_string();
    let client = client_with(&server.url(), |builder| builder).await;
    let guard = client.lock("k").acquire().await.unwrap();
    for _ in 0..3 {
        let before = epoch(&client);
        server
            .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        row.injected("connection killed", 1);
        replaced(&client, before).await;
    }
    assert_eq!(
        lines_with(&["WARN", &address, "connection to the lock server lost"]),
        1
    );
    guard.release().await.unwrap();
}

const REFUSAL: &[u8] = b"-ERR max daily request limit exceeded. Limit: 10000\r\n";

/// What is sent with a script.
const SCRIPT: &str = "EVALSHA\r\n";

/// A server behind a program that counts requests, and refuses some in its own words while it is asked to.
struct Quota {
    address: SocketAddr,
    /// What it refuses, and all that comes in one piece with it.
    refuses: Arc<Mutex<Option<&'static str>>>,
    refused: Arc<AtomicU64>,
}

impl Quota {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let quota = Self {
            address: listener.local_addr().unwrap(),
            refuses: Arc::default(),
            refused: Arc::default(),
        };
        let (refuses, refused) = (Arc::clone(&quota.refuses), Arc::clone(&quota.refused));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (refuses, refused) = (Arc::clone(&refuses), Arc::clone(&refused));
                tokio::spawn(carry(client, server, refuses, refused));
            }
        });
        quota
    }

    fn refuse(&self, what: &'static str) {
        *self.refuses.lock().unwrap() = Some(what);
    }

    fn admit(&self) {
        *self.refuses.lock().unwrap() = None;
    }

    async fn refused_some(&self) {
        let before = self.refused.load(Ordering::SeqCst);
        let more = || async { self.refused.load(Ordering::SeqCst) > before };
        eventually_eq(SOON, "refusals", true, more).await;
    }
}

/// Carries one connection. While it refuses, each command in what comes gets the refusal, and goes no further.
async fn carry(
    client: TcpStream,
    server: SocketAddr,
    refuses: Arc<Mutex<Option<&'static str>>>,
    refused: Arc<AtomicU64>,
) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
    let answers = Arc::clone(&to_client);
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            let mut client = answers.lock().await;
            if client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        let sent = &buffer[..length];
        let text = String::from_utf8_lossy(sent);
        let what = *refuses.lock().unwrap();
        if what.is_some_and(|what| text.contains(what)) {
            // Each begins with the number of its words.
            let commands = 1 + text.matches("\r\n*").count();
            refused.fetch_add(commands as u64, Ordering::SeqCst);
            let answer = REFUSAL.repeat(commands);
            let _sent = to_client.lock().await.write_all(&answer).await;
        } else if to_server.write_all(sent).await.is_err() {
            return;
        }
    }
}

async fn f105_refusal_in_unknown_words_is_waited_for_and_releases_go_on(row: &Row) {
    let server = RedisServer::start().await;
    let quota = Quota::start(server.addr()).await;
    let url = format!("redis://{}", quota.address);
    waits_and_releases_go_on(row, &server, &quota, &url).await;
}

async fn f105_refusal_of_a_node_of_a_cluster_is_waited_for_and_releases_go_on(row: &Row) {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes");
    let server = server.start().await;
    let quota = Quota::start(server.addr()).await;
    let port = quota.address.port().to_string();
    for words in [
        ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"],
        ["CONFIG", "SET", "cluster-announce-ip", "127.0.0.1"],
        ["CONFIG", "SET", "cluster-announce-port", &port],
    ] {
        server.cli(&words).await;
    }
    eventually(SOON, "the slots to be served", async || {
        let info: String = server.try_cli(&["CLUSTER", "INFO"]).await.unwrap();
        info.contains("cluster_state:ok").then_some(()).ok_or(info)
    })
    .await;
    let url = format!("redis+cluster://{}", quota.address);
    waits_and_releases_go_on(row, &server, &quota, &url).await;
}

async fn f105_refusal_of_a_confirmation_is_waited_for(row: &Row) {
    let pair = Pair::start().await;
    let quota = Quota::start(pair.primary.addr()).await;
    let url = format!("redis://{}", quota.address);
    let settings = |builder: distlock::Builder| {
        let builder = builder.replicas(1, ms(2_000));
        builder.unavailable_after(3 * SOON)
    };
    let client = client_with(&url, settings).await;
    drop(client.lock("first").acquire().await.unwrap());
    quota.refuse("WAIT\r\n");
    let waits = tokio::spawn(client.lock("k").acquire().wait(3 * SOON).into_future());
    quota.refused_some().await;
    quota.refused_some().await;
    assert!(!waits.is_finished(), "{:?}", waits.await);
    quota.admit();
    waits.await.unwrap().unwrap().release().await.unwrap();
    let refused = quota.refused.load(Ordering::SeqCst);
    row.injected("refusal in unknown words", refused);
    free(&pair.primary, &[&client]).await;
}

async fn waits_and_releases_go_on(row: &Row, server: &RedisServer, quota: &Quota, url: &str) {
    let client = client_with(url, |builder| builder.unavailable_after(3 * SOON)).await;
    // A server that never carried it out may not be able to.
    quota.refuse(SCRIPT);
    let error = client.lock("k").acquire().wait(SOON).await.unwrap_err();
    assert!(matches!(error, distlock::Error::Protocol { .. }), "{error}");
    quota.admit();
    warm_up(&client).await;
    let guard = client.lock("held").acquire().await.unwrap();
    quota.refuse(SCRIPT);
    let waits = tokio::spawn(client.lock("k").acquire().wait(3 * SOON).into_future());
    quota.refused_some().await;
    let released = tokio::spawn(guard.release());
    quota.refused_some().await;
    quota.refused_some().await;
    row.injected(
        "refusal in unknown words",
        quota.refused.load(Ordering::SeqCst),
    );
    assert!(!waits.is_finished() && !released.is_finished());
    quota.admit();
    released.await.unwrap().unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    let is_free = || async {
        let keys = server.keys().await;
        if keys.is_empty() { Ok(()) } else { Err(keys) }
    };
    eventually(SOON, "no key", is_free).await;
    free(server, &[&client]).await;
}

rows! {
    Real:
        f104_idle_connection_that_the_server_closes_is_no_outage,
        f104_signs_of_life_keep_a_connection_open_and_find_its_silent_end,
        f104_ends_for_one_cause_are_warned_of_once,
        f105_refusal_of_a_node_of_a_cluster_is_waited_for_and_releases_go_on,
        f105_refusal_of_a_confirmation_is_waited_for,
        f105_refusal_in_unknown_words_is_waited_for_and_releases_go_on;
}

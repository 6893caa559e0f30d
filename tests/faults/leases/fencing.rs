//! Row 83: what could send fencing tokens back. A token is at least the server's time in microseconds, above the last one,
//! and above each that its client has seen.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::Client;
use distlock_tests::{Process, Proxy, RedisServer, eventually_eq};

use crate::row::{Row, rows};
use crate::support::{SOON, client, ms};

const KEY: &str = "order:42";

/// Redisson's name for the last token of that key.
const TOKEN: &str = "redisson_lock_token:{order:42}";

/// The tokens of one key: each must be higher than all before.
#[derive(Default)]
struct Tokens {
    highest: u64,
}

impl Tokens {
    #[track_caller]
    fn given(&mut self, token: u64, after: &str) {
        let highest = self.highest;
        assert!(token > highest, "{token} is not above {highest}: {after}");
        self.highest = token;
    }

    async fn next(&mut self, client: &Client, after: &str) {
        let guard = client.fenced_lock(KEY).acquire().wait(SOON).await.unwrap();
        self.given(guard.token(), after);
        guard.release().await.unwrap();
    }

    /// By a process that has seen none.
    async fn next_of_a_new_process(&mut self, url: &str, after: &str) {
        let mut process = Process::start(env!("CARGO_BIN_EXE_holder"), [url]);
        let answer = process.ask(format!("token {KEY}"), "token", SOON).await;
        let token = answer.strip_prefix("token ").expect(&answer);
        self.given(token.parse().unwrap(), after);
    }
}

async fn stored_token(server: &RedisServer) -> u64 {
    let stored: Option<u64> = server.try_cli(&["GET", TOKEN]).await.unwrap();
    stored.unwrap_or_default()
}

async fn f83_tokens_grow_whatever_the_server_loses(row: &Row) {
    let mut server = RedisServer::start().await;
    let old = client(&server.url()).await;
    let mut tokens = Tokens::default();
    for lost in [
        "nothing",
        "the token",
        "all data",
        "all data, with its process",
    ] {
        tokens.next(&old, "it was released").await;
        let lock = old.fenced_lock(KEY);
        let expiring = lock.acquire().lease(ms(20)).await.unwrap();
        tokens.given(expiring.token(), "it was released");
        expiring.lost().await;
        let forced = lock.acquire().wait(SOON).await.unwrap();
        tokens.given(forced.token(), "its lease was over");
        assert!(lock.force_release().await.unwrap());
        match lost {
            "nothing" => {}
            "the token" => drop(server.cli(&["DEL", TOKEN]).await),
            "all data" => drop(server.cli(&["FLUSHALL"]).await),
            _ => server.restart().await,
        }
        let is_gone = stored_token(&server).await == 0;
        assert_eq!(is_gone, lost != "nothing");
        row.injected("token lost", u64::from(is_gone));
        // First one that has seen none: it cannot make up for what the server forgot.
        tokens.next_of_a_new_process(&server.url(), lost).await;
        tokens.next(&client(&server.url()).await, lost).await;
        tokens.next(&old, lost).await;
    }
}

/// A replica that has all that its master has, and hears no more from then on.
async fn stale_replica(master: &RedisServer) -> RedisServer {
    let replica = RedisServer::start().await;
    // Else it waits some seconds for more of them.
    let at_once = ["CONFIG", "SET", "repl-diskless-sync-delay", "0"];
    master.cli(&at_once).await;
    let port = master.port().to_string();
    replica.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let token = stored_token(master).await;
    let copied = || async { (stored_token(&replica).await, replica.pttl(KEY).await > 0) };
    eventually_eq(2 * SOON, "the replica's token", (token, true), copied).await;
    replica.cli(&["REPLICAOF", "NO", "ONE"]).await;
    replica
}

async fn f83_tokens_grow_when_a_stale_replica_takes_over(row: &Row) {
    let mut master = RedisServer::start().await;
    let proxy = Proxy::start(master.addr()).await;
    let (one, two) = (client(&proxy.url()).await, client(&proxy.url()).await);
    let mut tokens = Tokens::default();
    tokens.next(&two, "nothing").await;
    // The replica goes on to believe in this hold, for as long as its lease.
    let lease = ms(4_000);
    let held = one.fenced_lock(KEY).acquire().lease(lease).await.unwrap();
    tokens.given(held.token(), "it was released");
    let replica = stale_replica(&master).await;
    held.release().await.unwrap();
    for _ in 0..100 {
        tokens.next(&one, "it was released").await;
    }
    master.kill();
    proxy.set_target(replica.addr());
    let forgotten = tokens.highest - stored_token(&replica).await;
    assert!(forgotten >= 100, "the replica knows all but {forgotten}");
    row.injected("replica that had not heard of the last 100 grants", 1);
    // One that has seen none, one that has seen the first, and one that has seen all.
    tokens.next_of_a_new_process(&proxy.url(), "failover").await;
    for client in [&two, &one, &client(&proxy.url()).await] {
        tokens.next(client, "failover").await;
    }
}

/// Where the clock or the tokens of the old server were ahead, only a client that has seen one can tell.
async fn f83_client_that_saw_a_token_of_a_server_ahead_gets_none_below(row: &Row) {
    let mut ahead = RedisServer::start().await;
    let proxy = Proxy::start(ahead.addr()).await;
    let client = client(&proxy.url()).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let an_hour_on = (now + Duration::from_secs(3_600)).as_micros().to_string();
    ahead.cli(&["SET", TOKEN, &an_hour_on]).await;
    let mut tokens = Tokens::default();
    tokens.next(&client, "nothing").await;
    assert!(tokens.highest.to_string() > an_hour_on);
    let behind = RedisServer::start().await;
    ahead.kill();
    proxy.set_target(behind.addr());
    row.injected("server an hour behind the one before", 1);
    for _ in 0..3 {
        tokens.next(&client, "failover").await;
    }
    // The server has learned of it: from here on it holds for all.
    let url = proxy.url();
    tokens.next_of_a_new_process(&url, "failover").await;
}

rows! {
    Real:
        f83_tokens_grow_whatever_the_server_loses,
        f83_tokens_grow_when_a_stale_replica_takes_over,
        f83_client_that_saw_a_token_of_a_server_ahead_gets_none_below;
}

//! Several keys, and several servers, beside one.

use std::time::{Duration, Instant};

use distlock::{Acquire, Client, Quorum, RedLock};
use distlock_tests::RedisServer;

use crate::bare::{Bare, names};
use crate::{ROUNDS, report};

/// Three keys as one, beside one key; and the floor, which is the same of the bare commands.
pub(crate) async fn multi_lock(server: &RedisServer) {
    const PAIRS: u32 = 500;
    let client = Client::connect(&server.url()).await.unwrap();
    let mut bare = Bare::new(server).await;
    let all = [names(1), names(2), names(3)];
    let (key, owner, channel) = &all[0];
    let (one, three) = (
        client.lock("one"),
        client.multi_lock(["first", "second", "third"]),
    );
    let (mut ratios, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PAIRS {
            bare.pair(key, owner, channel).await;
        }
        let bare_one = start.elapsed();
        let start = Instant::now();
        for _ in 0..PAIRS {
            bare.pair_of_all(&all).await;
        }
        floors.push(start.elapsed().as_secs_f64() / bare_one.as_secs_f64());
        let theirs = pairs(PAIRS, || one.acquire()).await;
        let ours = pairs(PAIRS, || three.acquire()).await;
        ratios.push(ours.as_secs_f64() / theirs.as_secs_f64());
    }
    report("three keys to one, bare commands: time", floors, "(floor)");
    report("three keys to one, multi-lock: time", ratios, "at most 1.3");
}

/// Five servers of which two hang, beside five that are up. Three are the same.
pub(crate) async fn red_lock() {
    const PAIRS: u32 = 100;
    let mut servers = Vec::new();
    for _ in 0..7 {
        servers.push(RedisServer::start().await);
    }
    let up = over(&servers[..5], "up").await;
    let hung = over(&servers[2..], "hung").await;
    servers[5].stop();
    servers[6].stop();
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let theirs = pairs(PAIRS, || up.acquire()).await;
        let ours = pairs(PAIRS, || hung.acquire()).await;
        ratios.push(ours.as_secs_f64() / theirs.as_secs_f64());
    }
    report(
        "Redlock, two of five servers hung to none: time",
        ratios,
        "at most 1.3",
    );
}

/// A Redlock over these, all of which have answered once.
async fn over(servers: &[RedisServer], key: &str) -> RedLock {
    let mut clients = Vec::new();
    for server in servers {
        let client = Client::connect(&server.url()).await.unwrap();
        client.lock(key).is_locked().await.unwrap();
        clients.push(client);
    }
    Quorum::new(clients).lock(key)
}

async fn pairs(number: u32, acquire: impl Fn() -> Acquire) -> Duration {
    let start = Instant::now();
    for _ in 0..number {
        acquire().await.unwrap().release().await.unwrap();
    }
    start.elapsed()
}

//! Many readers of one key, beside as many plain locks, and beside one reader.

use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_tests::RedisServer;

use crate::{ROUNDS, TASKS, report, together};

pub(crate) async fn one_key(server: &RedisServer) {
    const PAIRS: usize = 50;
    let client = Client::connect(&server.url()).await.unwrap();
    let read = client.rw_lock("read").read();
    let (mut to_plain, mut to_one) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let plain = together(|n| {
            let lock = client.lock(format!("alone:{n}"));
            pairs(PAIRS, move || lock.acquire())
        })
        .await;
        let crowd = together(|_| {
            let read = read.clone();
            pairs(PAIRS, move || read.acquire())
        })
        .await;
        let one = {
            let (start, read) = (std::time::Instant::now(), read.clone());
            pairs(10 * PAIRS, move || read.acquire()).await;
            start.elapsed()
        };
        to_plain.push(plain.as_secs_f64() / crowd.as_secs_f64());
        to_one.push(per_second(TASKS * PAIRS, crowd) / per_second(10 * PAIRS, one));
    }
    report(
        "64 readers of one key to 64 plain keys: throughput",
        to_plain,
        "at least 0.5",
    );
    report(
        "64 readers of one key to one reader: throughput",
        to_one,
        "at least 4",
    );
}

async fn pairs(number: usize, acquire: impl Fn() -> Acquire) {
    for _ in 0..number {
        acquire().await.unwrap().release().await.unwrap();
    }
}

fn per_second(number: usize, time: Duration) -> f64 {
    number as f64 / time.as_secs_f64()
}

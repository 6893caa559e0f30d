//! Several keys at once, and one key on several servers.

use std::sync::atomic::Ordering;
use std::time::Instant;

use distlock::{Client, MultiLock, Quorum, RedLock};
use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;

use super::plain::FLOOR;
use crate::bare::{Bare, Names, names};
use crate::peers::RedisMultiLock;
use crate::plan::Plan;
use crate::tasks::{TASKS, alone, per_call, together};

/// The library and the crates that can take three keys. `rslock` cannot.
enum Side {
    Ours(Client),
    Bare(Bare),
    RedisLock(RedisMultiLock),
}

/// The three keys of one task.
enum Three {
    Ours(MultiLock),
    Bare(Bare, Box<[Names; 3]>),
    RedisLock(RedisMultiLock, [String; 3]),
}

impl Side {
    fn three(&self, task: usize) -> Three {
        let numbers = [3 * task, 3 * task + 1, 3 * task + 2];
        match self {
            Self::Ours(client) => {
                Three::Ours(client.multi_lock(numbers.map(|n| format!("three:{n}"))))
            }
            Self::Bare(bare) => Three::Bare(bare.clone(), Box::new(numbers.map(names))),
            Self::RedisLock(lock) => {
                Three::RedisLock(lock.clone(), numbers.map(|n| format!("three:{n}")))
            }
        }
    }
}

impl Three {
    async fn pair(&mut self) {
        match self {
            Self::Ours(lock) => lock.acquire().await.unwrap().release().await.unwrap(),
            Self::Bare(bare, all) => bare.pair_of_all(all.as_slice()).await,
            Self::RedisLock(lock, keys) => lock.pair(keys).await,
        }
    }
}

pub(crate) async fn multi_lock(server: &RedisServer, plan: Plan, table: &mut Table) {
    let url = server.url();
    let sides = [
        Side::Ours(Client::connect(&url).await.unwrap()),
        Side::Bare(Bare::new(&url).await),
        Side::RedisLock(RedisMultiLock::new(&url).await),
    ];
    let figures = plan.alternate(&sides, async |side: &Side| {
        let mut three = side.three(0);
        alone(plan.slice, async || three.pair().await).await
    });
    let [ours, theirs, redis_lock] = figures.await.try_into().unwrap();
    let row = Row::new("multi-lock of 3 keys, one task", "us", FLOOR).ours(ours);
    table.push(row.theirs(theirs).redis_lock(redis_lock));

    let figures = plan.alternate(&sides, async |side: &Side| {
        let work = together(TASKS, plan.slice, |until, n, count| {
            let mut three = side.three(n);
            async move {
                while Instant::now() < until {
                    three.pair().await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        per_call(work.await)
    });
    let [ours, theirs, redis_lock] = figures.await.try_into().unwrap();
    let row = Row::new("multi-lock of 3 keys, 64 tasks, time per pair", "us", FLOOR);
    let row = row.ours(ours).theirs(theirs).redis_lock(redis_lock);
    table.push(row);
}

/// Five servers of which two hang, beside five that are up. Three are the same.
pub(crate) async fn red_lock(plan: Plan, table: &mut Table) {
    let mut servers = Vec::new();
    for _ in 0..7 {
        servers.push(RedisServer::start().await);
    }
    let hung = over(&servers[2..], "hung").await;
    let up = over(&servers[..5], "up").await;
    servers[5].stop();
    servers[6].stop();
    let sides = [hung, up];
    let figures = plan.alternate(&sides, async |lock: &RedLock| {
        let pair = async || lock.acquire().await.unwrap().release().await.unwrap();
        alone(plan.slice, pair).await
    });
    let [ours, theirs] = figures.await.try_into().unwrap();
    let row = Row::new("Redlock, two of five servers hang", "us", "all five are up");
    table.push(row.ours(ours).theirs(theirs));
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

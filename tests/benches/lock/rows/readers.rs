//! Readers of one key, beside the bare commands and beside plain locks.

use std::sync::atomic::Ordering;
use std::time::Instant;

use distlock::{Acquire, Client};
use distlock_bench::{Row, Table};
use distlock_tests::RedisServer;

use super::plain::FLOOR;
use crate::bare::{Bare, names};
use crate::plan::Plan;
use crate::tasks::{TASKS, alone, per_call, together};

enum Side {
    Readers(Client),
    Bare(Bare),
    Plain(Client),
}

pub(crate) async fn one_key(server: &RedisServer, plan: Plan, table: &mut Table) {
    let client = Client::connect(&server.url()).await.unwrap();
    let sides = [
        Side::Readers(client.clone()),
        Side::Bare(Bare::new(&server.url()).await),
        Side::Plain(client),
    ];
    let figures = plan.alternate(&sides[..2], async |side: &Side| one_task(side, plan).await);
    let [ours, theirs] = figures.await.try_into().unwrap();
    let row = Row::new("one reader, acquire and release", "us", FLOOR);
    table.push(row.ours(ours).theirs(theirs));

    let figures = plan.alternate(&sides, async |side: &Side| many_tasks(side, plan).await);
    let [ours, theirs, plain] = figures.await.try_into().unwrap();
    let what = "64 readers of one key, time per pair";
    let row = Row::new(what, "us", FLOOR).ours(ours.clone());
    table.push(row.theirs(theirs));
    let row = Row::new(what, "us", "64 plain keys");
    table.push(row.ours(ours).theirs(plain));
}

async fn one_task(side: &Side, plan: Plan) -> f64 {
    match side {
        Side::Readers(client) => {
            let read = client.rw_lock("read").read();
            alone(plan.slice, async || pair(read.acquire()).await).await
        }
        Side::Bare(bare) => {
            let (mut bare, (_, owner, _)) = (bare.clone(), names(0));
            alone(plan.slice, async || bare.reader("bare:read", &owner).await).await
        }
        Side::Plain(_) => unreachable!("it is compared with many readers only"),
    }
}

async fn many_tasks(side: &Side, plan: Plan) -> f64 {
    let acquire = |n: usize| match side {
        Side::Readers(client) => Some(client.rw_lock("read").read().acquire()),
        Side::Plain(client) => Some(client.lock(format!("alone:{n}")).acquire()),
        Side::Bare(_) => None,
    };
    let bare = |n: usize| match side {
        Side::Bare(bare) => Some((bare.clone(), names(n).1)),
        _ => None,
    };
    let work = together(TASKS, plan.slice, |until, n, count| {
        let (acquire, mut bare) = (acquire(n), bare(n));
        async move {
            while Instant::now() < until {
                if let Some(acquire) = &acquire {
                    pair(acquire.clone()).await;
                }
                if let Some((bare, owner)) = &mut bare {
                    bare.reader("bare:read", owner).await;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    per_call(work.await)
}

async fn pair(acquire: Acquire) {
    acquire.await.unwrap().release().await.unwrap();
}

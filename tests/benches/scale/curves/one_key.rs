//! Tasks of one process that take the same key, each again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use distlock::Client;
use distlock_tests::RedisServer;
use tokio::task::JoinSet;

use crate::cost::Meter;
use crate::curve::Column::Drawn;
use crate::curve::{Column, Curve};
use crate::plan::Plan;

const SIZES: [usize; 6] = [1, 2, 10, 100, 1_000, 10_000];

const COLUMNS: [Column; 4] = [
    Drawn("grants a second, thousands"),
    Drawn("CPU of the client, us per grant"),
    Drawn("CPU of the server, us per grant"),
    Drawn("commands per grant"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let title = "Tasks of one process that take the same key";
    let mut curve = Curve::new("one-key", title, "tasks", &COLUMNS);
    let client = Client::connect(&server.url()).await.unwrap();
    for &size in plan.sizes(&SIZES) {
        let meter = Meter::start(server).await;
        let (until, grants) = (Instant::now() + plan.slice(), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..size {
            let (acquire, grants) = (client.lock("hot").acquire(), Arc::clone(&grants));
            tasks.spawn(async move {
                while Instant::now() < until {
                    acquire.clone().await.unwrap().release().await.unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        tasks.join_all().await;
        let spent = meter.stop().await;
        let grants = grants.load(Ordering::Relaxed) as f64;
        let figures = vec![
            grants / spent.seconds() / 1e3,
            spent.own_micros() / grants,
            spent.server_micros() / grants,
            spent.sent() / grants,
        ];
        curve.push(size, figures);
    }
    curve
}

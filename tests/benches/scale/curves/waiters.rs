//! Waiters of one client, each for another key. The keys are held by another client all the time.

use distlock::Client;
use distlock_tests::RedisServer;
use distlock_tests::leaks::resident;
use tokio::time::sleep;

use super::{hold, wait_for, without_renewals};
use crate::cost::Meter;
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::{PERIOD, Plan};

const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

const COLUMNS: [Column; 6] = [
    Drawn("commands a second"),
    Drawn("CPU of the client, ms a second"),
    Drawn("CPU of the server, ms a second"),
    Listed("script time a second, us per waiter"),
    Listed("memory of the client, bytes per waiter"),
    Listed("memory of the server, bytes per waiter"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let title = "Waiters of one client, each for a key of its own";
    let mut curve = Curve::new("waiters", title, "waiters", &COLUMNS);
    let holder = without_renewals(server).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let most = plan.sizes(&SIZES).iter().copied().max().unwrap_or(0);
    let held = (0..most).map(|n| holder.lock(format!("order:{n}")).acquire());
    let held = hold(held).await;
    // What a smaller size has freed is used again by the next one, so all sizes begin here.
    let (before, base) = (
        Meter::start(server).await.stop().await.server_memory(),
        resident(),
    );
    for &size in plan.sizes(&SIZES) {
        let acquisitions = (0..size).map(|n| client.lock(format!("order:{n}")).acquire());
        let waiting = wait_for(server, acquisitions.collect()).await;
        let meter = Meter::start(server).await;
        sleep(PERIOD).await;
        let spent = meter.stop().await;
        let waiters = size as f64;
        let figures = vec![
            spent.sent() / spent.seconds(),
            spent.own_micros() / 1e3 / spent.seconds(),
            spent.server_micros() / 1e3 / spent.seconds(),
            spent.micros_in("evalsha") / spent.seconds() / waiters,
            resident().saturating_sub(base) as f64 / waiters,
            (spent.server_memory() - before) / waiters,
        ];
        curve.push(size, figures);
        drop(waiting);
        super::subscribed(server, 0).await;
    }
    drop(held);
    curve
}

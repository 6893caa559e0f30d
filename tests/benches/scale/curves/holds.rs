//! Holds of one client, which its watchdog renews.

use distlock::Client;
use distlock_tests::RedisServer;
use distlock_tests::leaks::resident;
use tokio::time::sleep;

use super::{hold, release};
use crate::cost::Meter;
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::{PERIOD, Plan};

const SIZES: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

const COLUMNS: [Column; 6] = [
    Drawn("renewal scripts a second"),
    Drawn("CPU of the client, ms a second"),
    Drawn("CPU of the server, ms a second"),
    Listed("script time per renewal, us"),
    Listed("memory of the client, bytes per hold"),
    Listed("memory of the server, bytes per hold"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let mut curve = Curve::new("holds", "Holds of one client", "holds", &COLUMNS);
    let client = Client::connect(&server.url()).await.unwrap();
    release(hold([client.lock("first").acquire()]).await).await;
    let empty = Meter::start(server).await.stop().await.server_memory();
    let (base, mut guards) = (resident(), Vec::new());
    for &size in plan.sizes(&SIZES) {
        let keys = (guards.len()..size).map(|n| format!("account:{n}"));
        guards.extend(hold(keys.map(|key| client.lock(key).acquire())).await);
        let meter = Meter::start(server).await;
        sleep(PERIOD).await;
        let spent = meter.stop().await;
        let holds = size as f64;
        let figures = vec![
            spent.calls("evalsha") / spent.seconds(),
            spent.own_micros() / 1e3 / spent.seconds(),
            spent.server_micros() / 1e3 / spent.seconds(),
            spent.micros_in("evalsha") / holds,
            resident().saturating_sub(base) as f64 / holds,
            (spent.server_memory() - empty) / holds,
        ];
        curve.push(size, figures);
    }
    release(guards).await;
    curve
}

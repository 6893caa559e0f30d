//! Keys of a multi-lock.

use distlock::Client;
use distlock_tests::RedisServer;

use super::repeat;
use crate::cost::Meter;
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::Plan;

const SIZES: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];

const COLUMNS: [Column; 5] = [
    Listed("script time, us per pair"),
    Drawn("CPU of the client, us per pair"),
    Drawn("CPU of the server, us per pair"),
    Listed("script time, us per key"),
    Listed("CPU of the client, us per key"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let title = "Keys of a multi-lock, acquired and released";
    let mut curve = Curve::new("keys", title, "keys", &COLUMNS);
    let client = Client::connect(&server.url()).await.unwrap();
    for &size in plan.sizes(&SIZES) {
        let lock = client.multi_lock((0..size).map(|n| format!("part:{n}")));
        let pair = async || lock.acquire().await.unwrap().release().await.unwrap();
        pair().await;
        let meter = Meter::start(server).await;
        let pairs = repeat(plan.slice() / 2, pair).await;
        let spent = meter.stop().await;
        let keys = size as f64;
        let figures = vec![
            spent.micros_in("evalsha") / pairs,
            spent.own_micros() / pairs,
            spent.server_micros() / pairs,
            spent.micros_in("evalsha") / pairs / keys,
            spent.own_micros() / pairs / keys,
        ];
        curve.push(size, figures);
    }
    curve
}

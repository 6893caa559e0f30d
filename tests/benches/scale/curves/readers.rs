//! Readers of one key: what one more costs, and what it costs to renew all of them.

use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_tests::RedisServer;
use tokio::time::sleep;

use super::{hold, release, repeat, without_renewals};
use crate::cost::Meter;
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::Plan;

const SIZES: [usize; 5] = [1, 10, 100, 1_000, 4_000];

/// A lease that is renewed three times while the readers are measured for one lease.
const LEASE: Duration = Duration::from_secs(3);

const COLUMNS: [Column; 4] = [
    Drawn("script time of one more, us per pair"),
    Drawn("script time per renewal of a reader, us"),
    Drawn("CPU of the server, us per pair"),
    Listed("memory of the server, bytes per reader"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let title = "Readers that hold the same key";
    let mut curve = Curve::new("readers", title, "readers", &COLUMNS);
    let resting = without_renewals(server).await;
    let renewing = Client::builder().watchdog_timeout(LEASE);
    let renewing = renewing.connect(&server.url()).await.unwrap();
    let empty = Meter::start(server).await.stop().await.server_memory();
    for &size in plan.sizes(&SIZES) {
        let guards = hold(readers(&resting, size)).await;
        let meter = Meter::start(server).await;
        let pairs = repeat(plan.slice(), async || {
            // It has the longest lease of all, so that its release has to look for the next longest.
            release(hold(readers(&resting, 1)).await).await;
        });
        let pairs = pairs.await;
        let pair = meter.stop().await;
        release(guards).await;

        let guards = hold(readers(&renewing, size)).await;
        let meter = Meter::start(server).await;
        sleep(LEASE).await;
        let renewal = meter.stop().await;
        release(guards).await;

        let figures = vec![
            pair.micros_in("evalsha") / pairs,
            renewal.micros_in("evalsha") / (3.0 * size as f64),
            pair.server_micros() / pairs,
            (pair.server_memory() - empty) / size as f64,
        ];
        curve.push(size, figures);
    }
    curve
}

fn readers(client: &Client, readers: usize) -> Vec<Acquire> {
    let read = client.rw_lock("article").read();
    (0..readers).map(|_| read.acquire()).collect()
}

//! Processes with one task each, which take the same key again and again and keep it for a millisecond.

use distlock_tests::{Process, RedisServer};
use tokio::time::sleep;

use crate::child::{self, WARM_UP, WITHIN};
use crate::cost::{Meter, Spent};
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::Plan;

const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

const COLUMNS: [Column; 9] = [
    Drawn("grants a second"),
    Drawn("attempts per grant"),
    Drawn("commands per grant"),
    Drawn("CPU of the server, us per grant"),
    Listed("looks at the holder per grant"),
    Listed("script time, us per grant"),
    Listed("time of a PUBLISH, us"),
    Listed("CPU of all clients, us per grant"),
    Listed("longest wait, ms"),
];

pub(crate) async fn curves(server: &RedisServer, plan: Plan) -> [Curve; 2] {
    let title = "Processes that wait for one key, plain lock";
    let lock = Curve::new("processes", title, "processes", &COLUMNS);
    let title = "Processes that wait for one key, fair lock";
    let fair = Curve::new("processes-fair", title, "processes", &COLUMNS);
    let mut curves = [lock, fair];
    let mut children: Vec<Process> = Vec::new();
    for &size in plan.sizes(&SIZES) {
        let started = children.len();
        children.extend((started..size).map(|_| child::start(server)));
        for child in &mut children[started..] {
            child.expect("ready", WITHIN).await;
        }
        for (kind, curve) in ["lock", "fair"].into_iter().zip(&mut curves) {
            let figures = share(server, plan, &mut children, kind).await;
            curve.push(size, figures);
        }
    }
    curves
}

async fn share(server: &RedisServer, plan: Plan, children: &mut [Process], kind: &str) -> Vec<f64> {
    for child in children.iter_mut() {
        // Longer than the server is measured, so that all work until then.
        child.send(format!(
            "{kind} {}",
            (plan.long_slice() + WARM_UP).as_millis()
        ));
    }
    sleep(WARM_UP).await;
    let meter = Meter::start(server).await;
    sleep(plan.long_slice()).await;
    let spent = meter.stop().await;
    let (mut served, mut longest, mut cpu) = (0.0, 0.0_f64, 0.0);
    for child in children {
        let answer = child.expect("served ", WITHIN).await;
        let figures = answer.split(' ').skip(1);
        let figures: Vec<f64> = figures.map(|word| word.parse().unwrap()).collect();
        served += figures[0];
        longest = longest.max(figures[1]);
        cpu += figures[2];
    }
    per_grant(&spent, cpu / served, longest / 1e3)
}

/// In the order of the columns.
fn per_grant(spent: &Spent, of_clients: f64, longest: f64) -> Vec<f64> {
    // A release removes its owner, and nothing else calls HDEL.
    let grants = spent.calls("hdel");
    vec![
        grants / spent.seconds(),
        // Only an attempt asks whether the key exists. A release of a fair lock does so as well.
        spent.calls("exists") / grants,
        spent.sent() / grants,
        spent.server_micros() / grants,
        // Only a look at the holder reads the names of the owners.
        spent.calls("hkeys") / grants,
        spent.micros_in("evalsha") / grants,
        spent.micros_in("publish") / spent.calls("publish").max(1.0),
        of_clients,
        longest,
    ]
}

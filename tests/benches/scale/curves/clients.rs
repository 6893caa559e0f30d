//! Clients, each with one hold and one waiter: connections and memory.

use distlock::Client;
use distlock_tests::RedisServer;
use distlock_tests::leaks::resident;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{hold, wait_for, without_renewals};
use crate::cost::Meter;
use crate::curve::Column::{Drawn, Listed};
use crate::curve::{Column, Curve};
use crate::plan::{PERIOD, Plan};

const SIZES: [usize; 5] = [1, 10, 100, 500, 1_000];

const COLUMNS: [Column; 6] = [
    Drawn("connections"),
    Drawn("memory of the server, MB"),
    Drawn("commands a second"),
    Listed("memory of the server, kB per client"),
    Listed("memory of the process, kB per client"),
    Listed("CPU of the server, ms a second"),
];

pub(crate) async fn curve(server: &RedisServer, plan: Plan) -> Curve {
    let title = "Clients with one hold and one waiter each";
    let mut curve = Curve::new("clients", title, "clients", &COLUMNS);
    let holder = without_renewals(server).await;
    let most = plan.sizes(&SIZES).iter().copied().max().unwrap_or(0);
    let held = (0..most).map(|n| holder.lock(format!("wanted:{n}")).acquire());
    let held = hold(held).await;
    let spent = Meter::start(server).await.stop().await;
    let (before, of_holder) = (spent.server_memory(), spent.connections());
    // What a smaller size has freed is used again by the next one, so all sizes begin here.
    let (url, base) = (server.url(), resident());
    for &size in plan.sizes(&SIZES) {
        let clients = join_all((0..size).map(|_| Client::connect(&url))).await;
        let clients: Vec<Client> = clients.into_iter().map(Result::unwrap).collect();
        let numbered = || clients.iter().enumerate();
        let own = numbered().map(|(n, client)| client.lock(format!("own:{n}")).acquire());
        let guards = hold(own).await;
        let wanted = numbered().map(|(n, client)| client.lock(format!("wanted:{n}")).acquire());
        let waiting = wait_for(server, wanted.collect()).await;
        let meter = Meter::start(server).await;
        sleep(PERIOD).await;
        let spent = meter.stop().await;
        let memory = spent.server_memory() - before;
        let figures = vec![
            spent.connections() - of_holder,
            memory / 1e6,
            spent.sent() / spent.seconds(),
            memory / 1e3 / size as f64,
            resident().saturating_sub(base) as f64 / 1e3 / size as f64,
            spent.server_micros() / 1e3 / spent.seconds(),
        ];
        curve.push(size, figures);
        drop(waiting);
        super::release(guards).await;
        drop(clients);
        super::subscribed(server, 0).await;
    }
    drop(held);
    curve
}

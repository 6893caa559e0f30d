//! How clients share a key that is hot in all of them. On paused time, where only the order of events counts.

use std::time::Duration;

use distlock::{Acquire, Client, MemoryServer};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

const SECTION: Duration = Duration::from_millis(1);
const RUN: Duration = Duration::from_secs(30);
const TASKS: usize = 8;

/// The grants of one client until the run is over, and the longest wait for one of them.
async fn grants(acquire: impl Fn() -> Acquire) -> (f64, Duration) {
    let start = Instant::now();
    let task = async || {
        let (mut grants, mut longest) = (0, Duration::ZERO);
        while start.elapsed() < RUN {
            let asked = Instant::now();
            let guard = acquire().await.unwrap();
            longest = longest.max(asked.elapsed());
            sleep(SECTION).await;
            guard.release().await.unwrap();
            grants += 1;
        }
        (grants, longest)
    };
    let tasks = join_all((0..TASKS).map(|_| task())).await;
    let all: u32 = tasks.iter().map(|(grants, _)| grants).sum();
    let longest = tasks.iter().map(|(_, longest)| *longest).max();
    (f64::from(all), longest.unwrap_or_default())
}

/// Jain's index: 1 if all have the same, and a quarter if one of four has everything.
fn jain(of: &[f64]) -> f64 {
    let (sum, squares) = (
        of.iter().sum::<f64>(),
        of.iter().map(|n| n * n).sum::<f64>(),
    );
    sum * sum / (of.len() as f64 * squares)
}

async fn four_clients_share(acquire: impl Fn(&Client) -> Acquire) {
    let server = MemoryServer::new();
    let clients = [(); 4].map(|()| Client::builder().in_memory(&server).unwrap());
    let served = join_all(clients.iter().map(|client| grants(|| acquire(client)))).await;
    let all: Vec<f64> = served.iter().map(|(grants, _)| *grants).collect();
    let longest = served.iter().map(|(_, longest)| *longest).max();
    let index = jain(&all);
    println!("{all:?} grants, Jain {index:.3}, longest wait {longest:?}");
    assert!(index > 0.8, "{all:?} grants, Jain {index:.3}");
}

#[tokio::test(start_paused = true)]
async fn four_clients_share_a_hot_lock() {
    four_clients_share(|client| client.lock("order:42").acquire()).await;
}

#[tokio::test(start_paused = true)]
async fn four_clients_share_a_hot_write_lock() {
    four_clients_share(|client| client.rw_lock("order:42").write().acquire()).await;
}

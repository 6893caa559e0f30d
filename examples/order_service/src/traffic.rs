//! Work that takes seconds, so that people see locks and waiters on the console.

use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many people pack orders at once. They pack fewer orders than that, so some of them wait.
const PACKERS: usize = 12;
const ORDERS: u64 = 6;

/// How many parcels are on their way to the only truck.
const PARCELS: usize = 4;

/// How long a worker that could not work rests.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Starts the work. It ends when the set is dropped.
pub(crate) fn start(locks: &Client) -> JoinSet<()> {
    let mut work = JoinSet::new();
    for _ in 0..PACKERS {
        work.spawn(pack(locks.clone()));
    }
    for _ in 0..PARCELS {
        work.spawn(load(locks.clone()));
    }
    work
}

/// Packs orders, each of which is packed by one person at a time.
async fn pack(locks: Client) {
    loop {
        let order = fastrand::u64(1..=ORDERS);
        let packing = locks.lock(format!("packing:{order}")).acquire();
        tell(packing.run(some_seconds(2..8)).await).await;
        some_seconds(1..4).await;
    }
}

/// Loads parcels into the truck, in the order in which they come.
async fn load(locks: Client) {
    loop {
        let truck = locks.fair_lock("truck").acquire();
        tell(truck.run(some_seconds(1..5)).await).await;
        some_seconds(1..6).await;
    }
}

/// Prints a failure, such as an outage of the lock server. The worker then goes on, as a service would.
async fn tell(done: Result<(), Error>) {
    if let Err(error) = done {
        println!("a worker could not work: {error}");
        sleep(AFTER_A_FAILURE).await;
    }
}

async fn some_seconds(range: std::ops::Range<u64>) {
    let seconds = fastrand::u64(range);
    sleep(Duration::from_secs(seconds)).await;
}

//! A multi-lock: an order, its stock and all its items, declared as one lock in one line.
//!
//! Orders name their items in different sequences, and cannot deadlock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::{Client, Error, distributed_lock};
use distlock_examples::{Failure, LockServer, check};
use tokio::task::JoinSet;

/// The items that a customer ordered, and the warehouse they come from.
#[derive(Clone, Debug)]
struct Order {
    id: u32,
    warehouse: &'static str,
    items: Vec<&'static str>,
}

/// How many pickers are inside the warehouse now, and the highest number so far.
static INSIDE: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

/// Acquires all keys or none, in one round trip, and releases them in one.
#[distributed_lock(
    keys = ["order:<order.id>", "stock:<order.warehouse>", ..order.items.iter().map(|item| format!("item:{item}"))],
    client = locks,
    wait = "10s",
)]
async fn pick(locks: &Client, order: Order) -> Result<String, Error> {
    let inside = INSIDE.fetch_add(1, Ordering::SeqCst) + 1;
    MOST.fetch_max(inside, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(2)).await;
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    Ok(format!("order {}: {}", order.id, order.items.join(", ")))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let pickers = [server.client().await?, server.client().await?];
    let orders = (0..12).map(|id| Order {
        id,
        warehouse: "north",
        items: if id % 2 == 0 {
            vec!["lamp", "chair"]
        } else {
            vec!["chair", "table", "lamp"]
        },
    });
    let mut picked = JoinSet::new();
    for order in orders {
        let locks = pickers[order.id as usize % 2].clone();
        picked.spawn(async move { pick(&locks, order).await });
    }
    while let Some(one) = picked.join_next().await {
        println!("{}", one??);
    }
    check(
        MOST.load(Ordering::SeqCst) == 1,
        "one picker at a time is in the warehouse",
    )?;

    // The same without the attribute: nobody else can lock the stock meanwhile.
    let guard = pickers[0]
        .multi_lock(["order:99", "stock:north"])
        .acquire()
        .await?;
    check(
        pickers[1]
            .lock("stock:north")
            .try_acquire()
            .await?
            .is_none(),
        "the stock is locked",
    )?;
    guard.release().await?;
    println!("12 orders were picked, one at a time");
    for picker in pickers {
        picker.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}

//! A process of workers for a run of `chaos`: its only argument is its orders, in JSON.

use distlock_tests::chaos::redis::child::Orders;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orders = std::env::args().nth(1).ok_or("no orders")?;
    let orders: Orders = serde_json::from_str(&orders)?;
    orders.obey().await?;
    Ok(())
}

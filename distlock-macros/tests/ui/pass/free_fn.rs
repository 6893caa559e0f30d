#![deny(warnings, clippy::pedantic)]

use distlock::{Error, distributed_lock};

pub struct Order {
    pub id: u64,
}

#[distributed_lock(key = "pay:<id>:<order.id>", wait = "5s", lease = "20s")]
pub async fn pay(id: u64, order: &Order) -> Result<u64, Error> {
    let fee = fee(order).await?;
    Ok(id + fee)
}

#[distributed_lock(key = "daily")]
async fn fee(order: &Order) -> Result<u64, Error> {
    std::future::ready(()).await;
    Ok(order.id)
}

fn main() {
    let _future = pay(1, &Order { id: 2 });
}

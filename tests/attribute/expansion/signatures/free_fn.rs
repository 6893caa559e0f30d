use distlock::{Error, distributed_lock};

use super::ok;

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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(pay(1, &Order { id: 2 })).await, 3);
}

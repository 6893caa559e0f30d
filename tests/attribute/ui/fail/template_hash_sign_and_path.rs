use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "pay:#order.id")]
async fn pay(order: Order) -> Result<u64, Error> {
    Ok(order.id)
}

fn main() {}

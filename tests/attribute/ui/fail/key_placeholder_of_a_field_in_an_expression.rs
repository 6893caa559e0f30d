use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = if vip { "vip:<order.id>" } else { "order" })]
async fn pay(order: &Order, vip: bool) -> Result<u64, Error> {
    Ok(order.id)
}

fn main() {}

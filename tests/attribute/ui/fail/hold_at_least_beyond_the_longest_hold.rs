use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", hold_at_least = "1m", lease = "2m", max_hold = "30s")]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

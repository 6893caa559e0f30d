use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", hold_at_least = "0.1ms")]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

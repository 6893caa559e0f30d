use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", max_waiters = "100")]
async fn pay(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}

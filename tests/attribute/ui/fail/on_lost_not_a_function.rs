use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", on_lost = Ok(0))]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

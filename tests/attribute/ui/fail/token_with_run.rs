use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", mode = "fenced", token = token, on_unavailable = "run")]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

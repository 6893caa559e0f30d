use distlock::{Error, distributed_lock};

#[distributed_lock(wait = "5s")]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

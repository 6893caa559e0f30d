use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", auto_release = false)]
async fn pay(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay() -> Result<u64, Error> {
    Ok(1)
}

fn main() {}

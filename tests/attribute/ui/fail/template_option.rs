use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>:<other>")]
async fn pay(id: u64, other: Option<u64>) -> Result<u64, Error> {
    Ok(id + other.unwrap_or(0))
}

fn main() {}

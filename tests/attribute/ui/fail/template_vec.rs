use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<ids>")]
async fn pay(ids: Vec<u64>) -> Result<usize, Error> {
    Ok(ids.len())
}

fn main() {}

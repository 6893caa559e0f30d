use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>")]
async fn pay<T>(id: T) -> Result<T, Error> {
    Ok(id)
}

fn main() {}

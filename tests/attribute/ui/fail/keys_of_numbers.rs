use distlock::{Error, distributed_lock};

#[distributed_lock(keys = ids.iter())]
async fn pay(ids: &[u64]) -> Result<(), Error> {
    Ok(())
}

fn main() {}

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay:<id>", wait = "unlimited", lease = "unlimited")]
async fn pay(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = pay(1);
}

//! One error, because the expansion names the crate in one place.

use distlock::distributed_lock;

#[distributed_lock(
    key = "pay:<id>",
    wait = "5s",
    lease = "20s",
    mode = "write",
    condition = id > 0,
    on_busy = |_| Ok(()),
    crate = locks
)]
async fn pay(id: u64) -> Result<(), distlock::Error> {
    Ok(())
}

fn main() {}

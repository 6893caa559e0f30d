#![deny(warnings, clippy::pedantic)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "<id>", on_unavailable = "run")]
pub async fn quoted(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "<id>", wait = "1s", on_unavailable = run, on_busy = |_| 0, on_error = |_| 1)]
pub async fn bare(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "<id>", on_unavailable = fail)]
pub async fn default(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {
    let _future = quoted(1);
    let _future = bare(1);
    let _future = default(1);
}

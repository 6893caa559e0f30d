use distlock::{Error, distributed_lock};

use std::future::Future;

// Code before the block would run, and could return, without the lock.
#[distributed_lock(key = "pay:<id>")]
fn pay(id: u64) -> impl Future<Output = Result<u64, Error>> {
    let next = id + 1;
    async move { Ok(next) }
}

fn main() {}

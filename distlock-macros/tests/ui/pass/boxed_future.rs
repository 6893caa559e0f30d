#![deny(warnings, clippy::pedantic)]

use std::future::Future;
use std::pin::Pin;

use distlock::{Error, distributed_lock};

// What one writes for a future that must be `Send`, and for recursion.
#[distributed_lock(key = "pay:<id>")]
pub fn pay(id: u64) -> impl Future<Output = Result<u64, Error>> + Send {
    async move { Ok(id) }
}

#[distributed_lock(key = "tree:<depth>")]
pub fn walk(depth: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            return Ok(0);
        }
        Ok(walk(depth - 1).await? + 1)
    })
}

#[distributed_lock(key = "list:<depth>")]
pub async fn count(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(Box::pin(count(depth - 1)).await? + 1)
}

fn main() {
    let _future = pay(1);
    let _future = walk(1);
    let _future = count(1);
}

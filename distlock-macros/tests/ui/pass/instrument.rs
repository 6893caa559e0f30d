#![deny(warnings, clippy::pedantic)]

use distlock::{Error, distributed_lock};

#[tracing::instrument(skip(secret), err)]
#[distributed_lock(key = "<id>")]
pub async fn above(id: u64, secret: &str) -> Result<usize, Error> {
    Ok(secret.len())
}

#[distributed_lock(key = "<id>")]
#[tracing::instrument(skip_all, fields(id))]
pub async fn below(id: u64, secret: &str) -> Result<usize, Error> {
    Ok(secret.len())
}

fn main() {
    let _future = above(1, "a");
    let _future = below(1, "a");
}

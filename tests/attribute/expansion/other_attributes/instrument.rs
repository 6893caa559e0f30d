use distlock::{Error, distributed_lock};

use super::ok;

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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(above(1, "ab")).await, 2);
    assert_eq!(ok(below(1, "ab")).await, 2);
}

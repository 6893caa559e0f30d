use distlock::{Error, distributed_lock};

use super::{ok, run};

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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(quoted(1)).await, 1);
    assert_eq!(run(bare(1)).await, 1);
    assert_eq!(ok(default(1)).await, 1);
}

use std::time::Duration;

use distlock::{Error, distributed_lock};

use super::ok;

const HOUR: Duration = Duration::from_secs(3600);

#[distributed_lock(key = "nightly", wait = 0, hold_at_least = "10m", lease = "1h", on_busy = |_| Ok(false))]
pub async fn nightly() -> Result<bool, Error> {
    Ok(true)
}

#[distributed_lock(keys = ["a", "b"], hold_at_least = HOUR / 2, lease = HOUR)]
pub async fn computed() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", hold_at_least = 0, mode = "read")]
pub async fn none() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn runs() {
    assert!(ok(nightly()).await);
    ok(computed()).await;
    ok(none()).await;
}

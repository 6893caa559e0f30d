//! How long a request waits for its lock and holds it.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::ServiceLockLayer;
use crate::lock_setters::lock_setters;

lock_setters! {
    ServiceLockLayer, "ServiceLockLayer::new(&client, |_: &u32| \"sweep\")";
    runs: "inner service";
    refused:
        "fails with [`Error::Timeout`](distlock::Error::Timeout)",
        "fails with [`Error::Lost`](distlock::Error::Lost)",
        "fails with [`Error::Overloaded`](distlock::Error::Overloaded)",
        "fails with [`LockError::TooManyPending`](super::LockError::TooManyPending)",
        "fails with [`Error::Unavailable`](distlock::Error::Unavailable)";
    body: "";
    call_site: "the call of [`new`](Self::new)", "ServiceLockLayer<u32>"
}

//! Tests of `#[distributed_lock]`: what an annotated function does at run time, what each option changes (`options`), which
//! functions the attribute accepts (`expansion`), and how each mistake is reported (`mistakes`).

mod client;
// Public, because lints such as `missing_docs` look at public items only.
pub mod expansion;
mod functions;
mod handlers;
mod loss;
mod mistakes;
mod options;
mod reentry;
mod release;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error, LockSource, Quorum, distributed_lock, inherit, with_client};
use tokio::time::{Instant, sleep, timeout};

const MEMORY: &str = "the memory backend answers";
const LONG: Duration = Duration::from_secs(600);

/// Whether `key` is locked.
async fn held(client: &Client, key: &str) -> bool {
    client.lock(key).is_locked().await.expect(MEMORY)
}

/// The output of a future that must end within [`LONG`]. Needs paused time.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LONG, future).await.expect("the future ends")
}

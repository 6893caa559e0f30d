//! The harness under test: each tool does what it says, and each check can fail.

mod leaks;
mod process;
mod proxy;
mod server;
mod waiting;

use std::any::Any;
use std::time::Duration;

use tokio::task::JoinError;

/// Ample for anything that should happen at once.
const SOON: Duration = Duration::from_secs(5);

/// For what should not happen: long beside a round trip, short for a test.
const BRIEF: Duration = Duration::from_millis(100);

/// The text of a panic that a task ended with.
fn panic_text(error: JoinError) -> String {
    let payload: Box<dyn Any + Send> = error.into_panic();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .unwrap()
}

/// Runs what should panic, and gives the text.
async fn panics<T: Send + 'static>(what: impl Future<Output = T> + Send + 'static) -> String {
    panic_text(tokio::spawn(what).await.err().expect("a panic"))
}

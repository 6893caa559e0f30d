//! Explores in which order the tasks of a program may run, on the code that ships.
//!
//! The explorer `shuttle` runs a scenario again and again in one thread. At each use of something from the room `sync` it decides which
//! task goes on, by a seed. `.ci/run interleavings` runs all scenarios; CONTRIBUTING.md says how to play one again.
//!
//! Time stands still while any task can go on. If none can, it moves to the next timer, up to the `patience` of the scenario. A
//! scenario without patience thus finds each wake-up that is lost, also where a later look would have helped.
//!
//! `mistakes` has each scenario find the mistakes that a lock library could contain.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod ends;
mod explorer;
mod hand_over;
mod holds;
mod keys;
mod messages;
mod mistakes;
mod numbers;
mod outages;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scopeguard::defer;
use shuttle::future::{JoinHandle, spawn, yield_now};

pub(crate) use self::explorer::explore;
use crate::acquire::Acquire;
use crate::backend::memory::MemoryServer;
use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;

/// Every wake-up comes without a timer.
const NONE: Duration = Duration::ZERO;

/// For scenarios with several clients, which let each other pass. Less than the time after which a waiter looks without a message.
const TURNS: Duration = Duration::from_secs(1);

/// What a lock guards. Finds owners beside each other.
#[derive(Clone, Debug, Default)]
struct Inside {
    writers: Arc<AtomicU32>,
    readers: Arc<AtomicU32>,
}

impl Inside {
    /// One owner is inside, alone.
    async fn write(&self) {
        let before = self.writers.fetch_add(1, Ordering::SeqCst);
        defer! {
            self.writers.fetch_sub(1, Ordering::SeqCst);
        }
        let readers = self.readers.load(Ordering::SeqCst);
        assert!(
            before == 0 && readers == 0,
            "{before} owners and {readers} readers are inside"
        );
        yield_now().await;
    }

    /// One reader is inside, with others.
    async fn read(&self) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        defer! {
            self.readers.fetch_sub(1, Ordering::SeqCst);
        }
        let writers = self.writers.load(Ordering::SeqCst);
        assert_eq!(writers, 0, "a writer is inside beside a reader");
        yield_now().await;
    }
}

/// Clients of a server. `FLAW` names a mistake that all of them make.
fn clients<const N: usize>(server: &MemoryServer) -> [Client; N] {
    std::array::from_fn(|_| {
        let builder = mistakes::with_flaw(Client::builder());
        builder.in_memory(server).unwrap()
    })
}

/// An acquisition that may be left unpolled.
fn left_alone(acquire: Acquire) -> Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>> {
    let waiter = acquire.into_future();
    mistakes::around_waiter(waiter)
}

/// Acquires, is inside, and releases.
async fn visit(acquire: Acquire, inside: Inside) {
    let guard = acquire.await.unwrap();
    inside.write().await;
    guard.release().await.unwrap();
}

/// Acquires, is inside, and drops the guard, so that the release goes on in the background.
async fn visit_and_drop(acquire: Acquire, inside: Inside) {
    let guard = acquire.await.unwrap();
    inside.write().await;
    drop(guard);
}

async fn all(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// Nothing is left of anybody: each key is free, and the client holds nothing.
async fn nothing_is_left(client: &Client, server: &MemoryServer) {
    client.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(server.locked_keys(), Vec::<String>::new());
    let snapshot = client.snapshot();
    assert!(
        snapshot.holds.is_empty() && snapshot.waits.is_empty(),
        "{snapshot:?}"
    );
}

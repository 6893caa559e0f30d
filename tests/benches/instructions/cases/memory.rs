//! One task acquires and releases a key in memory. A map of mutexes does the least that a lock for each key needs: it knows no
//! leases, owners, watchdogs, hand-overs or re-entries.

use std::collections::HashMap;
use std::sync::Arc;

use distlock::Client;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::cases::pairs_of;
use crate::parts::{Parts, Side};

const ROUNDS: usize = 25;
const PAIRS: [usize; 2] = [5, 25];

pub(super) async fn run(parts: &mut Parts) {
    let lock = Client::in_memory().lock("ours:0");
    // The first pair starts the tasks of the client.
    pairs_of(&lock, 1).await;
    let mutexes: Mutex<HashMap<String, Arc<AsyncMutex<()>>>> = Mutex::default();
    let key = String::from("theirs:0");
    for _ in 0..ROUNDS {
        for pairs in PAIRS {
            parts
                .count(Side::Library, pairs, pairs_of(&lock, pairs))
                .await;
            let theirs = async {
                for _ in 0..pairs {
                    let mutex = Arc::clone(mutexes.lock().entry(key.clone()).or_default());
                    drop(mutex.lock().await);
                    mutexes.lock().remove(&key);
                }
            };
            parts.count(Side::Bare, pairs, theirs).await;
        }
    }
}

//! How four clients share a key that is hot in all of them, with sections of a millisecond.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Client};
use distlock_tests::RedisServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::jain;

const CLIENTS: usize = 4;
const TASKS: usize = 8;
const SECTION: Duration = Duration::from_millis(1);
const RUN: Duration = Duration::from_secs(10);

pub(crate) async fn hot_key(server: &RedisServer) {
    let lock: fn(&Client) -> Acquire = |client| client.lock("shared").acquire();
    let write: fn(&Client) -> Acquire = |client| client.rw_lock("shared:rw").write().acquire();
    for (what, acquire) in [("lock", lock), ("write lock", write)] {
        let served = Arc::new(Mutex::new(([0.0; CLIENTS], Duration::ZERO)));
        let mut tasks = JoinSet::new();
        for at in 0..CLIENTS {
            let client = Client::connect(&server.url()).await.unwrap();
            for _ in 0..TASKS {
                tasks.spawn(hammer(client.clone(), acquire, at, Arc::clone(&served)));
            }
        }
        tasks.join_all().await;
        let (grants, longest) = *served.lock();
        // One grant of each task.
        let turn = RUN.as_secs_f64() * (CLIENTS * TASKS) as f64 / grants.iter().sum::<f64>();
        println!(
            "four clients on one hot {what}: Jain index {:.2}, longest wait {:.1} mean turns  goal over 0.95, at most 4",
            jain(&grants),
            longest.as_secs_f64() / turn,
        );
    }
}

async fn hammer(
    client: Client,
    acquire: fn(&Client) -> Acquire,
    at: usize,
    served: Arc<Mutex<([f64; CLIENTS], Duration)>>,
) {
    let start = Instant::now();
    while start.elapsed() < RUN {
        let asked = Instant::now();
        let guard = acquire(&client).await.unwrap();
        {
            let mut served = served.lock();
            served.0[at] += 1.0;
            served.1 = served.1.max(asked.elapsed());
        }
        tokio::time::sleep(SECTION).await;
        guard.release().await.unwrap();
    }
}

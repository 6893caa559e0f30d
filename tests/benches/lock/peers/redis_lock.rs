//! The crate `redis-lock`, which is built on an older version of `redis`.

use std::sync::Arc;
use std::time::Duration;

use redis_0_27::aio::MultiplexedConnection;
use redis_lock::{LockAcrossOptions, MultiResourceLock, lock_across};
use tokio::sync::Mutex;

use super::{LEASE, RETRY};

const NO_LIMIT: Duration = Duration::from_secs(3_600);

/// One key at a time.
pub(crate) struct RedisLock {
    connections: [Arc<Mutex<MultiplexedConnection>>; 1],
}

/// All clones send over the same connection, but each has a mutex for itself, so that tasks do not wait for each other's
/// answers.
impl Clone for RedisLock {
    fn clone(&self) -> Self {
        let [connection] = &self.connections;
        let connection = connection.try_lock().unwrap().clone();
        Self {
            connections: [Arc::new(Mutex::new(connection))],
        }
    }
}

impl RedisLock {
    pub(crate) async fn new(url: &str) -> Self {
        let client = redis_0_27::Client::open(url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self {
            connections: [Arc::new(Mutex::new(connection))],
        }
    }

    /// Takes the key, runs `inside` and frees the key.
    pub(crate) async fn enter(&self, key: &str, inside: impl Future<Output = ()> + 'static) {
        let options = LockAcrossOptions {
            ttl: LEASE,
            retry: RETRY,
            duration: NO_LIMIT,
        };
        lock_across(&self.connections, key, inside, options)
            .await
            .unwrap();
    }
}

/// Several keys at once. The crate opens a connection for each acquisition and for each release.
#[derive(Clone)]
pub(crate) struct RedisMultiLock {
    client: redis_0_27::Client,
}

impl RedisMultiLock {
    /// Loads the functions that the crate calls into the server.
    pub(crate) async fn new(url: &str) -> Self {
        let client = redis_0_27::Client::open(url).unwrap();
        redis_lock::setup(&client).await.unwrap();
        Self { client }
    }

    pub(crate) async fn pair(&self, keys: &[String]) {
        let mut lock = MultiResourceLock::new(self.client.clone()).unwrap();
        let acquired = lock.acquire(keys, LEASE, NO_LIMIT, RETRY).await;
        let id = acquired.unwrap().unwrap();
        lock.release(&id).await.unwrap();
    }
}

//! The commands that the library sends, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use distlock_tests::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script, Value};

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!(
            "../../../distlock/src/backend/redis/scripts/",
            $file
        ))
    };
}

pub(crate) const ACQUIRE: &str = script!("lock_acquire.lua");
const RELEASE: &str = script!("lock_release.lua");
const ACQUIRE_ALL: &str = script!("lock_acquire_all.lua");
const RELEASE_ALL: &str = script!("lock_release_all.lua");

/// The library's scripts for plain locks, bare.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
    acquire_all: Arc<str>,
    release_all: Arc<str>,
}

impl Bare {
    pub(crate) async fn new(server: &RedisServer) -> Self {
        // Room in the driver's queue and a response timeout as the library has them.
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(1024)
            .set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.unwrap();
        for source in [ACQUIRE, RELEASE, ACQUIRE_ALL, RELEASE_ALL] {
            let _: String = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
        Self {
            connection,
            acquire: Script::new(ACQUIRE).get_hash().into(),
            release: Script::new(RELEASE).get_hash().into(),
            acquire_all: Script::new(ACQUIRE_ALL).get_hash().into(),
            release_all: Script::new(RELEASE_ALL).get_hash().into(),
        }
    }

    pub(crate) async fn acquire(&mut self, key: &str, owner: &str) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&*self.acquire)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(30_000);
        call.query_async(&mut self.connection).await.unwrap()
    }

    pub(crate) async fn release(&mut self, key: &str, owner: &str, channel: &str) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&*self.release)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(channel);
        call.query_async(&mut self.connection).await.unwrap()
    }

    pub(crate) async fn pair(&mut self, key: &str, owner: &str, channel: &str) {
        assert_eq!(self.acquire(key, owner).await, Value::Nil);
        assert_eq!(self.release(key, owner, channel).await, Value::Int(0));
    }

    /// The pair for several keys, of which each has a name, an owner and a channel.
    pub(crate) async fn pair_of_all(&mut self, all: &[(String, String, String)]) {
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&*self.acquire_all).arg(all.len());
        let mut release = redis::cmd("EVALSHA");
        release.arg(&*self.release_all).arg(all.len());
        for (key, _, _) in all {
            acquire.arg(key);
            release.arg(key);
        }
        for (_, owner, channel) in all {
            acquire.arg(owner).arg(30_000);
            release.arg(owner).arg(channel);
        }
        let acquired: Value = acquire.query_async(&mut self.connection).await.unwrap();
        assert_eq!(acquired, Value::Nil);
        let released: Vec<i64> = release.query_async(&mut self.connection).await.unwrap();
        assert!(released.iter().all(|heard| *heard == 0));
    }

    /// One round trip, after all that was sent before.
    pub(crate) async fn ping(&mut self) {
        let ping = redis::cmd("PING");
        let _: Value = ping.query_async(&mut self.connection).await.unwrap();
    }
}

/// Names as long as the library's own.
pub(crate) fn names(n: usize) -> (String, String, String) {
    let key = format!("bare:{n}");
    let channel = format!("redisson_lock__channel:{{{key}}}");
    (
        key,
        format!("0ddad9e6-60bc-45a5-8797-1987353a9077:{n}"),
        channel,
    )
}

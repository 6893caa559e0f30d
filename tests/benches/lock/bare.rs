//! The commands that the library sends, and nothing else.

use std::sync::Arc;
use std::time::Duration;

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

pub(crate) const ACQUIRE: &str = concat!(
    script!("held.lua"),
    script!("acquire.lua"),
    script!("lock_acquire.lua")
);
const RELEASE: &str = concat!(
    script!("publish.lua"),
    script!("release.lua"),
    script!("lock_release.lua")
);
const ACQUIRE_ALL: &str = concat!(script!("held.lua"), script!("lock_acquire_all.lua"));
const RELEASE_ALL: &str = concat!(script!("publish.lua"), script!("lock_release_all.lua"));
const READ_ACQUIRE: &str = concat!(
    script!("owner.lua"),
    script!("rw_lock.lua"),
    script!("rw_read_acquire.lua")
);
const READ_RELEASE: &str = concat!(
    script!("publish.lua"),
    script!("owner.lua"),
    script!("rw_lock.lua"),
    script!("rw_readers.lua"),
    script!("rw_read_release.lua")
);

/// The library's scripts for plain locks, bare.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
    acquire_all: Arc<str>,
    release_all: Arc<str>,
    read_acquire: Arc<str>,
    read_release: Arc<str>,
}

/// A key, its owner and the channel on which its release is published.
pub(crate) type Names = (String, String, String);

impl Bare {
    pub(crate) async fn new(url: &str) -> Self {
        // Room in the driver's queue and a response timeout as the library has them.
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(1024)
            .set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(format!("{url}?protocol=resp3")).unwrap();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.unwrap();
        for source in [
            ACQUIRE,
            RELEASE,
            ACQUIRE_ALL,
            RELEASE_ALL,
            READ_ACQUIRE,
            READ_RELEASE,
        ] {
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
            read_acquire: Script::new(READ_ACQUIRE).get_hash().into(),
            read_release: Script::new(READ_RELEASE).get_hash().into(),
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

    pub(crate) async fn pair(&mut self, (key, owner, channel): &Names) {
        assert_eq!(self.acquire(key, owner).await, Value::Nil);
        assert_eq!(self.release(key, owner, channel).await, Value::Int(0));
    }

    /// Frees the key and takes it again, without waiting for the first answer in between.
    pub(crate) async fn release_and_acquire(&mut self, (key, owner, channel): &Names) {
        let mut first = self.clone();
        // `join` polls its futures in this order, so the release is sent first.
        let (_, acquired) = tokio::join!(
            biased;
            first.release(key, owner, channel),
            self.acquire(key, owner)
        );
        assert_eq!(acquired, Value::Nil);
    }

    /// The pair of a reader. All readers of a key have the same key and owners of their own.
    pub(crate) async fn reader(&mut self, key: &str, owner: &str) {
        let stem = format!("{{{key}}}:");
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&*self.read_acquire).arg(3).arg(key);
        acquire.arg(format!("{stem}rwlock_turn"));
        acquire.arg(format!("{stem}rwlock_readers_wait"));
        acquire.arg(owner).arg(30_000).arg(&stem).arg("").arg(5_000);
        let acquired: Value = acquire.query_async(&mut self.connection).await.unwrap();
        assert_eq!(acquired, Value::Nil);
        let mut release = redis::cmd("EVALSHA");
        release.arg(&*self.read_release).arg(1).arg(key).arg(owner);
        release.arg(&stem).arg(format!("redisson_rwlock:{{{key}}}"));
        let released: i64 = release.query_async(&mut self.connection).await.unwrap();
        assert!(released >= 0);
    }

    /// The pair for several keys, of which each has a name, an owner and a channel.
    pub(crate) async fn pair_of_all(&mut self, all: &[Names]) {
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
}

/// Names as long as the library's own.
pub(crate) fn names(n: usize) -> Names {
    let key = format!("bare:{n}");
    let channel = format!("redisson_lock__channel:{{{key}}}");
    (
        key,
        format!("0ddad9e6-60bc-45a5-8797-1987353a9077:{n}"),
        channel,
    )
}

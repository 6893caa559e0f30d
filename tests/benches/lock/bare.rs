//! The commands that the library sends, and nothing else.

use std::sync::Arc;

use distlock_bench::bare::{
    self, ACQUIRE, ACQUIRE_ALL, LEASE, READ_ACQUIRE, READ_RELEASE, RELEASE, RELEASE_ALL, STEM,
    digest,
};
use redis::Value;
use redis::aio::MultiplexedConnection;

/// The library's scripts for plain locks, sent without the library.
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
        let scripts = [
            ACQUIRE,
            RELEASE,
            ACQUIRE_ALL,
            RELEASE_ALL,
            READ_ACQUIRE,
            READ_RELEASE,
        ];
        let connection = bare::connect(url, &scripts).await;
        Self {
            connection,
            acquire: digest(ACQUIRE).into(),
            release: digest(RELEASE).into(),
            acquire_all: digest(ACQUIRE_ALL).into(),
            release_all: digest(RELEASE_ALL).into(),
            read_acquire: digest(READ_ACQUIRE).into(),
            read_release: digest(READ_RELEASE).into(),
        }
    }

    pub(crate) async fn acquire(&mut self, key: &str, owner: &str) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&*self.acquire)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(LEASE);
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

    /// The pair of a reader. All readers use the same key, and each has another owner.
    pub(crate) async fn reader(&mut self, key: &str, owner: &str) {
        let stem = format!("{{{key}}}:");
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&*self.read_acquire).arg(3).arg(key);
        acquire.arg(format!("{stem}rwlock_turn"));
        acquire.arg(format!("{stem}rwlock_readers_wait"));
        acquire.arg(owner).arg(LEASE).arg(&stem).arg("").arg(5_000);
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
            acquire.arg(owner).arg(LEASE);
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
    let channel = bare::channel(&key);
    (key, format!("{STEM}{n}"), channel)
}

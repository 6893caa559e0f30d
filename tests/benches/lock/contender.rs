//! The sides of a row that take and free one key: the library, its bare commands and the other crates.

use distlock::{Client, Lock};
use distlock_tests::RedisServer;

use crate::bare::{Bare, Names, names};
use crate::peers::{RedisLock, Rslock};

/// One side, with its connections.
#[derive(Clone)]
pub(crate) enum Contender {
    Ours(Client),
    Bare(Bare),
    Rslock(Rslock),
    RedisLock(RedisLock),
}

/// One key of a side, ready to be taken.
#[derive(Clone)]
pub(crate) enum Entry {
    Ours(Lock),
    Bare(Bare, Names),
    Rslock(Rslock, String),
    RedisLock(RedisLock, String),
}

impl Contender {
    /// All four, in the order of [`crate::report`].
    pub(crate) async fn all(server: &RedisServer) -> Vec<Self> {
        let url = server.url();
        let mut sides = Self::without_peers(server).await;
        sides.push(Self::Rslock(Rslock::new(&url)));
        sides.push(Self::RedisLock(RedisLock::new(&url).await));
        sides
    }

    /// The library and its bare commands.
    pub(crate) async fn without_peers(server: &RedisServer) -> Vec<Self> {
        let client = Client::connect(&server.url()).await.unwrap();
        vec![
            Self::Ours(client),
            Self::Bare(Bare::new(&server.url()).await),
        ]
    }

    /// Where this side stands in [`Contender::all`].
    pub(crate) fn place(&self) -> usize {
        match self {
            Self::Ours(_) => 0,
            Self::Bare(_) => 1,
            Self::Rslock(_) => 2,
            Self::RedisLock(_) => 3,
        }
    }

    /// The `n`th key. No two sides share a key.
    pub(crate) fn entry(&self, n: usize) -> Entry {
        match self {
            Self::Ours(client) => Entry::Ours(client.lock(format!("ours:{n}"))),
            Self::Bare(bare) => Entry::Bare(bare.clone(), names(n)),
            Self::Rslock(rslock) => Entry::Rslock(rslock.clone(), format!("rslock:{n}")),
            Self::RedisLock(redis_lock) => {
                Entry::RedisLock(redis_lock.clone(), format!("redis-lock:{n}"))
            }
        }
    }
}

impl Entry {
    /// Takes the key and frees it.
    pub(crate) async fn pair(&mut self) {
        match self {
            Self::Ours(lock) => lock.acquire().await.unwrap().release().await.unwrap(),
            Self::Bare(bare, names) => bare.pair(names).await,
            Self::Rslock(rslock, key) => rslock.enter(key, async {}).await,
            Self::RedisLock(redis_lock, key) => redis_lock.enter(key, async {}).await,
        }
    }
}

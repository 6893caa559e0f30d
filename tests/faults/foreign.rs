//! Holds of an owner that no client here knows, many keys at a time: what another program leaves in the server.

use distlock_tests::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};

const OWNER: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";

/// Longer than any test, so that no lease end lets a waiter in.
const LEASE_MS: u64 = 600_000;

/// Another program on the same server.
pub(crate) struct Foreign {
    connection: MultiplexedConnection,
}

impl Foreign {
    pub(crate) async fn on(server: &RedisServer) -> Self {
        Self {
            connection: server.connection().await,
        }
    }

    /// Takes keys.
    pub(crate) async fn hold(&mut self, keys: &[String]) {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.hset(key, OWNER, 1).ignore();
            pipe.cmd("PEXPIRE").arg(key).arg(LEASE_MS).ignore();
        }
        pipe.exec_async(&mut self.connection).await.unwrap();
    }

    /// Frees keys and says so; how many listeners heard of each.
    pub(crate) async fn free(&mut self, keys: &[String]) -> Vec<u64> {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.del(key).ignore();
            pipe.publish(channel(key), "0");
        }
        pipe.query_async(&mut self.connection).await.unwrap()
    }

    /// Says something on the channels of keys; how many listeners heard it, all together.
    pub(crate) async fn say(&mut self, keys: &[&str], payload: &[u8]) -> u64 {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.publish(channel(key), payload);
        }
        let heard: Vec<u64> = pipe.query_async(&mut self.connection).await.unwrap();
        heard.iter().sum()
    }

    /// Sends any command over its connection, which is older than the faults of the server.
    pub(crate) async fn send(&mut self, words: &[&str]) {
        self.ask::<redis::Value>(words).await.unwrap();
    }

    /// As [`send`](Foreign::send), with the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut self.connection).await
    }
}

pub(crate) fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// `of:0`, `of:1` ..
pub(crate) fn names(of: impl std::fmt::Display, keys: usize) -> Vec<String> {
    (0..keys).map(|n| format!("{of}:{n}")).collect()
}

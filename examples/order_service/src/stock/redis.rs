//! The stock in Redis, which several processes share.

use std::time::Duration;

use redis::AsyncCommands;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::Failure;

/// If all processes of a shop have crashed, it starts with a full stock again after this time.
const STALE: Duration = Duration::from_secs(15);

/// The driver gives up after half a second. A busy machine may take longer, and then nobody knows whether a write was made.
const ANSWER: Duration = Duration::from_secs(10);

/// How many processes sell.
const PROCESSES: &str = "shop:processes";

#[derive(Clone)]
pub(crate) struct RedisStock {
    connection: MultiplexedConnection,
}

impl RedisStock {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = redis::Client::open(url)?;
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(
                    &AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER)),
                )
                .await?,
        })
    }

    /// Adds a process to those that sell, and returns whether it is the first one.
    pub(super) async fn join(&self) -> Result<bool, Failure> {
        let is_first = self.add(PROCESSES, 1).await? == 1;
        self.stay_open().await?;
        Ok(is_first)
    }

    /// Keeps the shop open for as long as [`STALE`].
    pub(super) async fn stay_open(&self) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        let _: bool = connection
            .pexpire(PROCESSES, i64::try_from(STALE.as_millis())?)
            .await?;
        Ok(())
    }

    /// Removes a process from those that sell.
    pub(super) async fn leave(&self) -> Result<(), Failure> {
        if self.add(PROCESSES, -1).await? <= 0 {
            self.delete(PROCESSES).await?;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Failure> {
        let _: i64 = self.connection.clone().del(key).await?;
        Ok(())
    }

    /// Adds a text to a list.
    pub(super) async fn push(&self, key: &str, text: &str) -> Result<(), Failure> {
        let _: i64 = self.connection.clone().rpush(key, text).await?;
        Ok(())
    }

    pub(super) async fn all(&self, key: &str) -> Result<Vec<String>, Failure> {
        Ok(self.connection.clone().lrange(key, 0, -1).await?)
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<i64>, Failure> {
        Ok(self.connection.clone().get(key).await?)
    }

    pub(super) async fn set(&self, key: &str, number: i64) -> Result<(), Failure> {
        Ok(self.connection.clone().set(key, number).await?)
    }

    pub(super) async fn add(&self, key: &str, by: i64) -> Result<i64, Failure> {
        Ok(self.connection.clone().incr(key, by).await?)
    }
}

//! The stock in Redis, which several processes share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};

use crate::Failure;

/// If all processes of a shop have crashed, it starts with a full stock again after this time.
const STALE: Duration = Duration::from_secs(15);

/// The driver gives up after half a second. A busy machine may take longer, and then nobody knows whether a write was made.
const ANSWER: Duration = Duration::from_secs(10);

/// How many processes sell.
const PROCESSES: &str = "shop:processes";

#[derive(Clone)]
pub(crate) struct RedisStock {
    client: Client,
    /// `None` after it has failed: the next command makes a new one, so that the shop goes on when an outage is over.
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
}

impl RedisStock {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let stock = Self {
            client: Client::open(url)?,
            connection: Arc::default(),
        };
        stock.connection().await?;
        Ok(stock)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Failure> {
        if let Some(connection) = self.connection.lock().clone() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = connecting.await?;
        *self.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, Failure> {
        let mut connection = self.connection().await?;
        let answered = command.query_async(&mut connection).await;
        if answered
            .as_ref()
            .is_err_and(redis::RedisError::is_unrecoverable_error)
        {
            *self.connection.lock() = None;
        }
        Ok(answered?)
    }

    /// Adds a process to those that sell, and returns whether it is the first one.
    pub(super) async fn join(&self) -> Result<bool, Failure> {
        let is_first = self.add(PROCESSES, 1).await? == 1;
        self.stay_open().await?;
        Ok(is_first)
    }

    /// Keeps the shop open for as long as [`STALE`].
    pub(super) async fn stay_open(&self) -> Result<(), Failure> {
        let stale = i64::try_from(STALE.as_millis())?;
        let _: bool = self.ask(Cmd::pexpire(PROCESSES, stale)).await?;
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
        let _: i64 = self.ask(Cmd::del(key)).await?;
        Ok(())
    }

    /// Adds a text to a list.
    pub(super) async fn push(&self, key: &str, text: &str) -> Result<(), Failure> {
        let _: i64 = self.ask(Cmd::rpush(key, text)).await?;
        Ok(())
    }

    pub(super) async fn all(&self, key: &str) -> Result<Vec<String>, Failure> {
        self.ask(Cmd::lrange(key, 0, -1)).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<i64>, Failure> {
        self.ask(Cmd::get(key)).await
    }

    pub(super) async fn set(&self, key: &str, number: i64) -> Result<(), Failure> {
        self.ask(Cmd::set(key, number)).await
    }

    pub(super) async fn add(&self, key: &str, by: i64) -> Result<i64, Failure> {
        self.ask(Cmd::incr(key, by)).await
    }
}

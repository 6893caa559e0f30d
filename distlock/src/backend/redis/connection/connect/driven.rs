//! A connection of the driver, with the task that drives it.

use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, ToRedisArgs, Value};
use tokio::task::JoinHandle;

use crate::sync::task::boxed;

/// A connection of the driver. Its task ends with the last clone, also if the server reads nothing more.
#[derive(Clone)]
pub(crate) struct Driven {
    connection: MultiplexedConnection,
    _task: Arc<Task>,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driven {
    /// Drives the connection in a separate task.
    pub(crate) fn new(
        connection: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let _task = Arc::new(Task(tokio::spawn(boxed(driver))));
        Self { connection, _task }
    }

    /// Sends one command. By the methods of a [`Cmd`] the driver has a box for each command.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let answer = self.connection.send_packed_command(command).await?;
        answer.extract_error()
    }

    pub(crate) async fn subscribe(&mut self, channels: impl ToRedisArgs) -> RedisResult<()> {
        self.connection.subscribe(channels).await
    }

    /// Ends subscriptions to channels.
    pub(crate) async fn unsubscribe(&mut self, channels: impl ToRedisArgs) -> RedisResult<()> {
        self.connection.unsubscribe(channels).await
    }
}

impl ConnectionLike for Driven {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

//! Signs of life over a connection.

use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::{sleep, timeout};

use crate::backend::redis::connection::connect::Driven;

/// The signs of life that a connection asks for, so that nobody between here and the server forgets it, and so that its silent
/// end is found before somebody needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pings {
    /// The time between two of them; zero if there are none.
    pub(crate) every: Duration,
    /// How long the server may take for the answer.
    pub(crate) patience: Duration,
}

impl Pings {
    /// Asks for a sign of life over a connection now and then, until there is none. `heard` learns whether it came in time.
    pub(super) async fn ask(self, connection: impl Fn() -> Option<Driven>, heard: impl Fn(bool)) {
        if self.every.is_zero() {
            std::future::pending::<()>().await;
        }
        let mut pause = self.every;
        loop {
            // The connection is not held during the pause, so that the link can be dropped.
            sleep(pause).await;
            let Some(mut connection) = connection() else {
                return;
            };
            let ping = cmd("PING");
            let answer = ping.query_async::<Value>(&mut connection);
            // An error is an answer as well. The driver itself reports the end of a connection.
            let is_in_time = timeout(self.patience, answer).await.is_ok();
            heard(is_in_time);
            // Again at once if it was late: two of them replace the connection.
            pause = if is_in_time {
                self.every
            } else {
                Duration::ZERO
            };
        }
    }
}

//! Whether tracking is on for the present connection to a server.

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::backend::Fault;
use crate::backend::redis::connection::Connected;
use crate::backend::redis::reply;
use crate::mutex::Mutex;
use crate::telemetry;

/// What is known of one server.
#[derive(Debug)]
pub(in crate::backend::redis) struct Switch {
    /// Whether the client wants it.
    is_wanted: bool,
    state: Mutex<State>,
}

/// State machine 8: tracking on one connection after the other, each with a higher number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing was tried over the present connection.
    #[default]
    Untried,
    /// The server has tracking on for this connection.
    On(u64),
    /// The server has refused it over this connection.
    Refused(u64),
}

/// What goes before a command that tracks what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// `CLIENT CACHING YES`.
    Caching,
    /// `CLIENT TRACKING ON`, and then `CLIENT CACHING YES`.
    TurnOn,
}

impl State {
    /// What goes before a command over this connection.
    fn before(&self, epoch: u64) -> Before {
        match self {
            Self::On(on) if *on == epoch => Before::Caching,
            Self::Refused(refused) if *refused == epoch => Before::Nothing,
            _ => Before::TurnOn,
        }
    }

    /// The server has answered what went before a command over this connection. Returns whether it refuses it for the first time.
    fn answered(&mut self, epoch: u64, answer: &Result<(), Fault>) -> bool {
        match answer {
            _ if self.epoch() > epoch => false,
            Ok(()) if *self != Self::Refused(epoch) => {
                *self = Self::On(epoch);
                false
            }
            // The server is busy, for example. It is asked again.
            Ok(()) | Err(Fault::NotNow(_) | Fault::Unknown(_)) => false,
            Err(_) => {
                let was_refused = matches!(self, Self::Refused(_));
                *self = Self::Refused(epoch);
                !was_refused
            }
        }
    }

    /// The connection that is spoken of.
    fn epoch(&self) -> u64 {
        match self {
            Self::Untried => 0,
            Self::On(epoch) | Self::Refused(epoch) => *epoch,
        }
    }
}

impl Switch {
    pub(in crate::backend::redis) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            state: Mutex::default(),
        }
    }

    pub(in crate::backend::redis) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Sends a command and has the server track the keys that it reads, if the server does so.
    pub(in crate::backend::redis) async fn send(
        &self,
        server: &str,
        command: Cmd,
        connected: &mut Connected,
    ) -> Result<Value, RedisError> {
        let epoch = connected.epoch;
        let connection = &mut connected.connection;
        let before = if self.is_wanted {
            self.state.lock().before(epoch)
        } else {
            Before::Nothing
        };
        if before == Before::Nothing {
            return command.query_async(connection).await;
        }
        let mut answers = in_one(before, command, connection).await?.into_iter();
        let turned_on = if before == Before::TurnOn {
            answers.next()
        } else {
            None
        };
        let caching = answers.next();
        let mut before = turned_on.into_iter().chain(caching);
        let before = before.try_for_each(|one| one.map(drop));
        let before = before.map_err(reply::fault);
        let is_refused = self.state.lock().answered(epoch, &before);
        if let (true, Err(fault)) = (is_refused, &before) {
            telemetry::tracking_refused(server, fault);
        }
        answers.next().unwrap_or(Ok(Value::Nil))
    }
}

/// Sends all in one pipeline: the server forgets the word after the next command, and other tasks send over this connection.
async fn in_one(
    before: Before,
    command: Cmd,
    connection: &mut impl ConnectionLike,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    if before == Before::TurnOn {
        pipeline
            .cmd("CLIENT")
            .arg("TRACKING")
            .arg("ON")
            .arg("OPTIN")
            .arg("NOLOOP");
    }
    pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
    pipeline.add_command(command);
    pipeline.query_async(connection).await
}

/// What has the server track for a connection, each command as its words.
pub(in crate::backend::redis) const COMMANDS: [&str; 2] =
    ["CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cause;

    #[test]
    fn tracking_is_turned_on_once_for_each_connection() {
        let mut state = State::default();
        assert_eq!(state.before(1), Before::TurnOn);
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(1), Before::Caching);
        assert_eq!(state.before(2), Before::TurnOn);
        assert!(!state.answered(2, &Ok(())));
        // A late answer over the connection before.
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(2), Before::Caching);
    }

    #[test]
    fn server_that_refuses_is_asked_again_over_another_connection_and_told_of_once() {
        let mut state = State::default();
        let refusal = || Err(Fault::Denied(cause("no right")));
        assert!(state.answered(1, &refusal()));
        assert!(!state.answered(1, &refusal()));
        assert_eq!(state.before(1), Before::Nothing);
        assert_eq!(state.before(2), Before::TurnOn);
        assert!(!state.answered(2, &refusal()), "told a second time");
        assert!(!state.answered(3, &Ok(())));
        assert_eq!(state.before(3), Before::Caching);
    }

    #[test]
    fn server_that_cannot_now_is_asked_again() {
        let mut state = State::default();
        assert!(!state.answered(1, &Err(Fault::NotNow(cause("busy")))));
        assert_eq!(state.before(1), Before::TurnOn);
    }

    #[test]
    fn right_that_is_withdrawn_ends_it() {
        let mut state = State::On(1);
        assert!(state.answered(1, &Err(Fault::Denied(cause("no right")))));
        // The answer to a command that was sent before.
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(1), Before::Nothing);
    }
}

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
pub(crate) struct Switch {
    /// Whether the client wants it.
    is_wanted: bool,
    state: Mutex<State>,
}

/// Whether a command has the server track the keys that it reads last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Track {
    No,
    /// It does more than that, and is sent to a server that does not track as well.
    Beside,
    /// It has no other use: a server that does not track is not sent it.
    Only,
}

/// State machine 8: tracking on one connection after the other, each with a higher number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    known: Known,
    /// The last connection over which the server was told to turn it on.
    tried: u64,
    /// Over how many connections in a row it was told so without any answer.
    unanswered: u32,
}

/// What is known of the present connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing was answered over it.
    #[default]
    Nothing,
    /// The server has tracking on for this connection.
    On(u64),
    /// The server has refused it over this connection, or is not asked for it.
    Refused(u64),
}

/// A server, or a proxy before it, may end a connection on which it is sent a command that it does not know. Then each renewal
/// of an old hold would fail, and the hold would be lost. So after this many connections without an answer the next one is
/// not asked; the one after that is.
const MOST_UNANSWERED: u32 = 3;

/// What goes before a command that tracks what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Nothing from now on: connections have ended when more was sent.
    GivenUp,
    /// `CLIENT CACHING YES`.
    Caching,
    /// `CLIENT TRACKING ON`, and then `CLIENT CACHING YES`.
    TurnOn,
}

impl State {
    /// What goes before a command that is sent now over this connection.
    fn before(&mut self, epoch: u64) -> Before {
        match self.known {
            Known::On(on) if on == epoch => return Before::Caching,
            Known::Refused(refused) if refused == epoch => return Before::Nothing,
            _ => {}
        }
        if self.tried != epoch {
            if self.unanswered >= MOST_UNANSWERED {
                self.unanswered = MOST_UNANSWERED - 1;
                self.known = Known::Refused(epoch);
                return Before::GivenUp;
            }
            self.tried = epoch;
            self.unanswered += 1;
        }
        Before::TurnOn
    }

    /// The server has answered what went before a command over this connection. Returns whether it refuses it for the first time.
    fn answered(&mut self, epoch: u64, answer: &Result<(), Fault>) -> bool {
        if epoch == self.tried {
            self.unanswered = 0;
        }
        match answer {
            _ if self.epoch() > epoch => false,
            Ok(()) if self.known != Known::Refused(epoch) => {
                self.known = Known::On(epoch);
                false
            }
            // The server is busy, for example. It is asked again.
            Ok(()) | Err(Fault::NotNow(_) | Fault::Unknown(_)) => false,
            Err(_) => {
                let was_refused = matches!(self.known, Known::Refused(_));
                self.known = Known::Refused(epoch);
                !was_refused
            }
        }
    }

    /// The connection that is spoken of.
    fn epoch(&self) -> u64 {
        match self.known {
            Known::Nothing => 0,
            Known::On(epoch) | Known::Refused(epoch) => epoch,
        }
    }
}

impl Switch {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            state: Mutex::default(),
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Whether the server does not track over this connection.
    pub(crate) fn is_refused(&self, epoch: u64) -> bool {
        self.state.lock().known == Known::Refused(epoch)
    }

    /// Sends a command and has the server track the keys that it reads, if the server does so.
    pub(crate) async fn send(
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
        if before == Before::GivenUp {
            telemetry::tracking_refused(server, &ENDED);
        }
        if matches!(before, Before::Nothing | Before::GivenUp) {
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

/// Why a server is not asked any more that has never answered.
const ENDED: &str =
    "several connections in a row have ended without an answer to `CLIENT TRACKING`";

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
pub(crate) const COMMANDS: [&str; 2] = ["CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cause;

    fn refusal() -> Result<(), Fault> {
        Err(Fault::Denied(cause("no right")))
    }

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
        assert!(state.answered(1, &refusal()));
        assert!(!state.answered(1, &refusal()));
        assert_eq!(state.before(1), Before::Nothing);
        assert_eq!(state.before(2), Before::TurnOn);
        assert!(!state.answered(2, &refusal()), "told a second time");
        assert_eq!(state.before(3), Before::TurnOn);
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
        let mut state = State::default();
        assert!(!state.answered(1, &Ok(())));
        assert!(state.answered(1, &refusal()));
        // The answer to a command that was sent before.
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(1), Before::Nothing);
    }

    #[test]
    fn server_that_ends_each_connection_on_which_it_is_asked_is_asked_on_every_second_one_at_last()
    {
        let mut state = State::default();
        for epoch in 1..=3 {
            assert_eq!(state.before(epoch), Before::TurnOn);
            // Another command beside it does not count.
            assert_eq!(state.before(epoch), Before::TurnOn);
        }
        assert_eq!(state.before(4), Before::GivenUp);
        assert_eq!(state.before(4), Before::Nothing);
        assert_eq!(state.before(5), Before::TurnOn);
        assert_eq!(state.before(6), Before::GivenUp);
        assert_eq!(state.before(7), Before::TurnOn);
        assert!(!state.answered(7, &Ok(())));
        for epoch in 8..=10 {
            assert_eq!(state.before(epoch), Before::TurnOn);
        }
        assert_eq!(state.before(11), Before::GivenUp);
    }
}

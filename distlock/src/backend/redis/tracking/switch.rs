//! Whether tracking is on for the present connection to a server.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::time::Instant;

use crate::backend::Fault;
use crate::backend::redis::connection::Connected;
use crate::backend::redis::reply;
use crate::config::{TRACK_SPARED, TRACK_SPARED_MOST};
use crate::sync::Mutex;
use crate::telemetry;

/// What is known of one server.
#[derive(Debug)]
pub(crate) struct Switch {
    /// Whether the client wants it.
    is_wanted: bool,
    state: Mutex<State>,
}

/// The keys that the server is to track beside a command.
#[derive(Clone, Copy)]
pub(crate) struct Track<'a> {
    /// The command that reads them.
    pub(crate) read: &'a Cmd,
    pub(crate) order: Order,
}

/// When the server begins to track keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before the command. That has no other use: a server that does not track is not sent it.
    Before,
    /// After the command, which ends the tracking. It is sent to a server that does not track as well.
    After,
}

/// State machine 8: tracking on one connection after the other, each with a higher number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    known: Known,
    /// The last connection over which the server was told to turn it on.
    tried: u64,
    /// Over how many connections in a row it was told so without any answer.
    unanswered: u32,
    /// For how long the next connection is spared that is not asked.
    spare: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self {
            known: Known::Nothing,
            tried: 0,
            unanswered: 0,
            spare: TRACK_SPARED,
        }
    }
}

/// What is known of the present connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing was answered over it.
    #[default]
    Nothing,
    /// The server has tracking on for this connection.
    On(u64),
    /// The server has refused it over this connection.
    Refused(u64),
    /// Other connections have ended when they were asked. This one is not asked before this time.
    Spared(u64, Instant),
}

/// A server, or a proxy before it, may end a connection on which it is sent a command that it does not know. Then each renewal
/// of an old hold would fail, and the hold would be lost. A server that is paused, or busy for long, looks the same. So after this many connections without an answer the next one is
/// not asked, until it has lasted for [`TRACK_SPARED`]; the one after that is. While no connection answers, this time doubles.
const MOST_UNANSWERED: u32 = 3;

/// What goes before a read that has the server track its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Nothing for some time: connections have ended when more was sent.
    GivenUp,
    /// `CLIENT CACHING YES`.
    Caching,
    /// `CLIENT TRACKING ON`, and then `CLIENT CACHING YES`.
    TurnOn,
}

impl State {
    /// What goes before a read that is sent now over this connection.
    fn before(&mut self, epoch: u64, now: Instant) -> Before {
        if self.known == Known::On(epoch) {
            return Before::Caching;
        }
        if self.is_refused(epoch, now) {
            return Before::Nothing;
        }
        if self.tried != epoch {
            if self.unanswered >= MOST_UNANSWERED {
                // One below: the next connection is asked again, and one more without an answer spares the one after it.
                self.unanswered = MOST_UNANSWERED - 1;
                self.known = Known::Spared(epoch, now + self.spare);
                self.spare = (self.spare * 2).min(TRACK_SPARED_MOST);
                return Before::GivenUp;
            }
            self.tried = epoch;
            self.unanswered += 1;
        }
        Before::TurnOn
    }

    /// The server has answered what went before a read over this connection. Returns whether it refuses it for the first time.
    fn answered(&mut self, epoch: u64, answer: &Result<(), Fault>) -> bool {
        if epoch == self.tried {
            self.unanswered = 0;
            self.spare = TRACK_SPARED;
        }
        match answer {
            // An answer that comes late says nothing of the connection that has followed.
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

    /// Whether the server does not track over this connection now.
    fn is_refused(&self, epoch: u64, now: Instant) -> bool {
        match self.known {
            Known::Refused(refused) => refused == epoch,
            Known::Spared(spared, until) => spared == epoch && now < until,
            Known::Nothing | Known::On(_) => false,
        }
    }

    /// The connection that is spoken of.
    fn epoch(&self) -> u64 {
        match self.known {
            Known::Nothing => 0,
            Known::On(epoch) | Known::Refused(epoch) | Known::Spared(epoch, _) => epoch,
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

    /// Whether the server does not track over this connection now.
    pub(crate) fn is_refused(&self, epoch: u64) -> bool {
        self.state.lock().is_refused(epoch, Instant::now())
    }

    /// Sends a command and has the server track keys beside it, if the server does so.
    pub(crate) async fn send(
        &self,
        server: &str,
        command: Cmd,
        track: Track<'_>,
        connected: &mut Connected,
    ) -> Result<Value, RedisError> {
        let epoch = connected.epoch;
        let connection = &mut connected.connection;
        let before = if self.is_wanted {
            // The mutex is not kept: other tasks send over this connection as well.
            self.state.lock().before(epoch, Instant::now())
        } else {
            Before::Nothing
        };
        if before == Before::GivenUp {
            telemetry::tracking_refused(server, &NO_ANSWER);
        }
        if matches!(before, Before::Nothing | Before::GivenUp) {
            return command.query_async(connection).await;
        }
        let Answers {
            of_command,
            of_before,
        } = in_one(before, command, track, connection).await?;
        // In a separate statement: the log below is foreign code, which never runs under this mutex.
        let is_refused = self.state.lock().answered(epoch, &of_before);
        if let (true, Err(fault)) = (is_refused, &of_before) {
            telemetry::tracking_refused(server, fault);
        }
        of_command
    }
}

/// Why a server is not asked for some time that has never answered.
const NO_ANSWER: &str = "several connections in a row got no answer once `CLIENT TRACKING` was sent over them: they were ended \
    because of it, or the server answered nothing for another reason, for example `CLIENT PAUSE`; it is asked again later";

/// What the server has answered.
struct Answers {
    of_command: RedisResult<Value>,
    /// To what goes before the read.
    of_before: Result<(), Fault>,
}

/// Sends all in one pipeline: the server forgets the word after the next command, and other tasks send over this connection.
async fn in_one(
    before: Before,
    command: Cmd,
    track: Track<'_>,
    connection: &mut impl ConnectionLike,
) -> RedisResult<Answers> {
    let words = match before {
        Before::TurnOn => &COMMANDS[..],
        _ => &COMMANDS[1..],
    };
    let mut commands: Vec<Cmd> = words.iter().map(|words| command_of(words)).collect();
    commands.push(track.read.clone());
    let at = match track.order {
        Order::Before => commands.len(),
        Order::After => 0,
    };
    commands.insert(at, command);
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    for command in commands {
        pipeline.add_command(command);
    }
    let mut answers: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
    let of_command = answers.remove(at);
    let mut of_before = answers.into_iter().take(words.len());
    Ok(Answers {
        of_command,
        of_before: of_before
            .try_for_each(|one| one.map(drop))
            .map_err(reply::fault),
    })
}

fn command_of(words: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command
}

/// What has the server track for a connection, each command as its words.
pub(crate) const COMMANDS: [&str; 2] = ["CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cause;

    fn now() -> Instant {
        Instant::now()
    }

    fn refusal() -> Result<(), Fault> {
        Err(Fault::denied(cause("no right")))
    }

    #[test]
    fn tracking_is_turned_on_once_for_each_connection() {
        let mut state = State::default();
        assert_eq!(state.before(1, now()), Before::TurnOn);
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(1, now()), Before::Caching);
        assert_eq!(state.before(2, now()), Before::TurnOn);
        assert!(!state.answered(2, &Ok(())));
        // A late answer over the connection before.
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(2, now()), Before::Caching);
    }

    #[test]
    fn server_that_refuses_is_asked_again_over_another_connection_and_told_of_once() {
        let mut state = State::default();
        assert!(state.answered(1, &refusal()));
        assert!(!state.answered(1, &refusal()));
        assert_eq!(state.before(1, now()), Before::Nothing);
        assert_eq!(state.before(2, now()), Before::TurnOn);
        assert!(!state.answered(2, &refusal()), "told a second time");
        assert_eq!(state.before(3, now()), Before::TurnOn);
        assert!(!state.answered(3, &Ok(())));
        assert_eq!(state.before(3, now()), Before::Caching);
    }

    #[test]
    fn server_that_cannot_now_is_asked_again() {
        let mut state = State::default();
        assert!(!state.answered(1, &Err(Fault::NotNow(cause("busy")))));
        assert_eq!(state.before(1, now()), Before::TurnOn);
    }

    #[test]
    fn right_that_is_withdrawn_ends_it() {
        let mut state = State::default();
        assert!(!state.answered(1, &Ok(())));
        assert!(state.answered(1, &refusal()));
        // The answer to a command that was sent before.
        assert!(!state.answered(1, &Ok(())));
        assert_eq!(state.before(1, now()), Before::Nothing);
    }

    #[test]
    fn server_that_ends_each_connection_on_which_it_is_asked_is_asked_on_every_second_one_at_last()
    {
        let mut state = State::default();
        for epoch in 1..=3 {
            assert_eq!(state.before(epoch, now()), Before::TurnOn);
            // Another command beside it does not count.
            assert_eq!(state.before(epoch, now()), Before::TurnOn);
        }
        assert_eq!(state.before(4, now()), Before::GivenUp);
        assert_eq!(state.before(4, now()), Before::Nothing);
        assert_eq!(state.before(5, now()), Before::TurnOn);
        assert_eq!(state.before(6, now()), Before::GivenUp);
        assert_eq!(state.before(7, now()), Before::TurnOn);
        assert!(!state.answered(7, &Ok(())));
        for epoch in 8..=10 {
            assert_eq!(state.before(epoch, now()), Before::TurnOn);
        }
        assert_eq!(state.before(11, now()), Before::GivenUp);
    }

    #[test]
    fn connection_that_is_not_asked_is_asked_when_it_has_lasted_and_each_time_later() {
        let mut state = State::default();
        let start = now();
        let mut epoch = 0;
        for _ in 0..MOST_UNANSWERED {
            epoch += 1;
            state.before(epoch, start);
        }
        let mut spare = TRACK_SPARED;
        for _ in 0..10 {
            epoch += 1;
            assert_eq!(state.before(epoch, start), Before::GivenUp);
            let early = start + spare - Duration::from_millis(1);
            assert_eq!(state.before(epoch, early), Before::Nothing);
            assert_eq!(state.before(epoch, start + spare), Before::TurnOn);
            // It ends as well.
            spare = (spare * 2).min(TRACK_SPARED_MOST);
        }
        epoch += 1;
        assert_eq!(state.before(epoch, start), Before::GivenUp);
        assert_eq!(state.before(epoch, start + spare), Before::TurnOn);
        assert!(!state.answered(epoch, &Ok(())));
        assert_eq!(state.before(epoch, start), Before::Caching);
        assert_eq!(state.spare, TRACK_SPARED);
    }
}

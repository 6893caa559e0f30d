//! How a command gets to one server, and what its answer means.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::time::timeout;

use super::Node;
use crate::backend::redis::connection::{Expected, handshake};
use crate::backend::redis::reply;
use crate::backend::redis::reply::Elsewhere;
use crate::backend::redis::script::{Fill, Form, Publish, Script};
use crate::backend::redis::servers::failed::{Failed, moving, of_server, read_error};
use crate::backend::redis::tracking::{Order, Track};
use crate::backend::{Fault, cause};
use crate::error::show;

/// Why a server that says that it stands alone does not carry out a script over several keys, and what to do.
const BEHIND_A_PROXY: &str = "it keeps these keys in several slots, so it is a cluster behind a proxy that says otherwise; give the keys of \
    one lock a common hash tag, as in `{cart:1}:order` and `{cart:1}:stock`";

/// How a command is sent to a node of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    /// The slot is on its way to this node, which carries the script out nevertheless.
    pub(crate) asking: bool,
    /// The bit of the script, if it is one.
    pub(crate) script: u64,
    /// The keys that the node is to track beside it.
    pub(crate) track: Option<Track<'a>>,
    /// How long to wait for the connection, and for the answer.
    pub(crate) patience: Duration,
}

impl Sending<'_> {
    /// A command that is sent so over this connection.
    fn over(self, epoch: u64) -> Sent {
        Sent {
            epoch,
            waited: self.patience,
            script: self.script,
        }
    }
}

/// How a command was sent.
#[derive(Clone, Copy)]
struct Sent {
    /// The connection.
    epoch: u64,
    /// How long its answer is waited for.
    waited: Duration,
    /// The bit of its script, or 0.
    script: u64,
}

impl Node {
    /// Runs a script by its digest, or by its source if the server does not know it.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and each command has room for this"
    )]
    pub(crate) fn run(
        &self,
        script: &Script,
        with: Fill<'_>,
    ) -> impl Future<Output = Result<Value, Fault>> {
        async move {
            let command = |form| with(script.call(form, Publish::Plain)).into_cmd();
            let mut answer = self.try_send(command(Form::Digest), script.bit()).await;
            // EVAL also stores the script, so a script takes the second round trip only once after a start of the server.
            if let Err(Failed::NoScript) = answer {
                answer = self.try_send(command(Form::Source), script.bit()).await;
            }
            answer.map_err(|failed| self.fault(failed))
        }
    }

    /// Runs a script and has the server track keys beside it. The answer is [`Value::Nil`] if it was not sent.
    pub(crate) async fn run_tracked(
        &self,
        script: &Script,
        track: Track<'_>,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        let sending = Sending {
            asking: false,
            script: script.bit(),
            track: Some(track),
            patience: self.response_timeout,
        };
        let command = |form| with(script.call(form, Publish::Plain)).into_cmd();
        let answer = self.send_here(sending, &command).await;
        answer.map_err(|failed| self.fault(failed))
    }

    /// Sends a command to a node of a cluster, in another form if the node does not know the script.
    pub(crate) async fn send_here(
        &self,
        sending: Sending<'_>,
        command: &(dyn Fn(Form) -> Cmd + Sync),
    ) -> Result<Value, Failed> {
        match self.try_send_here(sending, command(Form::Digest)).await {
            Err(Failed::NoScript) => self.try_send_here(sending, command(Form::Source)).await,
            answer => answer,
        }
    }

    async fn try_send_here(&self, sending: Sending<'_>, command: Cmd) -> Result<Value, Failed> {
        let Sending {
            asking,
            track,
            patience,
            ..
        } = sending;
        let mut connected = self.link.connected(patience).await.map_err(Failed::With)?;
        let is_useless = |track: Track<'_>| {
            track.order == Order::Before && self.tracking.is_refused(connected.epoch)
        };
        if track.is_some_and(is_useless) {
            return Ok(Value::Nil);
        }
        if let Some(track) = track.filter(|_| !asking) {
            let tracking = &self.tracking;
            let answer = tracking.send(self.name(), command, track, &mut connected);
            let answer = timeout(patience, answer).await;
            return self.read(answer.ok(), sending.over(connected.epoch));
        }
        let connection = &mut connected.connection;
        let answer = async {
            if !asking {
                return command.query_async::<Value>(connection).await;
            }
            // In one pipeline: the node forgets the word after the next command, and other tasks send over this connection
            // as well.
            let mut pipeline = redis::pipe();
            pipeline.ignore_errors();
            pipeline.cmd("ASKING").add_command(command);
            let answers: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
            let mut answers = answers.into_iter();
            match (answers.next(), answers.next()) {
                // The node sends the command elsewhere without it, which does not tell the reason.
                (Some(Err(not_asking)), Some(Err(_))) => Err(not_asking),
                (_, Some(answer)) => answer,
                _ => Ok(Value::Nil),
            }
        };
        let answer = timeout(patience, answer).await;
        self.read(answer.ok(), sending.over(connected.epoch))
    }

    /// Renews what was granted by a script, and waits until enough replicas have it.
    pub(crate) async fn confirm(&self, script: &Script, with: Fill<'_>) -> Result<Value, Failed> {
        let Some(confirmations) = &self.confirmations else {
            return Ok(Value::Nil);
        };
        let renewal = |form| with(script.call(form, Publish::Plain)).into_cmd();
        match confirmations.confirm(renewal(Form::Digest)).await {
            Err(Failed::NoScript) => confirmations.confirm(renewal(Form::Source)).await,
            answer => answer,
        }
    }

    /// Sends a command other than a script.
    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, Fault> {
        let answer = self.try_send(command, 0).await;
        answer.map_err(|failed| self.fault(failed))
    }

    /// Sends commands other than scripts in one pipeline. `None` in place of what the server refuses.
    pub(crate) async fn send_all(&self, commands: &[Cmd]) -> Result<Vec<Option<Value>>, Fault> {
        let mut connected = self.link.connected(self.response_timeout).await?;
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let answers = pipeline.query_async::<Vec<RedisResult<Value>>>(&mut connected.connection);
        let waited = self.response_timeout;
        let (answer, answers) = match timeout(waited, answers).await {
            Ok(Ok(answers)) => (Some(Ok(Value::Nil)), answers),
            Ok(Err(error)) => (Some(Err(error)), Vec::new()),
            Err(_) => (None, Vec::new()),
        };
        let sent = Sent {
            epoch: connected.epoch,
            waited,
            script: 0,
        };
        self.read(answer, sent)
            .map_err(|failed| self.fault(failed))?;
        Ok(answers.into_iter().map(Result::ok).collect())
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and each command has room for this"
    )]
    fn try_send(&self, command: Cmd, script: u64) -> impl Future<Output = Result<Value, Failed>> {
        async move {
            let connected = self.link.connected(self.response_timeout).await;
            let mut connected = connected.map_err(Failed::With)?;
            let answer = connected.connection.send(&command);
            let answer = timeout(self.response_timeout, answer).await;
            let sent = Sent {
                epoch: connected.epoch,
                waited: self.response_timeout,
                script,
            };
            self.read(answer.ok(), sent)
        }
    }

    /// What the answer to a command means. It is `None` if none came in time.
    fn read(&self, answer: Option<RedisResult<Value>>, sent: Sent) -> Result<Value, Failed> {
        self.read_unnamed(answer, sent)
            .map_err(|failed| match failed {
                Failed::With(fault) => Failed::With(self.of_answer(fault)),
                other => other,
            })
    }

    /// The fault of an answer, or of none, with the name of the server where there are several.
    pub(crate) fn of_answer(&self, fault: Fault) -> Fault {
        match (self.expected, self.reached_at()) {
            (Expected::Node, _) => of_server(&format!("node {}", self.name()), fault),
            (Expected::Master, Some(at)) => of_server(&format!("master {at}"), fault),
            _ => fault,
        }
    }

    fn read_unnamed(
        &self,
        answer: Option<RedisResult<Value>>,
        sent: Sent,
    ) -> Result<Value, Failed> {
        let Sent {
            epoch,
            waited,
            script,
        } = sent;
        match answer {
            Some(Ok(_)) if self.link.has_left(epoch) => {
                let text = "the server has answered, but another one is the master by now";
                Err(Failed::With(Fault::Unknown(cause(text))))
            }
            Some(Ok(value)) => {
                self.link.answered(epoch);
                // Read first: a write would move its cache line between cores. Relaxed: nothing else is read by it.
                if self.carried_out.load(Ordering::Relaxed) & script != script {
                    self.carried_out.fetch_or(script, Ordering::Relaxed);
                }
                // By a script alone: a node that is cut off still answers with its map.
                if script != 0 && self.lacks_the_others() {
                    self.lacks_the_others.store(false, Ordering::Relaxed);
                }
                Ok(value)
            }
            // The server can carry it out, and may do so again. Whether it has done a part of it, the text does not say.
            Some(Err(error))
                if self.carried_out.load(Ordering::Relaxed) & script != 0
                    && reply::is_unknown_refusal(&error) =>
            {
                Err(Failed::With(Fault::Unknown(cause(error.to_string()))))
            }
            Some(Err(error)) => {
                if reply::lacks_the_others(&error) {
                    self.lacks_the_others.store(true, Ordering::Relaxed);
                }
                Err(read_error(&self.link, epoch, error))
            }
            None => {
                // A command that came by other nodes had less time, which shows nothing.
                if waited >= self.response_timeout {
                    self.link.timed_out(epoch);
                }
                let text = format!("no answer within {}", show(waited));
                Err(Failed::With(Fault::Unknown(cause(text))))
            }
        }
    }

    /// What a failure means to a client of one server.
    pub(crate) fn fault(&self, failed: Failed) -> Fault {
        match failed {
            Failed::With(fault) => fault,
            Failed::NoScript => Fault::NotNow(cause("the server did not keep the script")),
            // A proxy in front of a cluster passes it on.
            Failed::Elsewhere(Elsewhere::TryAgain) => moving(),
            Failed::Elsewhere(elsewhere) => Fault::Unsupported {
                server: self.name().to_owned(),
                reason: match elsewhere {
                    Elsewhere::Nowhere => BEHIND_A_PROXY.to_owned(),
                    _ => handshake::NODE_OF_A_CLUSTER.to_owned(),
                },
            },
        }
    }
}

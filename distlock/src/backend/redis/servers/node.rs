//! What one server needs: a connection for commands, and one for messages that is made when it is first used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::confirmations::Confirmations;
use super::failed::{Failed, of_server, read_error};
use super::shared::Shared;
use crate::backend::redis::connection::{
    Expected, Link, LinkConfig, Locate, OutageLog, Together, handshake, join,
};
use crate::backend::redis::messages::{PubSubMode, ServerNumber, Subscriber};
use crate::backend::redis::reply;
use crate::backend::redis::reply::Elsewhere;
use crate::backend::redis::script::{Fill, Publish, Script};
use crate::backend::redis::tracking::Switch;
use crate::backend::{Fault, cause};
use crate::config::{ATTEMPTS_AT_ONCE, RECONNECT_BACKOFF};
use crate::error::show;

/// Why a server that says that it stands alone does not carry out a script over several keys, and what to do.
const BEHIND_A_PROXY: &str = "it keeps these keys in several slots, so it is a cluster behind a proxy that says otherwise; give the keys of \
    one lock a common hash tag, as in `{cart:1}:order` and `{cart:1}:stock`";

/// One server.
pub(crate) struct Node {
    /// A number that no other server of the client has.
    number: ServerNumber,
    link: Arc<Link>,
    subscriber: Subscriber,
    /// `None` if grants need no confirmation.
    confirmations: Option<Arc<Confirmations>>,
    outages: Arc<OutageLog>,
    tracking: Switch,
    response_timeout: Duration,
    /// What the server has to be.
    expected: Expected,
    /// The scripts that the server has carried out, each by its bit.
    carried_out: AtomicU64,
    /// The attempts that may be unanswered at once. Renewals and releases need no slot, so they never queue behind attempts.
    attempt_slots: Arc<Semaphore>,
}

/// What the connections to one server have in common.
struct Beside<'a> {
    shared: &'a Shared,
    together: Arc<Together>,
    expected: Expected,
    outages: &'a Arc<OutageLog>,
}

impl Beside<'_> {
    /// A connection that carries no commands of locks: it has separate epochs. It is always without Nagle's delay, because its
    /// commands are small and rare, and somebody waits for each answer.
    fn link(&self, what: &'static str, server: &Arc<dyn Locate>) -> LinkConfig {
        let shared = self.shared;
        LinkConfig {
            what,
            server: Arc::clone(server),
            together: Arc::clone(&self.together),
            connector: Arc::clone(&shared.connector),
            names: Arc::clone(&shared.names),
            expected: self.expected,
            nodelay: true,
            pings: shared.pings,
            longest_pause: shared.longest_pause,
            outages: Arc::clone(self.outages),
            epochs: Arc::default(),
            restart_grace: Duration::ZERO,
            first: None,
            on_push: Arc::new(|_, _| {}),
        }
    }
}

/// How a script is named.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Digest,
    Source,
}

/// How a command is sent to a node of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    /// The slot is on its way to this node, which carries the script out nevertheless.
    pub(super) asking: bool,
    /// The bit of the script, if it is one.
    pub(super) script: u64,
    /// Whether the node is to track the keys that it reads.
    pub(super) track: bool,
    /// How long to wait for the connection, and for the answer.
    pub(super) patience: Duration,
}

impl Node {
    /// A server that is connected to when it is first used. `messages` says where connections for messages lead to.
    pub(super) fn new(
        server: Arc<dyn Locate>,
        messages: Arc<dyn Locate>,
        expected: Expected,
        shared: &Shared,
        number: ServerNumber,
        mode: PubSubMode,
    ) -> Self {
        let gauge = shared.gauge.as_ref();
        let outages = Arc::new(OutageLog::of_keys(server.name(), gauge, &shared.stake));
        let beside = Beside {
            shared,
            together: Arc::default(),
            expected,
            outages: &outages,
        };
        let confirmations = shared.confirmation.map(|wanted| {
            let link = Link::new(beside.link("confirmations", &server));
            Confirmations::new(link, wanted, shared.response_timeout)
        });
        let heard = Arc::clone(&shared.heard);
        let commands = LinkConfig {
            on_push: Arc::new(move |_, push| heard.add(&push)),
            nodelay: shared.nodelay,
            epochs: Arc::clone(&shared.epochs),
            restart_grace: shared.restart_grace,
            first: Some(Arc::clone(&shared.first)),
            ..beside.link("commands", &server)
        };
        let messages = |on_push| LinkConfig {
            longest_pause: RECONNECT_BACKOFF.longest,
            on_push,
            ..beside.link("messages", &messages)
        };
        let node = Self {
            number,
            link: Link::new(commands),
            subscriber: shared.subscriptions.at(number, mode, messages),
            confirmations,
            outages: Arc::clone(&outages),
            tracking: Switch::new(shared.track_holds),
            response_timeout: shared.response_timeout,
            expected,
            carried_out: AtomicU64::new(0),
            attempt_slots: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)),
        };
        join(&beside.together, node.links());
        node
    }

    /// What errors and logs call the server.
    pub(crate) fn name(&self) -> &str {
        self.outages.server()
    }

    pub(crate) fn attempt_slots(&self) -> &Arc<Semaphore> {
        &self.attempt_slots
    }

    /// Whether the client wants this server to track keys.
    pub(super) fn is_to_track(&self) -> bool {
        self.tracking.is_wanted()
    }

    /// A number that no other server of the client has.
    pub(super) fn number(&self) -> ServerNumber {
        self.number
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Begins to connect, and tells in the log if that fails. The caller does not wait for it.
    pub(super) fn begin_to_connect(&self) {
        self.tell_first();
        self.link.connect();
    }

    /// From now on the log also reports failures before the first connection.
    pub(super) fn tell_first(&self) {
        self.outages.tell_first();
    }

    /// The client needs the server no more.
    pub(super) fn forget(&self) {
        self.outages.forget();
    }

    /// The connections that lead to this server.
    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        let confirmations = self.confirmations.as_ref();
        let more = confirmations.map(|confirmations| confirmations.link());
        [&self.link, self.subscriber.link()].into_iter().chain(more)
    }

    /// Whether grants need a confirmation.
    pub(super) fn confirms(&self) -> bool {
        self.confirmations.is_some()
    }

    /// Renews what was granted by a script, and waits until enough replicas have it.
    pub(super) async fn confirm(&self, script: &Script, with: Fill<'_>) -> Result<Value, Failed> {
        let Some(confirmations) = &self.confirmations else {
            return Ok(Value::Nil);
        };
        let publish = Publish::Plain;
        let renewal = with(script.by_digest(publish)).into_cmd();
        match confirmations.confirm(renewal).await {
            Err(Failed::NoScript) => {
                let renewal = with(script.by_source(publish)).into_cmd();
                confirmations.confirm(renewal).await
            }
            answer => answer,
        }
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Runs a script by its digest, or by its source if the server does not know it.
    pub(super) async fn run(&self, script: &Script, with: Fill<'_>) -> Result<Value, Fault> {
        let publish = Publish::Plain;
        let mut answer = self
            .try_send(with(script.by_digest(publish)).into_cmd(), script.bit())
            .await;
        if let Err(Failed::NoScript) = answer {
            answer = self
                .try_send(with(script.by_source(publish)).into_cmd(), script.bit())
                .await;
        }
        answer.map_err(|failed| self.fault(failed))
    }

    /// Runs a script and has the server track the keys that it reads last.
    pub(super) async fn run_tracked(
        &self,
        script: &Script,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        let sending = Sending {
            asking: false,
            script: script.bit(),
            track: true,
            patience: self.response_timeout,
        };
        let command = |form: Form| {
            let call = match form {
                Form::Digest => script.by_digest(Publish::Plain),
                Form::Source => script.by_source(Publish::Plain),
            };
            with(call).into_cmd()
        };
        let answer = self.send_here(sending, &command).await;
        answer.map_err(|failed| self.fault(failed))
    }

    /// Sends a command to a node of a cluster, in another form if the node does not know the script.
    pub(super) async fn send_here(
        &self,
        sending: Sending,
        command: &(dyn Fn(Form) -> Cmd + Sync),
    ) -> Result<Value, Failed> {
        match self.try_send_here(sending, command(Form::Digest)).await {
            Err(Failed::NoScript) => self.try_send_here(sending, command(Form::Source)).await,
            answer => answer,
        }
    }

    async fn try_send_here(&self, sending: Sending, command: Cmd) -> Result<Value, Failed> {
        let Sending {
            asking,
            script,
            track,
            patience,
        } = sending;
        let mut connected = self.link.connected(patience).await.map_err(Failed::With)?;
        if track && !asking {
            let answer = self.tracking.send(self.name(), command, &mut connected);
            let answer = timeout(patience, answer).await;
            return self.read(answer.ok(), connected.epoch, patience, script);
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
        self.read(answer.ok(), connected.epoch, patience, script)
    }

    /// The number of the connection for commands, once there is one.
    pub(super) async fn connected_epoch(&self) -> Result<u64, Fault> {
        let connected = self.link.connected(self.response_timeout).await?;
        Ok(connected.epoch)
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
        let answer = self.read(answer, connected.epoch, waited, 0);
        answer.map_err(|failed| self.fault(failed))?;
        Ok(answers.into_iter().map(Result::ok).collect())
    }

    async fn try_send(&self, command: Cmd, script: u64) -> Result<Value, Failed> {
        let mut connected = self
            .link
            .connected(self.response_timeout)
            .await
            .map_err(Failed::With)?;
        let answer = command.query_async::<Value>(&mut connected.connection);
        let answer = timeout(self.response_timeout, answer).await;
        let waited = self.response_timeout;
        self.read(answer.ok(), connected.epoch, waited, script)
    }

    /// What an answer over connection `epoch` to a command means. It is `None` if none came within the time `waited`. `script` is
    /// the bit of the command's script, or 0.
    fn read(
        &self,
        answer: Option<Result<Value, RedisError>>,
        epoch: u64,
        waited: Duration,
        script: u64,
    ) -> Result<Value, Failed> {
        let read = self.read_unnamed(answer, epoch, waited, script);
        read.map_err(|failed| match failed {
            Failed::With(fault) => Failed::With(self.of_answer(fault)),
            other => other,
        })
    }

    /// The fault of an answer, or of none, with the name of the server where there are several.
    pub(super) fn of_answer(&self, fault: Fault) -> Fault {
        match (self.expected, self.link.reached_at()) {
            (Expected::Node, _) => of_server(&format!("node {}", self.name()), fault),
            (Expected::Master, Some(at)) => of_server(&format!("master {at}"), fault),
            _ => fault,
        }
    }

    fn read_unnamed(
        &self,
        answer: Option<Result<Value, RedisError>>,
        epoch: u64,
        waited: Duration,
        script: u64,
    ) -> Result<Value, Failed> {
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
                Ok(value)
            }
            // The server can carry it out, and may do so again. Whether it has done a part of it, the text does not say.
            Some(Err(error))
                if self.carried_out.load(Ordering::Relaxed) & script != 0
                    && reply::is_unknown_refusal(&error) =>
            {
                Err(Failed::With(Fault::Unknown(cause(error.to_string()))))
            }
            Some(Err(error)) => Err(read_error(&self.link, epoch, error)),
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
    pub(super) fn fault(&self, failed: Failed) -> Fault {
        match failed {
            Failed::With(fault) => fault,
            Failed::NoScript => Fault::NotNow(cause("the server did not keep the script")),
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

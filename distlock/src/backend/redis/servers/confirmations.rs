//! Finds out whether replicas have what was granted.
//!
//! WAIT blocks all commands behind it, so it has a separate connection. There it speaks only of what was written over that
//! connection. So a renewal of what was granted goes before it: replication is a single stream, and a replica that has the
//! renewal has the grant. A renewal never creates a hold, so one that comes late does no harm.
//!
//! How many replicas are connected, and whether there is an append-only file, the server says behind the renewals, so the WAIT for
//! that many is a separate round trip.
//!
//! One WAIT confirms all grants that came while the WAIT before it was under way.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::failed::{Failed, read_error};
use crate::backend::redis::connection::{Connected, Link};
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};
use crate::config::{Confirmation, Replicas};
use crate::error::show;
use crate::sync::on_demand::{OnDemandTask, RunningTask};
use crate::sync::task::boxed;
use crate::sync::{Mutex, foreign};

/// The confirmations of the grants of one server.
pub(super) struct Confirmations {
    link: Arc<Link>,
    wanted: Confirmation,
    response_timeout: Duration,
    /// Whether the server has answered all of these commands before.
    has_confirmed: AtomicBool,
    queue: Mutex<Vec<Unconfirmed>>,
    /// Confirms what is queued.
    task: OnDemandTask,
}

/// A grant that is not confirmed yet.
struct Unconfirmed {
    renewal: Cmd,
    answer: oneshot::Sender<Result<Value, Failed>>,
}

/// The answers to renewals that were sent together.
struct Confirmed {
    renewed: Vec<RedisResult<Value>>,
    /// The connection that they were sent over.
    epoch: u64,
    /// How many replicas have them all.
    replicas: u32,
    /// How many should have them.
    wanted: Wanted,
    /// Whether the server's own append-only file has them, if it was asked for that.
    is_on_disk: bool,
}

/// What has to have the grants of a batch.
#[derive(Clone, Copy)]
struct Wanted {
    replicas: u32,
    on_disk: bool,
}

impl Confirmations {
    pub(super) fn new(
        link: Arc<Link>,
        wanted: Confirmation,
        response_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            wanted,
            response_timeout,
            has_confirmed: AtomicBool::new(false),
            queue: Mutex::default(),
            task: OnDemandTask::default(),
        })
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Sends a renewal, and answers what the server says to it once enough replicas have it.
    pub(super) async fn confirm(self: &Arc<Self>, renewal: Cmd) -> Result<Value, Failed> {
        let (answer, answered) = oneshot::channel();
        self.add(Unconfirmed { renewal, answer });
        // The task has as long for the batch under way, and for this one.
        match timeout(self.longest_batch() * 2, answered).await {
            Ok(Ok(answer)) => answer,
            _ => Err(unknown("no confirmation in time".to_owned())),
        }
    }

    /// How long a batch may take: the connection, the renewals, and the replicas.
    fn longest_batch(&self) -> Duration {
        self.response_timeout * 3 + self.wanted.timeout
    }

    fn add(self: &Arc<Self>, unconfirmed: Unconfirmed) {
        let mut queue = self.queue.lock();
        queue.push(unconfirmed);
        // Under the mutex: a task that finds the queue empty ends under it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(running) = self.task.begin()
        {
            drop(queue);
            drop(runtime.spawn(boxed(confirm_all(Arc::clone(self), running))));
        }
    }

    /// The grants that are queued. If there are none, the task is over.
    fn next_batch(&self, running: &mut Option<RunningTask>) -> Option<Vec<Unconfirmed>> {
        let mut queue = self.queue.lock();
        if queue.is_empty() {
            // Under the mutex: who adds a grant after this starts another task.
            drop(running.take());
            return None;
        }
        Some(mem::take(&mut queue))
    }

    /// Confirms these grants together.
    async fn confirm_together(&self, batch: Vec<Unconfirmed>) {
        let (renewals, answers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|one| (one.renewal, one.answer))
            .unzip();
        let confirmed = self.send(renewals).await;
        foreign::each(answers.into_iter().enumerate(), |(at, answer)| {
            // A caller that does not listen any more has given up.
            let outcome = match &confirmed {
                Ok(confirmed) => self.outcome(confirmed, at),
                Err(fault) => Err(Failed::With(fault.clone())),
            };
            let _listens = foreign::answer(answer, outcome);
        });
    }

    /// Sends renewals, and a WAIT behind them.
    async fn send(&self, renewals: Vec<Cmd>) -> Result<Confirmed, Fault> {
        let mut connected = self.link.connected(self.response_timeout).await?;
        let mut pipeline = redis::pipe();
        for renewal in renewals {
            pipeline.add_command(renewal);
        }
        let longest = self.wanted.timeout;
        let on_disk = self.wanted.on_disk;
        if let Replicas::Count(replicas) = self.wanted.replicas
            && !on_disk
        {
            let wanted = Wanted { replicas, on_disk };
            pipeline.add_command(self.wait(wanted));
            let mut renewed = self.ask(&mut connected, &pipeline, longest).await?;
            let answer = renewed.pop();
            return self.confirmed(connected.epoch, renewed, answer, wanted);
        }
        pipeline.cmd("INFO").arg("replication");
        pipeline.cmd("INFO").arg("persistence");
        let mut renewed = self.ask(&mut connected, &pipeline, Duration::ZERO).await?;
        // From the end, since the answers are in the order of the commands.
        let persistence = self.text(connected.epoch, renewed.pop())?;
        let replication = self.text(connected.epoch, renewed.pop())?;
        let wanted = self.wanted_now(&replication, &persistence);
        self.wait_for(&mut connected, renewed, wanted).await
    }

    /// Waits until so much of the server has what was sent before.
    async fn wait_for(
        &self,
        connected: &mut Connected,
        renewed: Vec<RedisResult<Value>>,
        wanted: Wanted,
    ) -> Result<Confirmed, Fault> {
        if wanted.replicas == 0 && !wanted.on_disk {
            // A WAIT for no replica would return at once, for the price of a round trip.
            let nobody = Some(Ok(Value::Int(0)));
            return self.confirmed(connected.epoch, renewed, nobody, wanted);
        }
        let mut pipeline = redis::pipe();
        pipeline.add_command(self.wait(wanted));
        let longest = self.wanted.timeout;
        let answer = self.ask(connected, &pipeline, longest).await?.pop();
        self.confirmed(connected.epoch, renewed, answer, wanted)
    }

    /// The command that waits for so much.
    fn wait(&self, wanted: Wanted) -> Cmd {
        // Redis counts in milliseconds, and takes 0 for no limit.
        let millis = u64::try_from(self.wanted.timeout.as_millis()).unwrap_or(u64::MAX);
        let mut wait = redis::cmd(if wanted.on_disk { "WAITAOF" } else { "WAIT" });
        if wanted.on_disk {
            // The server's own append-only file.
            wait.arg(1);
        }
        wait.arg(wanted.replicas).arg(millis.max(1));
        wait
    }

    /// What is wanted of a server that says this of itself.
    fn wanted_now(&self, replication: &str, persistence: &str) -> Wanted {
        let is_online = |line: &&str| line.starts_with("slave") && line.contains("state=online");
        let online = replication.lines().filter(is_online).count();
        Wanted {
            replicas: match self.wanted.replicas {
                Replicas::Count(count) => count,
                Replicas::Connected => u32::try_from(online).unwrap_or(u32::MAX),
            },
            on_disk: self.wanted.on_disk && persistence.contains("aof_enabled:1"),
        }
    }

    /// The answers to a pipeline, of which the last command may take so long.
    async fn ask(
        &self,
        connected: &mut Connected,
        pipeline: &redis::Pipeline,
        longest: Duration,
    ) -> Result<Vec<RedisResult<Value>>, Fault> {
        let mut pipeline = pipeline.clone();
        // A renewal that is refused must not hide the answers to the others.
        pipeline.ignore_errors();
        let epoch = connected.epoch;
        let patience = self.response_timeout + longest;
        let answers = pipeline.query_async::<Vec<RedisResult<Value>>>(&mut connected.connection);
        let Ok(answers) = timeout(patience, answers).await else {
            self.link.timed_out(epoch);
            let text = format!("no confirmation within {}", show(patience));
            return Err(Fault::Unknown(cause(text)));
        };
        let answers = answers.map_err(|error| self.fault(epoch, error))?;
        // The replicas of a master that was replaced say nothing of the server that has the keys now.
        if self.link.has_left(epoch) {
            let text = "replicas have confirmed the grant, but another server is the master by now";
            return Err(Fault::Unknown(cause(text)));
        }
        self.link.answered(epoch);
        Ok(answers)
    }

    fn text(&self, epoch: u64, answer: Option<RedisResult<Value>>) -> Result<String, Fault> {
        let none = || Fault::Protocol(cause("no answer to INFO"));
        let value = answer.ok_or_else(none)?;
        let value = value.map_err(|error| self.fault(epoch, error))?;
        redis::from_redis_value(value).map_err(|error| Fault::Protocol(cause(error.to_string())))
    }

    fn confirmed(
        &self,
        epoch: u64,
        renewed: Vec<RedisResult<Value>>,
        answer: Option<RedisResult<Value>>,
        wanted: Wanted,
    ) -> Result<Confirmed, Fault> {
        let confirmed = |replicas: i64, is_on_disk| Confirmed {
            renewed,
            epoch,
            replicas: u32::try_from(replicas).unwrap_or(0),
            wanted,
            is_on_disk,
        };
        match answer {
            Some(Ok(Value::Int(replicas))) if !wanted.on_disk => Ok(confirmed(replicas, false)),
            Some(Ok(Value::Array(both))) => match both.as_slice() {
                [Value::Int(own), Value::Int(replicas)] => Ok(confirmed(*replicas, *own > 0)),
                _ => Err(odd(&both)),
            },
            Some(Err(error)) if wanted.on_disk && error.to_string().contains("unknown command") => {
                Err(Fault::Unsupported {
                    server: self.link.server().to_owned(),
                    reason: "it has an append-only file, and does not know WAITAOF, as Redis does since 7.2; turn `replicas_on_disk` \
                        off"
                        .to_owned(),
                })
            }
            Some(Err(error)) => Err(self.fault(epoch, error)),
            other => Err(odd(&other)),
        }
    }

    fn fault(&self, epoch: u64, error: RedisError) -> Fault {
        match self.failed(epoch, error) {
            Failed::With(fault) => fault,
            Failed::NoScript | Failed::Elsewhere(_) => odd(&"nothing of its own"),
        }
    }

    /// What an error means. In words that nobody knows, it passes if the server has confirmed grants before.
    fn failed(&self, epoch: u64, error: RedisError) -> Failed {
        // Relaxed: nothing else is read by it.
        if self.has_confirmed.load(Ordering::Relaxed) && reply::is_unknown_refusal(&error) {
            return unknown(error.to_string());
        }
        read_error(&self.link, epoch, error)
    }

    /// What the answer to the renewal with this index means.
    fn outcome(&self, confirmed: &Confirmed, at: usize) -> Result<Value, Failed> {
        let Confirmed {
            replicas, wanted, ..
        } = confirmed;
        let count = wanted.replicas;
        let timeout = self.wanted.timeout;
        match confirmed.renewed.get(at) {
            Some(Ok(_)) if *replicas < count => Err(unknown(format!(
                "{replicas} of {count} replicas confirmed the grant{} within {}",
                if wanted.on_disk {
                    " in their append-only files"
                } else {
                    ""
                },
                show(timeout)
            ))),
            Some(Ok(_)) if wanted.on_disk && !confirmed.is_on_disk => Err(unknown(format!(
                "the grant was not in the server's append-only file within {}, which it writes to disk once a second with \
                 `appendfsync everysec`",
                show(timeout)
            ))),
            Some(Ok(value)) => {
                // Relaxed: nothing else is read by it.
                self.has_confirmed.store(true, Ordering::Relaxed);
                Ok(value.clone())
            }
            Some(Err(error)) => Err(self.failed(confirmed.epoch, error.clone())),
            None => Err(unknown("no answer to the renewal".to_owned())),
        }
    }
}

fn odd(answer: &dyn std::fmt::Debug) -> Fault {
    Fault::Protocol(cause(format!("WAIT answered {answer:?}")))
}

fn unknown(text: String) -> Failed {
    Failed::With(Fault::Unknown(cause(text)))
}

/// Confirms what is queued. If this ends with its runtime, the next grant starts another task.
async fn confirm_all(confirmations: Arc<Confirmations>, running: RunningTask) {
    let mut running = Some(running);
    while let Some(batch) = confirmations.next_batch(&mut running) {
        confirmations.confirm_together(batch).await;
    }
}

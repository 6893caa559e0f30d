//! Finds out whether replicas have what was granted.
//!
//! WAIT blocks all commands behind it, so it has a connection of its own. There it speaks only of what was written over that
//! connection. So a renewal of what was granted goes before it: replication is a single stream, and a replica that has the
//! renewal has the grant. A renewal never creates a hold, so one that comes late does no harm.
//!
//! One WAIT confirms all grants that came while the WAIT before it was under way.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::failed::{Failed, read_error};
use crate::backend::redis::connection::{Connected, Link};
use crate::backend::{Fault, cause};
use crate::config::Replicas;
use crate::foreign;
use crate::mutex::Mutex;

/// The confirmations of the grants of one server.
pub(super) struct Confirmations {
    link: Arc<Link>,
    replicas: Replicas,
    response_timeout: Duration,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    unconfirmed: Vec<Unconfirmed>,
    /// Whether the task runs that confirms what is queued.
    has_task: bool,
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
}

impl Confirmations {
    pub(super) fn new(
        link: Arc<Link>,
        replicas: Replicas,
        response_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            replicas,
            response_timeout,
            queue: Mutex::default(),
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
        self.response_timeout * 2 + self.replicas.timeout
    }

    fn add(self: &Arc<Self>, unconfirmed: Unconfirmed) {
        let mut queue = self.queue.lock();
        queue.unconfirmed.push(unconfirmed);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if !mem::replace(&mut queue.has_task, true) {
            drop(queue);
            let task = Task {
                confirmations: Arc::clone(self),
                is_over: false,
            };
            drop(runtime.spawn(async move { task.confirm_all().await }));
        }
    }

    /// Confirms these grants together.
    async fn confirm_together(&self, batch: Vec<Unconfirmed>) {
        let (renewals, answers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|one| (one.renewal, one.answer))
            .unzip();
        let confirmed = self.send(renewals).await;
        for (at, answer) in answers.into_iter().enumerate() {
            // Whoever does not listen any more has given up.
            let outcome = match &confirmed {
                Ok(confirmed) => self.outcome(confirmed, at),
                Err(fault) => Err(Failed::With(fault.clone())),
            };
            let _listens = foreign::answer(answer, outcome);
        }
    }

    /// Sends renewals and a WAIT behind them.
    async fn send(&self, renewals: Vec<Cmd>) -> Result<Confirmed, Fault> {
        let Connected {
            mut connection,
            epoch,
            ..
        } = self.link.connected(self.response_timeout).await?;
        let Replicas {
            count,
            timeout: longest,
        } = self.replicas;
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for renewal in renewals {
            pipeline.add_command(renewal);
        }
        // Redis counts in milliseconds, and takes 0 for no limit.
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        pipeline.cmd("WAIT").arg(count).arg(millis.max(1));
        let patience = self.response_timeout + longest;
        let answers = pipeline.query_async::<Vec<RedisResult<Value>>>(&mut connection);
        let Ok(answers) = timeout(patience, answers).await else {
            self.link.timed_out(epoch);
            let text = format!("no confirmation within {patience:?}");
            return Err(Fault::Unknown(cause(text)));
        };
        let fault = |error| match read_error(&self.link, epoch, error) {
            Failed::With(fault) => fault,
            Failed::NoScript | Failed::Elsewhere(_) => {
                Fault::Protocol(cause("an odd answer to WAIT"))
            }
        };
        let mut answers = answers.map_err(fault)?;
        self.link.answered(epoch);
        match answers.pop() {
            Some(Ok(Value::Int(acknowledged))) => Ok(Confirmed {
                renewed: answers,
                epoch,
                replicas: u32::try_from(acknowledged).unwrap_or(0),
            }),
            Some(Err(error)) => Err(fault(error)),
            other => {
                let text = format!("WAIT answered {other:?}");
                Err(Fault::Protocol(cause(text)))
            }
        }
    }

    /// What the answer to the renewal with this index means.
    fn outcome(&self, confirmed: &Confirmed, at: usize) -> Result<Value, Failed> {
        let Replicas { count, timeout } = self.replicas;
        match confirmed.renewed.get(at) {
            Some(Ok(_)) if confirmed.replicas < count => Err(unknown(format!(
                "{} of {count} replicas confirmed the grant within {timeout:?}",
                confirmed.replicas
            ))),
            Some(Ok(value)) => Ok(value.clone()),
            Some(Err(error)) => Err(read_error(&self.link, confirmed.epoch, error.clone())),
            None => Err(unknown("no answer to the renewal".to_owned())),
        }
    }
}

fn unknown(text: String) -> Failed {
    Failed::With(Fault::Unknown(cause(text)))
}

/// The task that confirms what is queued. If it ends with its runtime, the next grant starts another one.
struct Task {
    confirmations: Arc<Confirmations>,
    is_over: bool,
}

impl Task {
    async fn confirm_all(mut self) {
        while let Some(batch) = self.next() {
            self.confirmations.confirm_together(batch).await;
        }
    }

    /// The grants that are queued. If there are none, the task is over.
    fn next(&mut self) -> Option<Vec<Unconfirmed>> {
        let mut queue = self.confirmations.queue.lock();
        // Under the mutex: who adds a grant after this starts another task.
        self.is_over = queue.unconfirmed.is_empty();
        queue.has_task = !self.is_over;
        (!self.is_over).then(|| mem::take(&mut queue.unconfirmed))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_over {
            self.confirmations.queue.lock().has_task = false;
        }
    }
}

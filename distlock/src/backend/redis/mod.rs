//! Redis and Valkey as single servers: one Lua script for each operation, over one connection for commands and one for
//! messages.
//!
//! The data, its names and the messages are Redisson's; the scripts are our own. The files for the primitives have the
//! same functions as those in `memory`. No type of the driver leaves this folder.

mod channels;
mod fair;
mod greeting;
mod latch;
mod link;
mod lock;
mod look;
mod names;
mod number;
mod outage;
mod permit;
mod reply;
mod rw;
mod script;
mod semaphore;
mod subscriber;
mod url;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::link::Link;
use self::outage::OutageLog;
use self::script::{Call, Script};
use self::subscriber::Subscriber;
use super::family::{HoldFamily, LeaseFamily};
use super::{
    Attempt, Attempted, Backend, Change, Fault, Inspected, Looked, Released, Renewal, Reply,
    Subscription, Target, cause,
};
use crate::clock::{self, Clock};
use crate::config::{ATTEMPTS_AT_ONCE, CONNECT_TIMEOUT, Config};
use crate::error::Error;
use crate::key::{Key, Resource};
use crate::kind::Family;
use crate::owner::Owner;

/// One client's connections to a Redis server.
pub(crate) struct RedisBackend {
    link: Arc<Link>,
    subscriber: Subscriber,
    response_timeout: Duration,
    /// How long an unused fencing token is kept; `None` keeps it forever.
    fencing_token_ttl: Option<Duration>,
    /// How long the server remembers a withdrawn owner of expirable permits.
    owners_remembered: Duration,
    /// How long the server remembers the answer to a change of an expirable semaphore.
    requests_remembered: Duration,
    /// How long the server remembers a request to a plain semaphore or a latch.
    remembered: Duration,
    /// The attempts that may be unanswered at once. Renewals and releases need no slot, so they never queue behind
    /// attempts.
    attempt_slots: Semaphore,
    /// The marks of requests that were answered. The next command takes them along, to be removed.
    answered: Mutex<Vec<String>>,
}

impl RedisBackend {
    /// Connects. Returns when the server has answered.
    pub(crate) async fn connect(url: &str, config: &Config, clock: Clock) -> Result<Self, Error> {
        let server = url::parse(url)?;
        if clock::is_time_paused() {
            return Err(Error::TimePaused {
                server: server.address(),
            });
        }
        let commands = server.client(config.nodelay)?;
        // Always without Nagle's delay: subscriptions are small, rare, and waiters wait for their confirmation.
        let messages = server.client(true)?;
        let longest_pause = config.longest_reconnect_pause();
        let outages = Arc::new(OutageLog::new(server.address()));
        let backend = Self {
            link: Link::new(
                "commands",
                commands,
                longest_pause,
                Arc::clone(&outages),
                Arc::new(|_| {}),
            ),
            subscriber: Subscriber::new(
                messages,
                clock,
                config.response_timeout,
                Arc::clone(&outages),
            ),
            response_timeout: config.response_timeout,
            fencing_token_ttl: config.fencing_token_ttl,
            owners_remembered: config.owners_remembered(),
            requests_remembered: config.requests_remembered(),
            remembered: config.remembered(),
            attempt_slots: Semaphore::new(ATTEMPTS_AT_ONCE),
            answered: Mutex::default(),
        };
        match backend.link.connected(CONNECT_TIMEOUT).await {
            Ok(mut connected) => {
                let (name, connection) = (outages.server(), &mut connected.connection);
                let known = greeting::check_commands(name, connection);
                // A server that does not answer in time may still have all that is needed.
                if let Ok(Err(fault)) = timeout(config.response_timeout, known).await {
                    return Err(server.unreachable(fault, CONNECT_TIMEOUT));
                }
                let warned = greeting::warn_of_eviction(name, connection);
                // Without an answer there is no warning. It is not needed for locks.
                let _in_time = timeout(config.response_timeout, warned).await;
                Ok(backend)
            }
            Err(fault) => Err(server.unreachable(fault, CONNECT_TIMEOUT)),
        }
    }

    /// A slot for an attempt. Waits for one if all are in use, for at most the response timeout.
    async fn attempt_slot(&self) -> Result<SemaphorePermit<'_>, Fault> {
        // Every waiter comes by here now and then, so that its subscription is restored on a runtime that is alive.
        self.subscriber.revive();
        match self.attempt_slots.try_acquire() {
            Ok(slot) => Ok(slot),
            Err(_) => timeout(self.response_timeout, self.attempt_slots.acquire())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or_else(|| Fault::NotNow(cause("too many attempts are unanswered"))),
        }
    }

    /// Runs a script. Marks of answered requests are removed by a command beside it.
    async fn run(&self, script: &Script, with: impl Fn(Call) -> Call) -> Result<Value, Fault> {
        let answered = std::mem::take(&mut *self.answered.lock());
        if answered.is_empty() {
            return self.run_script(script, with).await;
        }
        let mut remove = redis::cmd("DEL");
        remove.arg(&answered);
        // If it fails, the marks expire.
        let (value, _) = tokio::join!(self.run_script(script, with), self.send(remove));
        value
    }

    /// Runs a script by its digest, or by its source if the server does not know it.
    async fn run_script(
        &self,
        script: &Script,
        with: impl Fn(Call) -> Call,
    ) -> Result<Value, Fault> {
        match self.send(with(script.by_digest()).into_cmd()).await {
            Err(Failed::NoScript) => match self.send(with(script.by_source()).into_cmd()).await {
                Err(Failed::NoScript) => {
                    Err(Fault::NotNow(cause("the server did not keep the script")))
                }
                Err(Failed::With(fault)) => Err(fault),
                Ok(value) => Ok(value),
            },
            Err(Failed::With(fault)) => Err(fault),
            Ok(value) => Ok(value),
        }
    }

    async fn send(&self, command: Cmd) -> Result<Value, Failed> {
        let mut connected = self
            .link
            .connected(self.response_timeout)
            .await
            .map_err(Failed::With)?;
        let answer = command.query_async::<Value>(&mut connected.connection);
        match timeout(self.response_timeout, answer).await {
            Ok(Ok(value)) => {
                self.link.answered();
                Ok(value)
            }
            Ok(Err(error)) if reply::is_noscript(&error) => Err(Failed::NoScript),
            Ok(Err(error)) => {
                if reply::breaks_connection(&error) {
                    self.link.broken(connected.epoch, &error.to_string());
                }
                Err(Failed::With(reply::fault(error)))
            }
            Err(_) => {
                self.link.timed_out(connected.epoch);
                let text = format!("no answer within {:?}", self.response_timeout);
                Err(Failed::With(Fault::Unknown(cause(text))))
            }
        }
    }
}

/// Why a command has no result.
enum Failed {
    /// The server does not know the script, so the command was not executed.
    NoScript,
    With(Fault),
}

impl Backend for RedisBackend {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        Box::pin(async move {
            let _slot = self.attempt_slot().await?;
            match attempt.target.hold_family()? {
                HoldFamily::Lock => lock::attempt(self, attempt).await,
                HoldFamily::Fair => fair::attempt(self, attempt).await,
                HoldFamily::ReadWrite => rw::attempt(self, attempt).await,
                HoldFamily::Semaphore => semaphore::attempt(self, attempt).await,
                HoldFamily::Permit => permit::attempt(self, attempt).await,
            }
        })
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)> {
        Box::pin(async move {
            let _slot = self.attempt_slot().await?;
            lock::attempt_all(self, attempts).await
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        Box::pin(async move {
            let Some(first) = batch.first() else {
                return Ok(Vec::new());
            };
            // One script renews them all: a batch has one family.
            match first.lease_family()? {
                LeaseFamily::Lock => lock::renew(self, batch).await,
                LeaseFamily::ReadWrite => rw::renew(self, batch).await,
                LeaseFamily::Permit => permit::renew(self, batch).await,
            }
        })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        Box::pin(async move {
            match target.hold_family()? {
                HoldFamily::Lock => lock::release(self, target).await,
                HoldFamily::Fair => fair::release(self, target).await,
                HoldFamily::ReadWrite => rw::release(self, target).await,
                HoldFamily::Semaphore => semaphore::release(self, target).await,
                HoldFamily::Permit => permit::release(self, target).await,
            }
        })
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        Box::pin(lock::release_all(self, targets))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match target.resource.kind.family() {
            Family::Permit => Box::pin(permit::withdraw(self, target)),
            Family::Semaphore => Box::pin(semaphore::withdraw(self, target)),
            _ => self.release(target),
        }
    }

    fn force_release<'a>(&'a self, resource: &'a Resource) -> Reply<'a, bool> {
        Box::pin(async move {
            match resource.kind.family() {
                _ if resource.kind.is_fair() => fair::force_release(self, &resource.key).await,
                Family::Lock => lock::force_release(self, &resource.key).await,
                Family::ReadWrite => rw::force_release(self, resource).await,
                Family::Semaphore => semaphore::force_release(self, &resource.key).await,
                Family::Permit => permit::force_release(self, &resource.key).await,
                Family::Latch => latch::force_release(self, &resource.key).await,
            }
        })
    }

    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        Box::pin(async move {
            match resource.kind.family() {
                Family::Lock => lock::inspect(self, &resource.key).await,
                Family::ReadWrite => rw::inspect(self, resource).await,
                Family::Semaphore | Family::Latch => number::inspect(self, &resource.key).await,
                Family::Permit => permit::inspect(self, &resource.key).await,
            }
        })
    }

    fn look<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Looked>> {
        Box::pin(look::look(self, batch))
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        Box::pin(async move {
            // A slot as for attempts: all waiters of a latch ask for its count at once when it opens.
            let _slot = self.attempt_slot().await?;
            match change {
                Change::Semaphore(change) => semaphore::adjust(self, key, request, change).await,
                Change::Permit(change) => permit::adjust(self, key, request, change).await,
                Change::Latch(change) => latch::adjust(self, key, request, change).await,
            }
        })
    }

    fn answered(&self, key: &Key, request: Owner) {
        let mark = names::mark(key.name(), &request.text());
        self.answered.lock().push(mark);
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        self.subscriber.subscribe(names::channel(target))
    }

    fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    fn epoch(&self) -> u64 {
        self.link.epoch()
    }

    fn epoch_after(&self, epoch: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(self.link.epoch_after(epoch))
    }

    fn has_connection(&self) -> bool {
        true
    }

    #[cfg(feature = "test-util")]
    fn channels(&self) -> usize {
        self.subscriber.channels()
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

//! Redis and Valkey, standalone: one Lua script for each operation, over one connection for commands and one for
//! messages.
//!
//! Data, names and messages are Redisson's; the scripts are our own. No type of the driver leaves this folder.

mod channels;
mod fair;
mod latch;
mod link;
mod lock;
mod names;
mod number;
mod permit;
mod reply;
mod rw;
mod script;
mod semaphore;
mod subscriber;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::link::Link;
use self::script::{Call, Script};
use self::subscriber::Subscriber;
use super::{
    Attempt, Attempted, Backend, Change, Fault, Inspected, Released, Renewal, Reply, Subscription,
    Target, cause, unsupported,
};
use crate::clock::Clock;
use crate::config::{ATTEMPTS_AT_ONCE, CONNECT_TIMEOUT, Config};
use crate::error::Error;
use crate::key::Resource;
use crate::kind::{Family, Kind};

/// One client's way to a Redis server.
pub(crate) struct RedisBackend {
    link: Arc<Link>,
    subscriber: Subscriber,
    response_timeout: Duration,
    /// How long an unused fencing token is kept; for ever where there is none.
    fencing_token_ttl: Option<Duration>,
    /// How long the mark of a withdrawn owner stands, and the answer to a request.
    owners_remembered: Duration,
    requests_remembered: Duration,
    /// How long the server remembers a request that counts once.
    remembered: Duration,
    /// Places for attempts in the connection. Renewals and releases need none, so they never stand behind a crowd.
    attempts: Semaphore,
}

impl RedisBackend {
    /// Connects, and answers when the server has.
    pub(crate) async fn connect(url: &str, config: &Config, clock: Clock) -> Result<Self, Error> {
        let server = url::parse(url)?;
        let commands = server.client(config.nodelay)?;
        // Messages are small, rare and awaited: never held back.
        let messages = server.client(true)?;
        let longest_pause = config.longest_reconnect_pause();
        let backend = Self {
            link: Link::new("commands", commands, longest_pause, Arc::new(|_| {})),
            subscriber: Subscriber::new(messages, clock, config.response_timeout),
            response_timeout: config.response_timeout,
            fencing_token_ttl: config.fencing_token_ttl,
            owners_remembered: config.owners_remembered(),
            requests_remembered: config.requests_remembered(),
            remembered: config.remembered(),
            attempts: Semaphore::new(ATTEMPTS_AT_ONCE),
        };
        match backend.link.connected(CONNECT_TIMEOUT).await {
            Ok(_) => Ok(backend),
            Err(fault) => Err(server.unreachable(fault, CONNECT_TIMEOUT)),
        }
    }

    /// A place for an attempt in the connection.
    async fn place(&self) -> Result<SemaphorePermit<'_>, Fault> {
        self.subscriber.revive();
        match self.attempts.try_acquire() {
            Ok(place) => Ok(place),
            Err(_) => timeout(self.response_timeout, self.attempts.acquire())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or_else(|| Fault::NotNow(cause("too many attempts wait for an answer"))),
        }
    }

    /// Runs a script: by its digest, or by its source where the server does not know it.
    async fn run(&self, script: &Script, with: impl Fn(Call) -> Call) -> Result<Value, Fault> {
        match self.send(with(script.by_digest()).into_cmd()).await {
            Err(Failed::NoScript) => match self.send(with(script.by_source()).into_cmd()).await {
                Err(Failed::NoScript) => {
                    Err(Fault::NotNow(cause("the server forgot the script at once")))
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

/// Why a command has no value to show.
enum Failed {
    /// It was not carried out: the server does not know the script.
    NoScript,
    With(Fault),
}

impl Backend for RedisBackend {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        Box::pin(async move {
            let _place = self.place().await?;
            match attempt.target.resource.kind {
                Kind::Reentrant | Kind::NonReentrant | Kind::Spin => self.lock(attempt).await,
                Kind::Fenced => self.lock_fenced(attempt).await,
                Kind::Permit => self.take_permits(attempt).await,
                Kind::Fair | Kind::NonReentrantFair => self.lock_fair(attempt).await,
                Kind::Read => self.lock_read(attempt).await,
                Kind::Write => self.lock_write(attempt).await,
                Kind::Semaphore => self.take_from_semaphore(attempt).await,
                Kind::Latch => Err(unsupported(attempt.target.resource.kind, "be held")),
            }
        })
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)> {
        Box::pin(async move {
            let _place = self.place().await?;
            self.lock_all(attempts).await
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        let family = batch
            .first()
            .map(|renewal| renewal.target.resource.kind.family());
        Box::pin(async move {
            match family {
                None => Ok(Vec::new()),
                Some(Family::Lock) => self.renew_locks(batch).await,
                Some(Family::Permit) => self.renew_permits(batch).await,
                Some(Family::ReadWrite) => self.renew_rw(batch).await,
                Some(Family::Semaphore | Family::Latch) => {
                    Err(unsupported(batch[0].target.resource.kind, "renew"))
                }
            }
        })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        Box::pin(async move {
            match target.resource.kind.family() {
                _ if target.resource.kind.is_fair() => self.unlock_fair(target).await,
                Family::Lock => self.unlock(target).await,
                Family::Permit => self.give_permits_back(target).await,
                Family::ReadWrite => self.unlock_rw(target).await,
                Family::Semaphore => self.give_to_semaphore(target).await,
                Family::Latch => Err(unsupported(target.resource.kind, "be released")),
            }
        })
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        Box::pin(self.unlock_all(targets))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match target.resource.kind.family() {
            Family::Permit => Box::pin(self.withdraw_permits(target)),
            _ => self.release(target),
        }
    }

    fn force_release<'a>(&'a self, resource: &'a Resource) -> Reply<'a, bool> {
        let Resource { kind, key } = resource;
        Box::pin(async move {
            match kind.family() {
                _ if kind.is_fair() => self.force_unlock_fair(key).await,
                Family::Lock => self.force_unlock(key).await,
                Family::Permit => self.delete_permits(key).await,
                Family::ReadWrite => self.force_unlock_rw(*kind, key).await,
                Family::Semaphore => self.delete_number(key, None).await,
                Family::Latch => self.delete_latch(key).await,
            }
        })
    }

    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        let Resource { kind, key } = resource;
        Box::pin(async move {
            match kind.family() {
                Family::Lock => self.inspect_lock(key).await,
                Family::Permit => self.inspect_permits(key).await,
                Family::ReadWrite => self.inspect_rw(*kind, key).await,
                Family::Semaphore | Family::Latch => self.inspect_number(key).await,
            }
        })
    }

    fn adjust<'a>(&'a self, target: &'a Target, change: Change) -> Reply<'a, i64> {
        Box::pin(async move {
            // A latch that opens has all its waiters look at once.
            let _place = self.place().await?;
            match target.resource.kind.family() {
                Family::Permit => self.adjust_permits(target, change).await,
                Family::Semaphore => self.adjust_semaphore(target, change).await,
                Family::Latch => self.adjust_latch(target, change).await,
                Family::Lock | Family::ReadWrite => Err(unsupported(target.resource.kind, "count")),
            }
        })
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        self.subscriber.subscribe(names::channel(target))
    }

    fn epoch(&self) -> u64 {
        self.link.epoch()
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

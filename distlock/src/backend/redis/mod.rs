//! Redis and Valkey, standalone: one Lua script for each operation, over one connection for commands and one for
//! messages.
//!
//! Data, names and messages are Redisson's; the scripts are our own. No type of the driver leaves this folder.

mod channels;
mod link;
mod names;
mod reply;
mod script;
mod subscriber;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::link::Link;
use self::script::{Call, Script};
use self::subscriber::Subscriber;
use super::{
    Attempted, Backend, Fault, Inspected, Released, Renewal, Reply, Subscription, Target, cause,
};
use crate::clock::Clock;
use crate::config::{ATTEMPTS_AT_ONCE, CONNECT_TIMEOUT, Config};
use crate::error::Error;
use crate::key::Key;
use crate::kind::Kind;

/// One client's way to a Redis server.
pub(crate) struct RedisBackend {
    link: Arc<Link>,
    subscriber: Subscriber,
    response_timeout: Duration,
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
            attempts: Semaphore::new(ATTEMPTS_AT_ONCE),
        };
        match backend.link.connected(CONNECT_TIMEOUT).await {
            Ok(_) => Ok(backend),
            Err(fault) => Err(server.unreachable(fault, CONNECT_TIMEOUT)),
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
    fn attempt<'a>(&'a self, target: &'a Target, lease: Duration) -> Reply<'a, Attempted> {
        Box::pin(async move {
            self.subscriber.revive();
            let _place = match self.attempts.try_acquire() {
                Ok(place) => place,
                Err(_) => timeout(self.response_timeout, self.attempts.acquire())
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .ok_or_else(|| Fault::NotNow(cause("too many attempts wait for an answer")))?,
            };
            let script = match target.kind {
                Kind::Reentrant => &script::LOCK_ACQUIRE,
            };
            let (owner, lease) = (target.owner.text(), reply::millis(lease));
            let with = |call: Call| call.key(target.key.name()).arg(&owner).arg(lease);
            self.run(script, with).await.and_then(reply::attempted)
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        Box::pin(async move {
            let with = |call: Call| {
                let keys = batch.iter().map(|renewal| &**renewal.target.key.name());
                batch.iter().fold(call.keys(keys), |call, renewal| {
                    let owner = renewal.target.owner.text();
                    call.arg(owner)
                        .arg(renewal.count)
                        .arg(reply::millis(renewal.lease))
                })
            };
            let replies = self.run(&script::LOCK_RENEW, with).await?;
            reply::renewed(replies, batch.len())
        })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        Box::pin(async move {
            let (script, channel) = match target.kind {
                Kind::Reentrant => (
                    &script::LOCK_RELEASE,
                    names::lock_channel(target.key.name()),
                ),
            };
            let owner = target.owner.text();
            let with = |call: Call| call.key(target.key.name()).arg(&owner).arg(&channel);
            let value = self.run(script, with).await?;
            reply::released(value, || self.subscriber.listens(&channel))
        })
    }

    fn force_release<'a>(&'a self, kind: Kind, key: &'a Key) -> Reply<'a, bool> {
        Box::pin(async move {
            let (script, channel) = match kind {
                Kind::Reentrant => (&script::LOCK_FORCE_RELEASE, names::lock_channel(key.name())),
            };
            let value = self
                .run(script, |call| call.key(key.name()).arg(&channel))
                .await?;
            reply::forced(value)
        })
    }

    fn inspect<'a>(&'a self, kind: Kind, key: &'a Key) -> Reply<'a, Inspected> {
        Box::pin(async move {
            let script = match kind {
                Kind::Reentrant => &script::LOCK_INSPECT,
            };
            let value = self.run(script, |call| call.key(key.name())).await?;
            reply::inspected(value)
        })
    }

    fn subscribe(&self, kind: Kind, key: &Key) -> Subscription {
        self.subscriber.subscribe(match kind {
            Kind::Reentrant => names::lock_channel(key.name()),
        })
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

//! What a client has of its servers, and how a script gets to the server of a key.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::batches::{BatchKind, Batches};
use super::connection::url::Url;
use super::refused_messages::RefusedMessages;
use super::script::{Fill, Script};
use super::servers::Servers;
use crate::backend::{Fault, Home, cause};
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::error::{Error, show};
use crate::resource::identity::Identity;
use crate::resource::key::Key;
use crate::sync::Mutex;
use crate::sync::all;

/// One client's connections to its servers.
pub(crate) struct RedisBackend {
    /// For the tasks that send attempts.
    pub(super) me: Weak<Self>,
    pub(super) servers: Servers,
    pub(super) response_timeout: Duration,
    /// Whether servers are to tell of changes of the keys of holds.
    pub(super) tracks: bool,
    /// How long an unused fencing token is kept; `None` keeps it forever.
    pub(super) fencing_token_ttl: Option<Duration>,
    /// How long the server remembers a withdrawn owner of expirable permits.
    pub(super) owners_remembered: Duration,
    /// How long the server remembers that a latch was opened.
    pub(super) opening_remembered: Duration,
    /// How long the server remembers a request to a semaphore or a latch.
    pub(super) remembered: Duration,
    /// The marks of requests that were answered, and their keys. A command removes them beside the next script that goes to their
    /// server.
    pub(super) answered: Mutex<Vec<(Key, String)>>,
    /// The attempts and releases of many tasks that are sent by one command: those of plain locks, and those of readers.
    lock_batches: Batches,
    reader_batches: Batches,
    refused_messages: RefusedMessages,
}

impl RedisBackend {
    /// The servers of a URL. Nothing is sent.
    pub(crate) fn new(
        url: Url,
        identity: &Arc<Identity>,
        config: &Config,
        clock: Clock,
    ) -> Result<Arc<Self>, Error> {
        if clock::is_time_paused() {
            return Err(Error::TimePaused {
                server: url.target.to_string(),
            });
        }
        let servers = Servers::new(url, identity, config, clock)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            lock_batches: Batches::new(BatchKind::Locks, servers.is_one_server()),
            reader_batches: Batches::new(BatchKind::Readers, servers.is_one_server()),
            servers,
            response_timeout: config.response_timeout,
            tracks: config.track_holds,
            fencing_token_ttl: config.fencing_token_ttl,
            owners_remembered: config.owners_remembered(),
            opening_remembered: config.opening_remembered(),
            remembered: config.remembered(),
            answered: Mutex::default(),
            refused_messages: RefusedMessages::default(),
        }))
    }

    /// Connects. Returns when the server has answered, or after this time.
    pub(crate) async fn connect(&self, patience: Duration) -> Result<(), Error> {
        self.servers.connect(patience).await
    }

    /// Sets the function that says whether the client holds, acquires or releases anything.
    pub(crate) fn set_stake(&self, has_stake: impl Fn() -> bool + Send + Sync + 'static) {
        self.servers.set_stake(has_stake);
    }

    /// Begins to connect, if there is a runtime to do so in. The caller does not wait for it.
    pub(crate) fn begin_to_connect(&self) {
        self.servers.begin_to_connect();
    }

    /// The operations of this kind that are sent by one command.
    pub(super) fn batches(&self, kind: BatchKind) -> &Batches {
        match kind {
            BatchKind::Locks => &self.lock_batches,
            BatchKind::Readers => &self.reader_batches,
        }
    }

    /// Runs a script for a key. Marks of answered requests are removed by commands beside it.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and each command has room for this"
    )]
    pub(super) fn run(
        &self,
        key: &Key,
        script: &Script,
        with: Fill<'_>,
    ) -> impl Future<Output = Result<Value, Fault>> {
        async move {
            // In a line of its own: the mutex is not kept.
            let is_none_answered = self.answered.lock().is_empty();
            let value = if is_none_answered {
                self.servers.route(key).run(script, with).await?
            } else {
                // Boxed: this is rare, and each command would have room for it.
                Box::pin(self.run_and_remove(key, script, with)).await?
            };
            Ok(self.refused_messages.read(value, key, &self.servers))
        }
    }

    /// Runs a script for a key, and removes the marks of answered requests beside it.
    async fn run_and_remove(
        &self,
        key: &Key,
        script: &Script,
        with: Fill<'_>,
    ) -> Result<Value, Fault> {
        let remove = |(key, marks): (Key, Vec<String>)| async move {
            let mut remove = redis::cmd("DEL");
            remove.arg(&marks);
            self.servers.route(&key).send(remove).await
        };
        let removed = all(self.take_answered(key).into_iter().map(remove));
        // A failed removal is not repeated: the marks expire.
        let (value, _) = tokio::join!(self.servers.route(key).run(script, with), removed);
        value
    }

    /// Takes the marks that live on the server of this key, by slot.
    fn take_answered(&self, key: &Key) -> Vec<(Key, Vec<String>)> {
        let mut answered = self.answered.lock();
        if answered.is_empty() {
            return Vec::new();
        }
        let server = self.servers.route(key).home().server;
        let of_server = answered.extract_if(.., |(key, _)| {
            self.servers.route(key).home().server == server
        });
        let marks = of_server.map(|(key, mark)| (self.servers.route(&key).home(), (key, mark)));
        let slots = Home::group(marks).into_iter().filter_map(|(_, marks)| {
            let (keys, marks): (Vec<_>, Vec<_>) = marks.into_iter().unzip();
            Some((keys.into_iter().next()?, marks))
        });
        slots.collect()
    }

    /// Restores the subscriptions at the server of a key, on a runtime that is alive, if their own runtime has ended. What a waiter
    /// sends now and then does this.
    pub(super) fn revive_subscriptions(&self, key: &Key) {
        self.servers
            .route(key)
            .with_node(|node| node.subscriber().revive());
    }

    /// How many of this client's subscriptions the server counts for a key's channel.
    pub(super) fn subscribers(&self, key: &Key, channel: &str) -> i64 {
        self.servers
            .route(key)
            .with_node(|node| node.subscriber().subscribers(channel))
    }
}

/// The fault of a server that may not grant yet. `left`: for how long.
pub(super) fn restarted(left: Duration) -> Fault {
    Fault::NotNow(cause(format!(
        "the server was restarted and may have lost its locks, so it grants nothing for another {} (`restart_grace`)",
        show(left)
    )))
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

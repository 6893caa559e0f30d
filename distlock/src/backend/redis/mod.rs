//! Redis and Valkey: one Lua script for each operation, over one connection for commands and one for messages to each
//! server.
//!
//! The data, its names and the messages are Redisson's; the scripts are our own. The files for the primitives have the
//! same functions as those in `memory`. No type of the driver leaves this folder.

mod attempt_slots;
mod confirm;
mod connection;
mod examine;
mod facts;
mod fair;
#[cfg(feature = "test-util")]
pub(crate) mod fuzz;
mod latch;
mod lock;
mod look;
mod messages;
mod names;
mod number;
mod permit;
mod reply;
mod rw;
mod script;
mod semaphore;
mod servers;

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;

use self::attempt_slots::Sender;
pub(crate) use self::connection::url::Url;
use self::script::{Call, Script};
use self::servers::{Node, Servers};
use super::family::{HoldFamily, LeaseFamily};
use super::{
    Attempt, Attempted, Backend, Change, ConnectionGap, Disconnection, Examined, Fault, Home,
    Inspected, LatchSeen, Looked, NamedClient, Released, Renewal, Renewed, Reply, ScanPosition,
    Scanned, ServerFacts, Subscription, Target, cause, renewed_together,
};
use crate::clock::{self, Clock};
use crate::config::{Config, MOST_MARKS_KEPT};
use crate::error::Error;
use crate::mutex::Mutex;
use crate::resource::identity::Identity;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::Owner;

/// One client's connections to its servers.
pub(crate) struct RedisBackend {
    /// For the tasks that send attempts.
    me: Weak<Self>,
    servers: Servers,
    response_timeout: Duration,
    /// How long an unused fencing token is kept; `None` keeps it forever.
    fencing_token_ttl: Option<Duration>,
    /// How long the server remembers a withdrawn owner of expirable permits.
    owners_remembered: Duration,
    /// How long the server remembers that a latch was opened.
    opening_remembered: Duration,
    /// How long the server remembers the answer to a change of an expirable semaphore.
    requests_remembered: Duration,
    /// How long the server remembers a request to a plain semaphore or a latch.
    remembered: Duration,
    /// The marks of requests that were answered, and their keys. The next command to their server takes them along, to be
    /// removed.
    answered: Mutex<Vec<(Key, String)>>,
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
            servers,
            response_timeout: config.response_timeout,
            fencing_token_ttl: config.fencing_token_ttl,
            owners_remembered: config.owners_remembered(),
            opening_remembered: config.opening_remembered(),
            requests_remembered: config.requests_remembered(),
            remembered: config.remembered(),
            answered: Mutex::default(),
        }))
    }

    /// Connects. Returns when the server has answered, or after this time.
    pub(crate) async fn connect(&self, patience: Duration) -> Result<(), Error> {
        self.servers.connect(patience).await
    }

    /// Begins to connect, if there is a runtime to do so in. The caller does not wait for it.
    pub(crate) fn begin_to_connect(&self) {
        self.servers.begin_to_connect();
    }

    /// Sends one attempt, by the script of its kind.
    async fn send_attempt(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        match attempt.target.hold_family()? {
            HoldFamily::Lock => lock::attempt(self, attempt).await,
            HoldFamily::Fair => fair::attempt(self, attempt).await,
            HoldFamily::ReadWrite => rw::attempt(self, attempt).await,
            HoldFamily::Semaphore => semaphore::attempt(self, attempt).await,
            HoldFamily::Permit => permit::attempt(self, attempt).await,
        }
    }

    /// Sends a change of the number under a key.
    async fn send_change(&self, key: &Key, request: Owner, change: Change) -> Result<i64, Fault> {
        match change {
            Change::Semaphore(change) => semaphore::adjust(self, key, request, change).await,
            Change::Permit(change) => permit::adjust(self, key, request, change).await,
            Change::Latch(change) => latch::adjust(self, key, request, change).await,
        }
    }

    /// Runs a script for a key. Marks of answered requests are removed by commands beside it.
    async fn run(
        &self,
        key: &Key,
        script: &Script,
        with: impl Fn(Call) -> Call,
    ) -> Result<Value, Fault> {
        let answered = self.take_answered(key);
        if answered.is_empty() {
            return self.servers.run(key, script, with).await;
        }
        let remove = |(key, marks): (Key, Vec<String>)| async move {
            let mut remove = redis::cmd("DEL");
            remove.arg(&marks);
            self.servers.send(&key, remove).await
        };
        let removed = join_all(answered.into_iter().map(remove));
        // If it fails, the marks expire.
        let (value, _) = tokio::join!(self.servers.run(key, script, with), removed);
        value
    }

    /// Takes the marks that live on the server of this key, by slot.
    fn take_answered(&self, key: &Key) -> Vec<(Key, Vec<String>)> {
        let mut answered = self.answered.lock();
        if answered.is_empty() {
            return Vec::new();
        }
        let server = self.servers.home(key).server;
        let mut slots: BTreeMap<u16, (Key, Vec<String>)> = BTreeMap::new();
        answered.retain_mut(|(key, mark)| {
            let home = self.servers.home(key);
            if home.server != server {
                return true;
            }
            let (_, marks) = slots
                .entry(home.slot)
                .or_insert_with(|| (key.clone(), Vec::new()));
            marks.push(std::mem::take(mark));
            false
        });
        slots.into_values().collect()
    }

    /// How many of this client's subscriptions the server counts for a key's channel.
    fn subscribers(&self, key: &Key, channel: &str) -> i64 {
        self.servers
            .with_node(key, |node| node.subscriber().subscribers(channel))
    }

    /// Renews holds of one family and one slot.
    async fn renew_in_slot(&self, batch: &[Renewal]) -> Vec<Result<bool, Fault>> {
        let renewed = async {
            let Some(first) = batch.first() else {
                return Ok(Vec::new());
            };
            // One script renews them all: a batch has one family.
            let key = &first.target.resource.key;
            match first.lease_family()? {
                LeaseFamily::Lock => lock::renew(self, key, batch).await,
                LeaseFamily::ReadWrite => rw::renew(self, key, batch).await,
                LeaseFamily::Permit => permit::renew(self, key, batch).await,
            }
        };
        renewed_together(renewed.await, batch)
    }

    /// Renews holds of several slots: those of each slot in a command of its own, all at once.
    async fn renew_by_slot(&self, batch: &[Renewal]) -> Vec<Result<bool, Fault>> {
        let mut slots: BTreeMap<u16, (Vec<usize>, Vec<Renewal>)> = BTreeMap::new();
        for (at, renewal) in batch.iter().enumerate() {
            let slot = self.servers.home(&renewal.target.resource.key).slot;
            let (positions, renewals) = slots.entry(slot).or_default();
            positions.push(at);
            renewals.push(renewal.clone());
        }
        let answers = slots.into_values().map(|(positions, renewals)| async move {
            let renewed = self.renew_in_slot(&renewals).await;
            positions.into_iter().zip(renewed).collect::<Vec<_>>()
        });
        let mut answers: Vec<_> = join_all(answers).await.into_iter().flatten().collect();
        answers.sort_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl Backend for RedisBackend {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        Box::pin(async move {
            match self.attempt_sender(&attempt.target.resource.key)? {
                Sender::Caller(_slot) => self.send_attempt(attempt).await,
                Sender::Task(slots) => {
                    let (targets, attempt) = (vec![attempt.target.clone()], attempt.clone());
                    let send = |me: Arc<Self>| async move { me.send_attempt(&attempt).await };
                    // Boxed, here and below, because that is rare, and each attempt would have room for it.
                    Box::pin(self.sent_by_task(slots, targets, send)).await
                }
            }
        })
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)> {
        Box::pin(async move {
            let Some(first) = attempts.first() else {
                return Ok((0, Attempted::Granted { token: None }));
            };
            let key = &first.target.resource.key;
            match self.attempt_sender(key)? {
                Sender::Caller(_slot) => lock::attempt_all(self, key, attempts).await,
                Sender::Task(slots) => {
                    let targets = attempts.iter().map(|attempt| attempt.target.clone());
                    let (targets, key, attempts) =
                        (targets.collect(), key.clone(), attempts.to_vec());
                    let send = |me: Arc<Self>| async move {
                        lock::attempt_all(&me, &key, &attempts).await
                    };
                    Box::pin(self.sent_by_task(slots, targets, send)).await
                }
            }
        })
    }

    fn confirm<'a>(&'a self, granted: &'a [Attempt]) -> Option<Reply<'a, ()>> {
        let key = &granted.first()?.target.resource.key;
        // Asked again after the grant: it may have come over a connection that was made since the attempt began.
        if let Some(left) = self.servers.grace_left(key) {
            return Some(Box::pin(ready(Err(restarted(left)))));
        }
        let confirm = || -> Reply<'a, ()> { Box::pin(confirm::confirm(self, granted)) };
        self.servers.confirms(key).then(confirm)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a> {
        let slot = |renewal: &Renewal| self.servers.home(&renewal.target.resource.key).slot;
        match batch {
            [first, rest @ ..] if rest.iter().any(|one| slot(one) != slot(first)) => {
                Box::pin(self.renew_by_slot(batch))
            }
            _ => Box::pin(self.renew_in_slot(batch)),
        }
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
        Box::pin(async move {
            match targets.first() {
                Some(first) => lock::release_all(self, &first.resource.key, targets).await,
                None => Ok(Vec::new()),
            }
        })
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

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, Examined> {
        Box::pin(examine::examine(self, key))
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        pattern: &'a str,
        most: u32,
    ) -> Reply<'a, Scanned> {
        Box::pin(examine::scan(self, position, pattern, most))
    }

    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        Box::pin(examine::named_clients(self, key))
    }

    fn ping(&self) -> Reply<'_, ()> {
        Box::pin(self.servers.ping())
    }

    fn longest_disconnection(&self) -> Option<Disconnection> {
        self.servers.longest_disconnection()
    }

    fn servers(&self) -> String {
        self.servers.name()
    }

    fn look<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Looked>> {
        Box::pin(async move {
            match batch.first() {
                Some(first) => look::look(self, &first.resource.key, batch).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        Box::pin(async move {
            // A slot as for attempts: all waiters of a latch ask for its count at once when it opens.
            match self.attempt_sender(key)? {
                Sender::Caller(_slot) => self.send_change(key, request, change).await,
                Sender::Task(slots) => {
                    let key = key.clone();
                    let send = move |me: Arc<Self>| async move {
                        me.send_change(&key, request, change).await
                    };
                    Box::pin(self.sent_by_task(slots, Vec::new(), send)).await
                }
            }
        })
    }

    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen> {
        Box::pin(async move {
            // As for a change: all waiters of a latch ask when it opens.
            match self.attempt_sender(key)? {
                Sender::Caller(_slot) => latch::seen(self, key).await,
                Sender::Task(slots) => {
                    let key = key.clone();
                    let send = move |me: Arc<Self>| async move { latch::seen(&me, &key).await };
                    Box::pin(self.sent_by_task(slots, Vec::new(), send)).await
                }
            }
        })
    }

    fn has_heard_all<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        let channel = names::channel(target);
        let ask = |node: &Node| node.subscriber().has_heard_all(&channel);
        self.servers.with_node(&target.resource.key, ask)
    }

    fn answered(&self, key: &Key, request: Owner) {
        let mark = names::mark(key.name(), &request.text());
        let mut answered = self.answered.lock();
        if answered.len() < MOST_MARKS_KEPT {
            answered.push((key.clone(), mark));
        }
    }

    fn server_facts<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Vec<ServerFacts>> + Send + 'a>> {
        Box::pin(self.servers.facts(key))
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        let channel = names::channel(target);
        let subscribe = |node: &Node| node.subscriber().subscribe(channel);
        self.servers.with_node(&target.resource.key, subscribe)
    }

    fn refuses(&self, kind: Kind, key: &Key) -> Option<&'static str> {
        self.servers.refuses(kind, key.name())
    }

    fn home(&self, key: &Key) -> Home {
        self.servers.home(key)
    }

    fn counts_all_listeners(&self) -> bool {
        self.servers.count_all_listeners()
    }

    fn disconnected(&self, key: &Key) -> Option<Fault> {
        self.servers.disconnected(key)
    }

    fn connection_gap(&self, key: &Key) -> Option<ConnectionGap> {
        self.servers.connection_gap(key)
    }

    fn epoch(&self, key: &Key) -> u64 {
        self.servers.epoch(key)
    }

    fn may_have_lost(&self, key: &Key, epoch: u64) -> bool {
        self.servers.may_have_lost(key, epoch)
    }

    fn epoch_changes(&self) -> u64 {
        self.servers.epochs().changes()
    }

    fn epoch_changes_after(&self, changes: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> {
        Box::pin(self.servers.epochs().changes_after(changes))
    }

    fn has_connection(&self) -> bool {
        true
    }

    #[cfg(feature = "test-util")]
    fn channels(&self) -> usize {
        self.servers.channels()
    }

    #[cfg(feature = "test-util")]
    fn connections(&self) -> Vec<super::ConnectionSeen> {
        self.servers.connections()
    }
}

/// The server may not grant yet, for so long.
fn restarted(left: Duration) -> Fault {
    Fault::NotNow(cause(format!(
        "the server was restarted and may have lost its locks, so it grants nothing for another {left:.1?} (`restart_grace`)"
    )))
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

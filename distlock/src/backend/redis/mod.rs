//! Redis and Valkey: one Lua script for each operation, over one connection for commands and one for messages to each
//! server.
//!
//! The data, its names and the messages are Redisson's; the scripts are our own. `families` has
//! one file per family of primitives. No type of the driver leaves this folder.

mod attempt_slots;
mod backend;
mod batch_sender;
mod batches;
mod confirm;
pub(crate) mod connection;
mod denied;
mod examine;
mod families;
mod messages;
mod names;
mod peek;
mod refused_messages;
mod renewals;
pub(crate) mod reply;
mod scan;
pub(crate) mod script;
pub(crate) mod servers;
pub(crate) mod slot;
mod still_held;
mod tracking;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use self::attempt_slots::Sender;
pub(crate) use self::backend::RedisBackend;
use self::backend::restarted;
#[cfg(feature = "test-util")]
use self::batches::BatchKind;
pub(crate) use self::connection::url::Url;
use self::families::{fair, latch, lock, number, permit, rw, semaphore};
use self::servers::Node;
use super::family::HoldFamily;
use super::reports::KeyReport;
use super::{
    Attempt, Attempted, AttemptedAll, Backend, Change, ConnectionGap, Connections, Disconnection,
    Fault, Forced, Home, Inspected, LatchSeen, NamedClient, Peeked, Released, Renewal, Renewed,
    Reply, Reports, ScanFilter, ScanPosition, Scanned, Seen, ServerFacts, Subscription, Target,
    Told,
};
use crate::config::MOST_MARKS_KEPT;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::{Family, Kind};
use crate::resource::owner::Owner;

impl RedisBackend {
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
}

impl Backend for RedisBackend {
    #[cfg(feature = "test-util")]
    fn collect_always(&self) {
        for kind in [BatchKind::Locks, BatchKind::Readers] {
            self.batches(kind).collect_always();
        }
    }

    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        // Decided before the future is made: a crowd waits for tasks that send, and each of them would have room for sending.
        match self.attempt_sender(&attempt.target.resource.key) {
            Ok(Sender::Caller(slot)) => Reply::new(async move {
                let _slot = slot;
                match attempt.target.hold_family()? {
                    // A fast path for the most common family.
                    HoldFamily::Lock => lock::attempt(self, attempt).await,
                    // Boxed: this is rarer, and every future of an attempt would be larger by it.
                    _ => Box::pin(self.send_attempt(attempt)).await,
                }
            }),
            Ok(Sender::Task(slots)) => {
                let (targets, attempt) = (vec![attempt.target.clone()], attempt.clone());
                let send = |me: Arc<Self>| async move { me.send_attempt(&attempt).await };
                Reply::new(self.sent_by_task(slots, targets, send))
            }
            Err(fault) => Reply::new(ready(Err(fault))),
        }
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, AttemptedAll> {
        Reply::new(async move {
            let Some(first) = attempts.first() else {
                return Ok(AttemptedAll::granted());
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
        // A rule of tests/model: grace_is_asked_for_again_after_the_grant.
        let key = &granted.first()?.target.resource.key;
        // Asked again after the grant: it may have come over a connection that was made since the attempt began.
        if let Some(left) = self.servers.grace_left(key) {
            return Some(Reply::new(ready(Err(restarted(left)))));
        }
        let confirm = || -> Reply<'a, ()> { Reply::new(confirm::confirm(self, granted)) };
        self.servers.confirms(key).then(confirm)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a> {
        Box::pin(renewals::renew(self, batch))
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        // A box for each family: that of a plain lock is the smallest.
        match target.hold_family() {
            Ok(HoldFamily::Lock) => Reply::new(lock::release(self, target)),
            Ok(HoldFamily::Fair) => Reply::new(fair::release(self, target)),
            Ok(HoldFamily::ReadWrite) => Reply::new(rw::release(self, target)),
            Ok(HoldFamily::Semaphore) => Reply::new(semaphore::release(self, target)),
            Ok(HoldFamily::Permit) => Reply::new(permit::release(self, target)),
            Err(fault) => Reply::new(ready(Err(fault))),
        }
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        match targets.first() {
            Some(first) => Reply::new(lock::release_all(self, &first.resource.key, targets)),
            None => Reply::new(ready(Ok(Vec::new()))),
        }
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match target.resource.kind.family() {
            Family::Permit => Reply::new(permit::withdraw(self, target)),
            Family::Semaphore => Reply::new(semaphore::withdraw(self, target)),
            _ => self.release(target),
        }
    }

    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced> {
        Reply::new(async move {
            match resource.kind.family() {
                _ if resource.kind.is_fair() => {
                    fair::force_release(self, &resource.key, seen).await
                }
                Family::Lock => lock::force_release(self, &resource.key, seen).await,
                Family::ReadWrite => rw::force_release(self, resource, seen).await,
                Family::Semaphore => semaphore::force_release(self, &resource.key, seen).await,
                Family::Permit => permit::force_release(self, &resource.key, seen).await,
                Family::Latch => latch::force_release(self, &resource.key, seen).await,
            }
        })
    }

    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>> {
        Reply::new(async move {
            match batch.first() {
                Some(first) => peek::peek(self, &first.resource.key, batch).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn track<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Option<Vec<bool>>> {
        Reply::new(async move {
            match batch.first() {
                Some(first) => still_held::read(self, &first.resource.key, batch).await,
                None => Ok(Some(Vec::new())),
            }
        })
    }

    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64> {
        Reply::new(async move {
            // Limited like attempts: when a latch opens, all its waiters ask for the count at once.
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
        Reply::new(async move {
            // Limited, for the same reason as a change.
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

    fn answered(&self, key: &Key, request: Owner) {
        let mark = names::mark(key.name(), &request.text());
        let mut answered = self.answered.lock();
        // Beyond the limit the mark expires in the server, instead of growing the list of a client that sends nothing more.
        if answered.len() < MOST_MARKS_KEPT {
            answered.push((key.clone(), mark));
        }
    }

    fn refuses(&self, kind: Kind, key: &Key) -> Option<&'static str> {
        self.servers.refuses(kind, key.name())
    }
}

impl Reports for RedisBackend {
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        Reply::new(async move {
            // Who waits until a key is free sends nothing else.
            self.revive_subscriptions(&resource.key);
            match resource.kind.family() {
                Family::Lock => lock::inspect(self, &resource.key).await,
                Family::ReadWrite => rw::inspect(self, resource).await,
                Family::Semaphore | Family::Latch => number::inspect(self, &resource.key).await,
                Family::Permit => permit::inspect(self, &resource.key).await,
            }
        })
    }

    fn listeners<'a>(&'a self, key: &'a Key) -> Reply<'a, u64> {
        Reply::new(examine::listeners(self, key))
    }

    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport> {
        Reply::new(examine::examine(self, key))
    }

    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        wanted: ScanFilter<'a>,
        most: u32,
    ) -> Reply<'a, Scanned> {
        Reply::new(scan::scan(self, position, wanted, most))
    }

    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>> {
        Reply::new(examine::named_clients(self, key))
    }

    fn server_facts<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Vec<ServerFacts>> + Send + 'a>> {
        Box::pin(self.servers.facts(key))
    }
}

impl Connections for RedisBackend {
    fn ping(&self) -> Reply<'_, ()> {
        Reply::new(self.servers.ping())
    }

    fn longest_disconnection(&self) -> Option<Disconnection> {
        self.servers.longest_disconnection()
    }

    fn servers(&self) -> String {
        self.servers.name()
    }

    fn tracks(&self) -> bool {
        self.tracks
    }

    fn told(&self) -> Pin<Box<dyn Future<Output = Told> + Send + '_>> {
        Box::pin(self.servers.heard().next())
    }

    fn has_heard_all<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        let channel = names::channel(target);
        let ask = |node: &Node| node.subscriber().has_heard_all(&channel);
        self.servers.route(&target.resource.key).with_node(ask)
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        let route = self.servers.route(&target.resource.key);
        route.subscribe(names::channel(target))
    }

    fn home(&self, key: &Key) -> Home {
        self.servers.route(key).home()
    }

    fn counts_all_listeners(&self) -> bool {
        self.servers.count_all_listeners()
    }

    fn disconnected(&self, key: &Key) -> Option<Fault> {
        self.servers.disconnected(key)
    }

    fn connection_gap(&self, key: &Key) -> Option<ConnectionGap> {
        self.servers.route(key).connection_gap()
    }

    fn epoch(&self, key: &Key) -> u64 {
        self.servers.route(key).epoch()
    }

    fn may_have_lost(&self, key: &Key, epoch: u64) -> bool {
        self.servers.route(key).may_have_lost(epoch)
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

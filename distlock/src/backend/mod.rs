//! What a lock server can do, in few verbs over [`Kind`](crate::resource::kind::Kind) as data.
//!
//! There are two implementations, `memory` and `redis`. One conformance suite runs over both, and a differential test
//! drives both with the same operations and compares every answer. Each has one file per family of primitives, with the
//! same functions in it: `lock::attempt`, `lock::release`, `permit::withdraw`.
//!
//! Every verb states the wanted result and not a difference to what is there. A verb that is sent twice, because its
//! answer was lost, therefore takes effect once.
//!
//! A backend knows nothing of guards, of tasks or of a client's own queue of waiters.
//!
//! # Verbs that read
//! | verb | who asks | what it answers |
//! | --- | --- | --- |
//! | [`peek`](Backend::peek) | waiters that have heard nothing for some time | whether an attempt may be granted |
//! | [`latch`](Backend::latch) | waiters of a latch | its count and its last opening |
//! | [`inspect`](Reports::inspect) | users, by a primitive | who holds the key |
//! | [`examine`](Reports::examine) | users, by [`Client::inspect`](crate::Client::inspect) | what is under the key and beside it |
//! | [`scan`](Reports::scan), [`named_clients`](Reports::named_clients) | users, by [`Client::scan`](crate::Client::scan) | which keys there are, and the names of clients |
//! | [`server_facts`](Reports::server_facts), [`ping`](Connections::ping) | users, about the servers | what the servers say of themselves |
//! | [`track`](Backend::track) | the watchdog, for holds that are old, and those whose key has changed | whether the hold is still there |
//!
//! Apart from `track`, the watchdog does not read: a renewal tells whether a hold is still there ([`renew`](Backend::renew)).

// `pub` for the decorators of the workspace's tests, which reach this module through the feature `test-util`.
#![cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crates name it")
)]

mod attempt;
mod change;
mod connections;
mod family;
mod fault;
pub(crate) mod glob;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod reply;
pub(crate) mod reports;
mod scanned;
mod seen;
pub(crate) mod side_keys;
mod subscription;
mod through;

use std::fmt;
use std::future::ready;
#[cfg(feature = "testing")]
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "testing")]
use uuid::Uuid;

pub use self::attempt::{Attempt, Attempted, AttemptedAll, Released, Renewal, Target};
pub use self::change::{Change, LatchChange, PermitChange, SemaphoreChange};
#[cfg(feature = "test-util")]
pub use self::connections::ConnectionSeen;
pub use self::connections::{ConnectionGap, Disconnection, Home, Told};
pub use self::fault::{Fault, cause};
pub use self::reply::Reply;
use self::reports::KeyReport;
pub(crate) use self::reports::{Examined, Listed, Listeners, ValueSeen};
pub use self::reports::{NamedClient, PrimitiveRights, ServerFacts, ServerLayout, UnknownFact};
pub use self::scanned::{ScanCursor, ScanFilter, ScanPosition, Scanned, Sweep};
pub use self::seen::{Forced, Seen};
pub use self::subscription::{Signal, Subscription, watched};
pub use self::through::{DetachedOwner, Through};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;

/// The pending answer to a batch of renewals: for each hold whether it still is its owner's.
pub type Renewed<'a> = Pin<Box<dyn Future<Output = Vec<Result<bool, Fault>>> + Send + 'a>>;

/// The answer to a batch of renewals that were answered together.
pub fn renewed_together(
    answer: Result<Vec<bool>, Fault>,
    batch: &[Renewal],
) -> Vec<Result<bool, Fault>> {
    match answer {
        Ok(ours) => ours.into_iter().map(Ok).collect(),
        Err(fault) => vec![Err(fault); batch.len()],
    }
}

/// Who holds a key, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The name and the count of each holder.
    pub holders: Vec<(Vec<u8>, u64)>,
    /// What is left of the lease; `None` if the key is free or never expires.
    pub ttl: Option<Duration>,
}

/// What a waiter sees of the key that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Whether an attempt may be granted. For a latch: whether there is none, or its count is 0.
    pub is_open: bool,
    /// What is left of the lease of the blocking owner; `None` if no end is known.
    pub ttl: Option<Duration>,
    /// The count of a latch that is not open.
    pub count: Option<i64>,
}

/// What a waiter of a latch sees of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatchSeen {
    /// The count; `None` if there is no latch.
    pub count: Option<i64>,
    /// Which opening of a latch under this key the server remembers. No two openings are equal. It may be that of a latch
    /// before the present one, because another library does not remove the mark of it.
    pub opened: Option<Arc<str>>,
    /// The run of the server that answered: what it had stored is there until the run ends. `None` if the user may not ask
    /// for it.
    pub run: Option<Arc<str>>,
    /// How long the latch stays unless it is used; `None` if it has no end.
    pub ttl: Option<Duration>,
}

/// Shows a server in this process that an acquisition waits, until it is dropped.
#[cfg(feature = "testing")]
pub trait ShownWait: fmt::Debug + Send + Sync {
    /// The acquisition waits for this key from now on.
    fn move_to(&self, key: &Key);
}

/// A lock server: what changes keys, and what waiters and the watchdog ask.
///
/// Each verb answers within a few response timeouts, with [`Fault::Unknown`] if the server did not answer, so callers
/// need no timer. Renewals and releases never queue behind attempts.
pub trait Backend: Reports + Connections {
    /// Acquires a key for an owner if the key is free or already held by this owner. The count becomes 1 in both cases.
    ///
    /// An attempt for a [detached](Through::Detached) hold takes the place of that owner, if it still holds the key, and is
    /// refused otherwise, also if the key is free.
    ///
    /// A future that is dropped before it completes may still take effect. Its owner must not be used again.
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted>;

    /// Acquires several keys of plain locks, or none of them, in one command. All of them have the same
    /// [`slot`](Home::slot).
    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, AttemptedAll>;

    /// Waits until enough replicas have what the server has granted to these attempts, which were sent together. `None` if
    /// that was not asked for. After an error the grant must be released and not used.
    fn confirm<'a>(&'a self, _granted: &'a [Attempt]) -> Option<Reply<'a, ()>> {
        None
    }

    /// From now on, sends attempts and releases of many tasks by one command whenever anything is under way, as a busy client does.
    #[cfg(feature = "test-util")]
    fn collect_always(&self) {}

    /// Renews holds of one family. Answers for each whether it still is its owner's, so that a server that does not answer
    /// costs only the holds that live there.
    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Renewed<'a>;

    /// Ends an owner's hold, whatever its count, and notifies the waiters. A lock with a
    /// [`taken_for`](Target::taken_for) stays taken for that time.
    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released>;

    /// Ends several owners' holds on plain locks, each like [`release`](Backend::release). All of them have the same
    /// [`slot`](Home::slot).
    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>>;

    /// Ends an owner whose attempts had no known outcome, and which may have a hold, a place among the waiters or
    /// nothing. If one of its attempts is executed later, what it acquires does not last.
    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        self.release(target)
    }

    /// Frees a key that any owner holds, or only from the owners that somebody has seen. With `seen`, both kinds of a read/write
    /// lock free either of its modes.
    fn force_release<'a>(
        &'a self,
        resource: &'a Resource,
        seen: Option<&'a Seen>,
    ) -> Reply<'a, Forced>;

    /// Looks at the keys that waiters of this client want, for each of them in the same command. All of them have the same
    /// [`slot`](Home::slot). Changes nothing.
    fn peek<'a>(&'a self, batch: &'a [Target]) -> Reply<'a, Vec<Peeked>>;

    /// Reads whether each of these holds still is its owner's, and has the server tell of the next change of its key. All of them
    /// have the same [`slot`](Home::slot). Changes nothing, so that no other client that tracks the key is told. `None`: the
    /// server tells of no changes now, and was not asked.
    fn track<'a>(&'a self, _batch: &'a [Target]) -> Reply<'a, Option<Vec<bool>>> {
        Reply::new(ready(Ok(None)))
    }

    /// Changes the number under a key, or answers a question about it. A change that is sent several times under the
    /// same `request` takes effect once.
    fn adjust<'a>(&'a self, key: &'a Key, request: Owner, change: Change) -> Reply<'a, i64>;

    /// What a waiter of a latch sees of it. Changes nothing.
    fn latch<'a>(&'a self, key: &'a Key) -> Reply<'a, LatchSeen>;

    /// A request to [`adjust`](Backend::adjust) was answered when it was sent for the first time. No copy of it can
    /// arrive any more, so the server need not remember it. Nothing is sent for this alone.
    fn answered(&self, key: &Key, request: Owner);

    /// Why this server cannot have such a primitive under this key, if it cannot.
    fn refuses(&self, _kind: Kind, _key: &Key) -> Option<&'static str> {
        None
    }

    /// Shows the server that an acquisition of `client` waits for a key. It was made at this call site. A server
    /// that tests cannot look into answers `None`.
    #[cfg(feature = "testing")]
    fn show_wait(
        &self,
        _key: &Key,
        _client: Uuid,
        _call_site: Option<&'static Location<'static>>,
    ) -> Option<Box<dyn ShownWait>> {
        None
    }
}

/// What users ask a lock server. Nothing of it changes anything.
pub trait Reports: fmt::Debug + Send + Sync + 'static {
    /// Who holds a key.
    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected>;

    /// How many connections listen to the messages of a lock.
    fn listeners<'a>(&'a self, key: &'a Key) -> Reply<'a, u64>;

    /// What is under a key and beside it, whichever primitive that is. Changes nothing.
    fn examine<'a>(&'a self, key: &'a Key) -> Reply<'a, KeyReport>;

    /// The next page of the names of keys that match the pattern and may be what the sweep looks for, from this position on: of
    /// some `most` keys of one server those that match. Names that belong to a primitive under another key are left out.
    fn scan<'a>(
        &'a self,
        position: &'a ScanPosition,
        wanted: ScanFilter<'a>,
        most: u32,
    ) -> Reply<'a, Scanned>;

    /// The clients that the server of a key knows by name. A client with several connections may be there several times.
    fn named_clients<'a>(&'a self, key: &'a Key) -> Reply<'a, Vec<NamedClient>>;

    /// What each server says of itself. The rights of the user are those for this key.
    fn server_facts<'a>(
        &'a self,
        _key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Vec<ServerFacts>> + Send + 'a>> {
        Box::pin(ready(Vec::new()))
    }
}

impl dyn Backend {
    /// Completes with the number of the connection to the server of a key when that is not `epoch` any more.
    pub(crate) async fn epoch_after(&self, key: &Key, epoch: u64) -> u64 {
        loop {
            // In this order: a change after the first line ends the wait.
            let changes = self.epoch_changes();
            let current = self.epoch(key);
            if current != epoch {
                return current;
            }
            self.epoch_changes_after(changes).await;
        }
    }
}

/// Where the keys of a lock server are, what it tells without being asked, and what is known of the connections to it.
pub trait Connections: fmt::Debug + Send + Sync + 'static {
    /// Whether the server tells by [`told`](Connections::told) of changes of the keys of holds.
    fn tracks(&self) -> bool {
        false
    }

    /// Completes when the server has told of changes of tracked keys, with what it has told since the last call.
    fn told(&self) -> Pin<Box<dyn Future<Output = Told> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    /// Whether all messages to a target's subscription have arrived that were published before this was called. False if the
    /// server cannot tell: the connection for messages was lost, or does not answer.
    fn has_heard_all<'a>(
        &'a self,
        _target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(ready(true))
    }

    /// Subscribes to what a waiter of this target needs to know. Returns at once; the subscription is active when its
    /// signal says so.
    fn subscribe(&self, target: &Target) -> Subscription;

    /// Whether the answer to a release counts all that listen to its message. A node of a cluster counts only its own
    /// subscribers.
    fn counts_all_listeners(&self) -> bool {
        true
    }

    /// Why the client is disconnected from the server of a key; `None` if it is connected. A disconnected server answers no
    /// command until the client has connected again.
    fn disconnected(&self, _key: &Key) -> Option<Fault> {
        None
    }

    /// The present gap between two connections to the server of a key. `None` if there is a connection, or if that is not known.
    /// No command that began in a gap is sent before that gap is over.
    fn connection_gap(&self, _key: &Key) -> Option<ConnectionGap> {
        None
    }

    /// Asks every server that has keys for a sign of life, all at the same time.
    fn ping(&self) -> Reply<'_, ()>;

    /// The server that the client uses and has been disconnected from for the longest time; `None` if it is connected to all
    /// of them.
    fn longest_disconnection(&self) -> Option<Disconnection> {
        None
    }

    /// What errors call the servers.
    fn servers(&self) -> String;

    /// Where a key lives. That may change, and is at most a hint.
    fn home(&self, _key: &Key) -> Home {
        Home::default()
    }

    /// The number of the connection that commands for a key are sent over. Commands over one connection are executed in
    /// order. Connections to different servers have different numbers.
    fn epoch(&self, key: &Key) -> u64;

    /// Whether the server may have lost data of a key since its [`epoch`](Connections::epoch) was this. A key that has another
    /// server by now may be lost: that server may be a replica that lacks it.
    fn may_have_lost(&self, key: &Key, epoch: u64) -> bool {
        self.epoch(key) != epoch
    }

    /// How often the [`epoch`](Connections::epoch) of some key may have changed.
    fn epoch_changes(&self) -> u64;

    /// Completes with the new number of [changes](Connections::epoch_changes) when that is not `changes` any more: a connection
    /// was re-established. The server behind it may be another one, or may have lost or regained data.
    fn epoch_changes_after(&self, changes: u64) -> Pin<Box<dyn Future<Output = u64> + Send + '_>>;

    /// Whether there is a connection that may be replaced.
    fn has_connection(&self) -> bool;

    /// The number of channels that this client is subscribed to, or has yet to unsubscribe from.
    #[cfg(feature = "test-util")]
    fn channels(&self) -> usize {
        0
    }

    /// The connections of this client. There are none if the server is in this process.
    #[cfg(feature = "test-util")]
    fn connections(&self) -> Vec<ConnectionSeen> {
        Vec::new()
    }
}

//! A snapshot of one client: what it holds and what it waits for.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::registry::{Entry, Registry};
use super::signal::Signal;
use super::waits::Wait;
use crate::clock::Tick;
use crate::key::Resource;
use crate::kind::Kind;
use crate::owner::Owner;
#[cfg(feature = "serde")]
use crate::report::{millis, some_millis, text};

/// What a client holds and waits for at one moment; see [`Client::snapshot`](crate::Client::snapshot).
///
/// With the feature `serde` it can be serialized. Times are then whole milliseconds, under names such as `held_for_ms`, and
/// places in the code are texts such as `src/orders.rs:42:9`.
///
/// # Examples
/// See [`Client::snapshot`](crate::Client::snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The holds, the oldest first.
    pub holds: Vec<HoldSnapshot>,
    /// The acquisitions that wait, those that have waited longest first.
    pub waits: Vec<WaitSnapshot>,
}

/// A hold of this client.
///
/// # Examples
/// See [`Client::snapshot`](crate::Client::snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HoldSnapshot {
    /// The key, without the client's prefix.
    pub key: String,
    /// The kind of the primitive.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub kind: Kind,
    /// The owner under which the server stores the hold.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub owner: Owner,
    /// The time since the grant, or since the hold was handed over by another guard of this client.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "held_for_ms", serialize_with = "millis")
    )]
    pub held_for: Duration,
    /// The time until the hold ends if no renewal is confirmed. `None` for permits of a
    /// [`Semaphore`](crate::Semaphore), which have no lease.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lease_left_ms", serialize_with = "some_millis")
    )]
    pub lease_left: Option<Duration>,
    /// How many guards the hold has: 1, and 1 more for each re-entry.
    pub count: u32,
    /// Where in the code it was acquired: the call of `acquire`, the attribute, or the line that made the layer.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub place: &'static Location<'static>,
}

/// An acquisition of this client that waits.
///
/// # Examples
/// See [`BlockedBy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitSnapshot {
    /// The key that it waits for now, without the client's prefix. A multi-lock waits for one of its keys at a time.
    pub key: String,
    /// The kind of the primitive.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub kind: Kind,
    /// The time since the acquisition began.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "waited_ms", serialize_with = "millis")
    )]
    pub waited: Duration,
    /// The time until it gives up. `None` if it waits without limit.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "wait_left_ms", serialize_with = "some_millis")
    )]
    pub wait_left: Option<Duration>,
    /// How many acquisitions of this client are before it in the queue of the key.
    pub ahead: usize,
    /// What it waits for, as far as this client knows.
    pub blocked_by: BlockedBy,
    /// Where in the code it was made: the call of `acquire`, the attribute, or the line that made the layer.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub place: &'static Location<'static>,
}

/// What an acquisition waits for.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{BlockedBy, Client};
///
/// fn report(client: &Client) {
///     for wait in client.snapshot().waits {
///         match wait.blocked_by {
///             BlockedBy::OwnHold { place, .. } => println!("{} waits for {place}", wait.place),
///             BlockedBy::OtherClient { .. } => println!("{} waits for another process", wait.place),
///             _ => println!("{} waits for {}", wait.place, wait.key),
///         }
///     }
/// }
/// # report(&Client::in_memory());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "what", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum BlockedBy {
    /// A hold of this client.
    #[non_exhaustive]
    OwnHold {
        /// The owner of the hold.
        #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
        owner: Owner,
        /// Where in the code it was acquired.
        #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
        place: &'static Location<'static>,
    },
    /// A hold of another client, which may be in another process or in a program that uses Redisson. Ask the server for its
    /// [holders](crate::Lock::holders).
    #[non_exhaustive]
    OtherClient {
        /// The rest of its lease, as the server last reported it. Its holder may have renewed it since.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "lease_left_ms", serialize_with = "millis")
        )]
        lease_left: Duration,
    },
    /// It is not known: no server has answered yet, or several holders share the key, or the holder has no lease.
    Unknown,
}

impl Registry {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = self.session.now();
        let holds = self.session.holds();
        let holds = holds.iter().filter_map(|hold| {
            let shown = hold.shown(now)?;
            let Resource { kind, key } = &hold.resource;
            Some(HoldSnapshot {
                key: key.text().to_owned(),
                kind: *kind,
                owner: hold.owner,
                held_for: shown.held,
                lease_left: kind.has_lease().then_some(shown.left),
                count: shown.count,
                place: shown.place,
            })
        });
        let mut holds: Vec<HoldSnapshot> = holds.collect();
        holds.sort_unstable_by(|one, other| {
            let order = other.held_for.cmp(&one.held_for);
            order.then_with(|| one.owner.cmp(&other.owner))
        });
        Snapshot {
            holds,
            waits: self.snapshot_of_waits(now),
        }
    }

    fn snapshot_of_waits(&self, now: Tick) -> Vec<WaitSnapshot> {
        // Copied first, so that the two mutexes are locked one after the other.
        let mut waits = self.limits.waits();
        waits.sort_by_key(|wait| wait.since);
        let mut keys: HashMap<&Resource, SeenKey> = HashMap::new();
        let entries = self.entries.lock();
        let snapshot = |wait| {
            let resource = resource_of(wait);
            let seen = keys.entry(resource).or_insert_with(|| {
                let mut held = self
                    .same_data(resource)
                    .filter_map(|held| entries.get(&held));
                let held = held.find(|entry| entry.holder.is_some());
                SeenKey::new(
                    entries.get(resource).map(|entry| &**entry),
                    held.map(|entry| &**entry),
                    now,
                )
            });
            seen.snapshot_of(wait, now)
        };
        waits.iter().map(snapshot).collect()
    }
}

/// The key that an acquisition waits for now.
fn resource_of(wait: &Wait) -> &Resource {
    &wait.resources[wait.at]
}

/// What is known of a key that is waited for.
struct SeenKey {
    /// The places in its queue.
    places: HashMap<*const Signal, usize>,
    blocked_by: BlockedBy,
    /// How many of its waiters were seen that are not in the queue, because the server keeps them in order.
    unqueued: usize,
}

impl SeenKey {
    /// `held`: the entry of a kind with the same data that this client holds.
    fn new(entry: Option<&Entry>, held: Option<&Entry>, now: Tick) -> Self {
        let signals = entry.into_iter().flat_map(|entry| entry.queue.signals());
        let places = signals.enumerate().map(|(at, one)| (Arc::as_ptr(one), at));
        let holder = held.and_then(|entry| entry.holder.as_ref());
        let busy_until = entry.and_then(|entry| entry.busy_until);
        let blocked_by = match (holder, busy_until) {
            (Some(holder), _) => BlockedBy::OwnHold {
                owner: holder.hold.owner,
                place: holder.hold.place(),
            },
            (None, Some(until)) => BlockedBy::OtherClient {
                lease_left: until.left(now),
            },
            (None, None) => BlockedBy::Unknown,
        };
        Self {
            places: places.collect(),
            blocked_by,
            unqueued: 0,
        }
    }

    fn snapshot_of(&mut self, wait: &Wait, now: Tick) -> WaitSnapshot {
        let ahead = match self.places.get(&Arc::as_ptr(&wait.signal)) {
            Some(place) => *place,
            None => {
                self.unqueued += 1;
                self.unqueued - 1
            }
        };
        let resource = resource_of(wait);
        WaitSnapshot {
            key: resource.key.text().to_owned(),
            kind: resource.kind,
            waited: now.since(wait.since),
            wait_left: (wait.deadline != Tick::NEVER).then(|| wait.deadline.left(now)),
            ahead,
            blocked_by: self.blocked_by,
            place: wait.place,
        }
    }
}

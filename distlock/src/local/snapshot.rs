//! A snapshot of one client: what it holds, what it waits for, and what went wrong.

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::registry::Registry;
use super::waits::Wait;
use super::waker::SlotWaker;
use crate::backend::glob;
#[cfg(feature = "serde")]
use crate::backend::reports::{millis, some_millis, text};
use crate::clock::Tick;
use crate::error::Loss;
use crate::resource::key::Resource;
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;

/// What a client holds and waits for at one moment; see [`Client::snapshot`](crate::Client::snapshot).
///
/// With the feature `serde` it can be serialized. Times are then whole milliseconds, under names such as `held_for_ms`, call sites
/// in the code are texts such as `src/orders.rs:42:9`, and losses are names such as `expired`.
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
    /// Possible deadlocks, at most 20: each is a cycle of waits of this client. Each of them waits for a key that is held
    /// around the next one, and the last one for a key that is held around the first. Of cycles that share waits, at least one
    /// is shown. A cycle through other processes is not seen, and neither is a hold whose code does not run in its
    /// [scope](crate::Guard::scope). A wait that has a limit ends the cycle when it times out.
    pub cycles: Vec<Vec<WaitSnapshot>>,
    /// The holds that were lost last, the newest first: at most 20. A [`RedLock`](crate::RedLock) is listed once, by the client of the
    /// server whose loss has left fewer than a majority.
    pub losses: Vec<LossSnapshot>,
}

impl Snapshot {
    /// Keeps only the entries whose key matches a pattern, in the form of [`Client::scan`](crate::Client::scan). A cycle
    /// remains if one of its keys matches, with all keys that it is made of. Of the keys that are held around a wait, those remain
    /// that match or belong to its cycle.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _order = client.lock("order:42").acquire().await?;
    /// let _stock = client.lock("stock:7").acquire().await?;
    ///
    /// let orders = client.snapshot().matching("order:*");
    /// assert_eq!(orders.holds.len(), 1);
    /// assert_eq!(orders.holds[0].key, "order:42");
    /// # Ok(()) }
    /// ```
    #[must_use = "this takes the snapshot and returns what is left of it"]
    pub fn matching(mut self, pattern: &str) -> Self {
        let is_match = |key: &str| glob::matches(pattern.as_bytes(), key.as_bytes());
        self.holds.retain(|hold| is_match(&hold.key));
        self.waits.retain(|wait| is_match(&wait.key));
        for wait in &mut self.waits {
            wait.inside.retain(|key| is_match(key));
        }
        self.cycles
            .retain(|cycle| cycle.iter().any(|wait| is_match(&wait.key)));
        for cycle in &mut self.cycles {
            let keys: HashSet<String> = cycle.iter().map(|wait| wait.key.clone()).collect();
            for wait in cycle {
                wait.inside
                    .retain(|key| is_match(key) || keys.contains(key));
            }
        }
        self.losses.retain(|lost| is_match(&lost.key));
        self
    }
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
    pub kind: Kind,
    /// The owner under which the server stores the hold.
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
    /// Where in the code it was acquired: the call of `acquire`, the attribute, or the line that gave the layer its key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub call_site: &'static Location<'static>,
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
    /// The keys that are held around it: it waits in the [scopes](crate::Guard::scope) of these holds of this client.
    pub inside: Vec<String>,
    /// Where in the code it was made: the call of `acquire`, the attribute, or the line that gave the layer its key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub call_site: &'static Location<'static>,
}

/// A hold of this client that was lost.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Client;
///
/// fn report(client: &Client) {
///     for lost in client.snapshot().losses {
///         println!("{}, acquired at {}, was lost {:?} ago: {}", lost.key, lost.call_site, lost.ago, lost.loss);
///     }
/// }
/// # report(&Client::in_memory());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LossSnapshot {
    /// The key, without the client's prefix.
    pub key: String,
    /// The kind of the primitive.
    pub kind: Kind,
    /// The owner under which the server stored the hold.
    pub owner: Owner,
    /// How it was lost. Serialized, it is its [`name`](Loss::name).
    pub loss: Loss,
    /// The time since this client noticed the loss.
    #[cfg_attr(feature = "serde", serde(rename = "ago_ms", serialize_with = "millis"))]
    pub ago: Duration,
    /// Where in the code it was acquired: the call of `acquire`, the attribute, or the line that gave the layer its key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub call_site: &'static Location<'static>,
}

/// What an acquisition waits for. For one that has timed out, see [`Blocker`](crate::Blocker).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{BlockedBy, Client};
///
/// fn report(client: &Client) {
///     for wait in client.snapshot().waits {
///         match wait.blocked_by {
///             BlockedBy::OwnHold { call_site, .. } => println!("{} waits for {call_site}", wait.call_site),
///             BlockedBy::OtherClient { .. } => println!("{} waits for another process", wait.call_site),
///             _ => println!("{} waits for {}", wait.call_site, wait.key),
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
        owner: Owner,
        /// Where in the code it was acquired.
        #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
        call_site: &'static Location<'static>,
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
        let holds = self.session.watchdog.holds();
        let holds = holds.iter().filter_map(|hold| {
            let shown = hold.shown(now)?;
            let Resource { kind, key } = &hold.resource;
            Some(HoldSnapshot {
                key: key.text().to_owned(),
                kind: *kind,
                owner: hold.owner(),
                held_for: shown.held,
                lease_left: kind.has_lease().then_some(shown.left),
                count: shown.count,
                call_site: shown.call_site,
            })
        });
        let mut holds: Vec<HoldSnapshot> = holds.collect();
        holds.sort_unstable_by(|one, other| {
            // Holds of the same age are in the same order each time.
            let order = other.held_for.cmp(&one.held_for);
            order.then_with(|| one.owner.cmp(&other.owner))
        });
        let losses = self
            .session
            .losses
            .all()
            .into_iter()
            .map(|lost| LossSnapshot {
                key: lost.resource.key.text().to_owned(),
                kind: lost.resource.kind,
                owner: lost.owner,
                loss: lost.loss,
                ago: now.since(lost.at),
                call_site: lost.call_site,
            });
        let (waits, cycles) = self.snapshot_of_waits(now);
        Snapshot {
            holds,
            waits,
            cycles,
            losses: losses.collect(),
        }
    }

    /// The waits, and the cycles among them.
    fn snapshot_of_waits(&self, now: Tick) -> (Vec<WaitSnapshot>, Vec<Vec<WaitSnapshot>>) {
        // Copied first, so that the two mutexes are locked one after the other.
        let waits = self.limits.waits();
        let mut by_age: Vec<&Wait> = waits.iter().collect();
        by_age.sort_by_key(|wait| wait.since);
        let mut keys: HashMap<&Resource, SeenKey> = HashMap::new();
        let entries = self.entries.lock();
        let seen_key = |resource: &Resource| {
            let mut held = self
                .used_kinds
                .same_data(resource)
                .filter_map(|held| entries.get(&held));
            let held = held.find(|entry| entry.holder.is_some());
            let entry = entries.get(resource);
            SeenKey::new(entry, held, now)
        };
        for resource in by_age.iter().flat_map(|wait| &wait.resources) {
            keys.entry(resource).or_insert_with(|| seen_key(resource));
        }
        // Nobody waits for this mutex while the texts are made.
        drop(entries);
        let snapshots: Vec<WaitSnapshot> = by_age
            .iter()
            .filter_map(|wait| Some(keys.get_mut(resource_of(wait))?.snapshot_of(wait, now)))
            .collect();
        let cycles = waits.cycles(|resource| keys.get(resource)?.own_holder());
        // Only if there is any: usually there is none.
        let places: HashMap<*const Wait, usize> = if cycles.is_empty() {
            HashMap::new()
        } else {
            by_age
                .iter()
                .map(|wait| ptr::from_ref(*wait))
                .zip(0..)
                .collect()
        };
        let snapshot = |wait: &Wait| snapshots.get(*places.get(&ptr::from_ref(wait))?).cloned();
        let cycles = cycles.into_iter();
        let cycles = cycles.map(|cycle| cycle.into_iter().filter_map(snapshot).collect());
        let cycles = cycles.collect();
        (snapshots, cycles)
    }
}

/// The key that an acquisition waits for now.
fn resource_of(wait: &Wait) -> &Resource {
    &wait.resources[wait.at]
}

/// What is known of a key that is waited for.
struct SeenKey {
    /// The places in its queue.
    places: HashMap<*const SlotWaker, usize>,
    blocked_by: BlockedBy,
    /// How many of its waiters were seen that are not in the queue, because the server keeps them in order.
    unqueued: usize,
}

impl SeenKey {
    /// `held`: the entry of a kind with the same data that this client holds.
    fn new(entry: Option<&Entry>, held: Option<&Entry>, now: Tick) -> Self {
        let waiters = entry.and_then(Entry::waiters);
        let wakers = waiters
            .into_iter()
            .flat_map(|waiters| waiters.queue.wakers());
        // The address of a waker tells the waiters apart. The copies of the waits keep the wakers alive.
        let places = wakers.enumerate().map(|(at, one)| (Arc::as_ptr(one), at));
        let holder = held.and_then(|entry| entry.holder.as_ref());
        let busy_until = waiters.and_then(|waiters| waiters.busy_until.unless_never());
        let blocked_by = match (holder, busy_until) {
            (Some(holder), _) => BlockedBy::OwnHold {
                owner: holder.hold.owner(),
                call_site: holder.hold.latest_guard().call_site,
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

    /// The owner of this client that holds it.
    fn own_holder(&self) -> Option<Owner> {
        match self.blocked_by {
            BlockedBy::OwnHold { owner, .. } => Some(owner),
            _ => None,
        }
    }

    fn snapshot_of(&mut self, wait: &Wait, now: Tick) -> WaitSnapshot {
        let ahead = match self.places.get(&Arc::as_ptr(&wait.waker)) {
            Some(ahead) => *ahead,
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
            inside: wait
                .inside
                .iter()
                .map(|(_, key)| key.text().to_owned())
                .collect(),
            call_site: wait.call_site,
        }
    }
}

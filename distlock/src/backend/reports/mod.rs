//! Reports of the server: what lives under a key, who holds it, and who waits for it.

mod examined;
mod facts;

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

pub use self::examined::NamedClient;
pub(crate) use self::examined::{Examined, Listed, Listeners, ValueSeen};
pub use self::facts::{PrimitiveRights, ServerFacts, ServerLayout, UnknownFact};
use crate::resource::owner::RELEASED;

/// What lives under one key in the server, and who holds it or waits for it.
///
/// [`Client::inspect`](crate::Client::inspect) returns it for one key, and [`Client::scan`](crate::Client::scan) for many. It
/// is true at one moment, and may be out of date when it arrives.
///
/// With the feature `serde` it can be serialized. Times are then whole milliseconds, under names such as `lease_left_ms`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, Primitive};
///
/// let client = Client::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// let report = client.inspect("order:42").await?;
/// assert_eq!(report.primitive, Primitive::Lock);
/// assert_eq!(report.holders[0].owner, guard.owner().to_string());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyReport {
    /// The key, without the client's [prefix](crate::Builder::key_prefix). A name that is not UTF-8 has `%FF` for each byte that
    /// is no text, and is reported as [unreadable](Primitive::Unreadable).
    pub key: String,
    /// What lives under the key.
    pub primitive: Primitive,
    /// Who holds it, in alphabetical order of the owners: at most [`MAX_LISTED`](KeyReport::MAX_LISTED).
    pub holders: Vec<HolderReport>,
    /// The number of all holders, listed or not.
    pub holder_total: u64,
    /// The waiters in the server's queue, in their order: at most [`MAX_LISTED`](KeyReport::MAX_LISTED). Only fair locks have such a
    /// queue.
    pub waiters: Vec<WaiterReport>,
    /// The number of all waiters in the server's queue, listed or not.
    pub waiter_total: u64,
    /// The time until the server removes the key; `None` if the key does not expire or does not exist. A renewal moves it to a
    /// later time.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "expires_in_ms", serialize_with = "some_millis")
    )]
    pub expires_in: Option<Duration>,
    /// The permits of a semaphore; `None` for anything else.
    pub permits: Option<PermitsReport>,
    /// The count of a count-down latch, or the number of a [`Primitive::Number`]; `None` for anything else.
    pub count: Option<i64>,
    /// The fencing token of the last grant; `None` if the server keeps none for this key.
    pub fencing_token: Option<u64>,
    /// How many connections listen to the messages of the key, usually one for each process that waits. For a fair lock also
    /// the clients in its queue, once each. `None` if the user may not ask; see `missing_rights`.
    pub listeners: Option<u64>,
    /// The rights that the user lacks, and without which the report is not complete, as rules of an ACL. Empty if nothing is
    /// missing. Without `+client|list` the names of clients are unknown, and without the others the listeners.
    pub missing_rights: Vec<&'static str>,
    /// Why nothing else is known of an [unreadable](Primitive::Unreadable) key; `None` for any other one.
    pub fault: Option<String>,
}

impl KeyReport {
    /// How many holders, and how many waiters, a report lists at most.
    ///
    /// # Examples
    /// See [`KeyReport`].
    pub const MAX_LISTED: usize = 1_000;

    /// Returns `true` if somebody holds the key, or if it stays taken after a release.
    ///
    /// The holders of a plain semaphore are known only if they use this crate.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert!(!client.inspect("order:42").await?.is_held());
    /// let _guard = client.lock("order:42").acquire().await?;
    /// assert!(client.inspect("order:42").await?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// What lives under a key.
///
/// The server stores some primitives in the same form, so that they cannot be told apart. Each variant says which.
/// As text a primitive is its name in snake case, for example `"fair_lock"`.
///
/// # Examples
/// ```
/// assert_eq!(distlock::Primitive::FairLock.to_string(), "fair_lock");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Primitive {
    /// There is nothing under the key: nobody holds it.
    Nothing,
    /// A lock: reentrant, non-reentrant or spin, or a fair lock that nobody waits for.
    Lock,
    /// A [fenced lock](crate::FencedLock): the server keeps a fencing token for the key. Without holders it is free.
    FencedLock,
    /// A [fair lock](crate::FairLock) that somebody waits for. Without holders it is about to be granted.
    FairLock,
    /// A [read/write lock](crate::RwLock) that readers hold.
    ReadLock,
    /// A [read/write lock](crate::RwLock) that a writer holds. Readers among the holders are inside the writer's hold.
    WriteLock,
    /// A [semaphore](crate::Semaphore), known by the permits that clients of this crate have, or by its waiters. Waiters alone
    /// may also be those of an [expirable semaphore](crate::ExpirableSemaphore).
    Semaphore,
    /// An [expirable semaphore](crate::ExpirableSemaphore), known by the permits that are acquired.
    ExpirableSemaphore,
    /// A [count-down latch](crate::CountDownLatch), known by its waiters.
    CountDownLatch,
    /// A number: a semaphore or a latch that nobody uses at the moment, or a number of another program.
    Number,
    /// A value that is none of the above. The key belongs to another program.
    OtherData,
    /// What is stored under the key, or in the keys that belong to it, could not be read: see [`KeyReport::fault`]. Only a
    /// [scan](crate::Client::scan) reports this. [`Client::inspect`](crate::Client::inspect) fails.
    Unreadable,
}

impl Primitive {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Lock => "lock",
            Self::FencedLock => "fenced_lock",
            Self::FairLock => "fair_lock",
            Self::ReadLock => "read_lock",
            Self::WriteLock => "write_lock",
            Self::Semaphore => "semaphore",
            Self::ExpirableSemaphore => "expirable_semaphore",
            Self::CountDownLatch => "count_down_latch",
            Self::Number => "number",
            Self::OtherData => "other_data",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One holder in a [`KeyReport`].
///
/// # Examples
/// See [`KeyReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HolderReport {
    /// The owner as the server stores it: `<client uuid>:<number>`, `<client uuid>:<number>:write` for a writer, and
    /// `<client uuid>:<number>:rest` for an owner that has released the lock. For a permit of an expirable semaphore its id, since
    /// the server does not know its owner. Bytes that are not UTF-8 are replaced.
    pub owner: String,
    /// How often the owner has entered a lock, or how many permits of a semaphore it has.
    pub count: u64,
    /// What is left of the lease; `None` if it has no end. The lease of a lock is renewed while its holder is alive.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lease_left_ms", serialize_with = "some_millis")
    )]
    pub lease_left: Option<Duration>,
    /// Whether the owner has released the lock, which stays taken until its
    /// [minimum hold time](crate::Acquire::hold_at_least) is over.
    pub is_released: bool,
    /// The client of the owner, if the server knows its name.
    pub client: Option<ClientReport>,
}

impl HolderReport {
    /// A holder as the server has it, whose client has no name yet.
    pub(crate) fn new(owner: &[u8], count: u64, lease_left: Option<Duration>) -> Self {
        let owner = String::from_utf8_lossy(owner).into_owned();
        Self {
            count,
            is_released: owner.ends_with(RELEASED),
            owner,
            lease_left,
            client: None,
        }
    }

    /// Returns the [id](crate::Client::id) of the owner's client; `None` for a permit of an expirable semaphore.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let report = client.inspect("order:42").await?;
    /// assert_eq!(report.holders[0].client_id(), Some(client.id()));
    /// # Ok(()) }
    /// ```
    pub fn client_id(&self) -> Option<Uuid> {
        client_id(self.owner.as_bytes())
    }
}

/// One waiter in a [`KeyReport`].
///
/// # Examples
/// See [`KeyReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaiterReport {
    /// The owner that is to hold the lock, as the server stores it: `<client uuid>:<number>`.
    pub owner: String,
    /// How long the server keeps its place in the queue, unless it gives a sign of life.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "place_left_ms", serialize_with = "millis")
    )]
    pub place_left: Duration,
    /// The client of the owner, if the server knows its name.
    pub client: Option<ClientReport>,
}

impl WaiterReport {
    /// A waiter as the server has it, whose client has no name yet.
    pub(crate) fn new(owner: &[u8], place_left: Duration) -> Self {
        Self {
            owner: String::from_utf8_lossy(owner).into_owned(),
            place_left,
            client: None,
        }
    }

    /// Returns the [id](crate::Client::id) of the waiter's client.
    ///
    /// # Examples
    /// See [`HolderReport::client_id`].
    pub fn client_id(&self) -> Option<Uuid> {
        client_id(self.owner.as_bytes())
    }
}

/// The permits of a semaphore in a [`KeyReport`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let pool = client.semaphore("printers");
/// pool.try_set_permits(3).await?;
/// let _permit = pool.acquire().await?;
/// let permits = client.inspect("printers").await?.permits.expect("a semaphore");
/// assert_eq!((permits.free, permits.taken), (2, 1));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PermitsReport {
    /// The number of free permits. It is below 0 after the number was set to less than the acquired permits.
    pub free: i64,
    /// The number of acquired permits. Of a plain semaphore only those of clients of this crate are known, and of these the
    /// listed ones.
    pub taken: u64,
}

/// A client that the server knows, in a [`HolderReport`] or a [`WaiterReport`].
///
/// A client of this crate tells the server its name and its id. Redisson tells no id: a client of Redisson is found only if
/// its setting `clientName` contains the id with which its owners begin.
///
/// # Examples
/// See [`Client::inspect`](crate::Client::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientReport {
    /// The name, as [`Builder::name`](crate::Builder::name) sets it.
    pub name: String,
    /// The address from which the client is connected, as the server sees it. `memory` for a server in this process.
    pub address: String,
}

/// A time in whole milliseconds, rounded down.
#[cfg(feature = "serde")]
pub(crate) fn millis<S: serde::Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// A value as it is shown.
#[cfg(feature = "serde")]
pub(crate) fn text<S: serde::Serializer>(
    value: &impl fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(feature = "serde")]
pub(crate) fn some_millis<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => millis(time, serializer),
        None => serializer.serialize_none(),
    }
}

/// The id of the client with which the text of an owner begins.
pub(crate) fn client_id(owner: &[u8]) -> Option<Uuid> {
    let (id, rest) = owner.split_at_checked(uuid::fmt::Hyphenated::LENGTH)?;
    let is_owner = rest.first() == Some(&b':');
    let id = is_owner.then(|| Uuid::try_parse_ascii(id).ok())?;
    id.filter(|_| owner.get(8) == Some(&b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_an_owner_is_read_and_anything_else_has_none() {
        let id = Uuid::from_u128(7);
        for owner in [
            format!("{id}:1"),
            format!("{id}:-3:write"),
            format!("{id}:7:rest"),
        ] {
            assert_eq!(client_id(owner.as_bytes()), Some(id), "{owner}");
        }
        for owner in [
            "",
            "mode",
            "00000000000000000000000000000007:1",
            &id.to_string(),
            &format!("{{{id}}}:1"),
        ] {
            assert_eq!(client_id(owner.as_bytes()), None, "{owner}");
        }
    }
}

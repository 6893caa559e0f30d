//! The errors of this crate, and how they are made.

mod blocker;
mod busy;
mod classes;
mod debug;
mod held_by;
mod loss;
mod misuse;
mod text;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

pub use self::blocker::Blocker;
use self::busy::timed_out;
pub use self::held_by::HeldBy;
pub use self::loss::Loss;
pub(crate) use self::misuse::polled_after_completion;
pub(crate) use self::text::{LEASES, exact, show};
use self::text::{bounds_of_lease, cut, not_ended};

/// The cause of an error. Its concrete type is not part of the public API.
pub(crate) type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// The error type of this crate. It says why an operation failed or how a hold was lost.
///
/// Five methods sort the errors by what the caller can do. For each error exactly one of them returns `true`:
///
/// * [`is_busy`](Error::is_busy): another owner holds the lock, or a wait of less than 500 ms ended before the server had
///   answered. Retry later.
/// * [`is_overloaded`](Error::is_overloaded): too many acquisitions wait already. Retry later, with less load.
/// * [`is_unavailable`](Error::is_unavailable): the lock server did not answer. Retry an acquisition when it is back. A change of
///   a number may have been made: read it first.
/// * [`is_lost`](Error::is_lost): the hold ended too early, or what was waited for is gone. Check or repeat the work that
///   it protected.
/// * [`is_permanent`](Error::is_permanent): the same call will fail again. Change the code or the configuration. After
///   [`Closed`](Error::Closed) another process can do the work, and [`Denied`](Error::Denied) passes if a login was refused while a
///   password or a certificate changes.
///
/// Both forms of an error are for people: `{:?}` is the name of the variant and the text of `{}`. So a `main` that returns the error
/// shows the text, and so does `unwrap`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
///
/// let client = distlock::Client::in_memory();
/// let _guard = client.lock("order:42").acquire().await?;
/// let error = client.lock("order:42").acquire().wait(Duration::ZERO).await.unwrap_err();
/// assert!(error.is_busy() && !error.is_unavailable());
/// # Ok(()) }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wait ended while the lock was still taken, or before a server that is not known to be away had answered.
    /// Nothing is held.
    #[error("{}", timed_out(key, *waited, *blocker, holder.as_deref()))]
    #[non_exhaustive]
    Timeout {
        /// The key that was waited for.
        key: String,
        /// How long the acquisition waited. Zero for a single attempt.
        waited: Duration,
        /// What blocked the acquisition.
        blocker: Blocker,
        /// The owner in the way, as the server named it when it last refused, or a hold of the same client. `None` if it
        /// named none.
        holder: Option<Box<HeldBy>>,
    },

    /// The hold ended before it was released, so other owners may have held the lock in the meantime. Or the number of a
    /// semaphore or a latch is gone from the server while the caller waited for it: see [`Loss::NumberGone`].
    #[error("lost {key:?}: {reason}{}", if *.body_completed { "; the body had completed" } else { "" })]
    #[non_exhaustive]
    Lost {
        /// The key of the hold.
        key: String,
        /// How the hold, or the number, was lost.
        reason: Loss,
        /// Whether the guarded body ran to its end. If so, its effects remain, but another owner may have been inside
        /// the critical section at the same time.
        body_completed: bool,
    },

    /// The lock server did not answer, it answered that it cannot grant locks at the moment, or it answered so late that the keys of an
    /// acquisition were not held together.
    ///
    /// After an acquisition the caller holds nothing. If the server still has a hold of the caller, the client releases it in the
    /// background, or its lease ends it. After [`Guard::extend`](crate::Guard::extend) the guard still holds its key. A change of a
    /// number, such as [`add_permits`](crate::Semaphore::add_permits) or [`count_down`](crate::CountDownLatch::count_down), may have
    /// been made: read the number before you repeat it.
    #[error("lock server unavailable, asked for {key:?} for {}: {cause}", show(*after))]
    #[non_exhaustive]
    Unavailable {
        /// The key that was asked for.
        key: String,
        /// How long the client has asked. If the caller's wait was over first, it is the whole wait, of which the server may have
        /// answered a part.
        after: Duration,
        /// The last failure. It is part of the message, so it is not the source of the error as well.
        cause: Cause,
    },

    /// A client could not connect: the lock server did not answer.
    #[error("cannot connect to the lock server at {server}, tried for {}: {cause}", show(*after))]
    #[non_exhaustive]
    Unreachable {
        /// The server's address, without user and password.
        server: String,
        /// How long the client tried.
        after: Duration,
        /// The last failure. It is part of the message, so it is not the source of the error as well.
        cause: Cause,
    },

    /// A client was to connect to a real server while tokio's time was paused. Nothing was sent.
    ///
    /// A paused clock jumps to the next timeout whenever all tasks wait, and so every timeout would end before the server
    /// answers.
    #[error(
        "cannot connect to the lock server at {server} while tokio's time is paused: timeouts would end before it answers; \
         use `Client::in_memory` in tests with paused time, or call `tokio::time::resume` first"
    )]
    #[non_exhaustive]
    TimePaused {
        /// The server's address, without user and password.
        server: String,
    },

    /// [`Client::close`](crate::Client::close) reached its timeout while guards were alive, or before the server had
    /// confirmed all releases.
    ///
    /// Guards continue as before: their holds are renewed until they end. The client keeps retrying the releases in the
    /// background. A hold whose release never arrives ends with its lease; permits of a [`Semaphore`](crate::Semaphore)
    /// have no lease and stay taken.
    #[error("{}", not_ended(*holds, *releases, *after))]
    #[non_exhaustive]
    ReleasesPending {
        /// How many holds still have a guard.
        holds: usize,
        /// How many releases the server has not confirmed.
        releases: usize,
        /// How long `close` waited.
        after: Duration,
    },

    /// The server refused a command, because its user lacks a permission that this client needs. Or the login of a new connection
    /// was refused, as while a password or a certificate changes: the client goes on trying to connect.
    #[error("the server denied an operation on {key:?}: {cause}")]
    #[non_exhaustive]
    Denied {
        /// The key that was asked for.
        key: String,
        /// The server's answer. It is part of the message, so it is not the source of the error as well.
        cause: Cause,
    },

    /// A client could not connect: the server refused its user, its password or its certificate, or the client refused the
    /// certificate of the server.
    #[error("the lock server at {server} denied the login: {cause}")]
    #[non_exhaustive]
    LoginDenied {
        /// The server's address, without user and password.
        server: String,
        /// The server's answer, or what is wrong with the certificate. It is part of the message, so it is not the source of
        /// the error as well.
        cause: Cause,
    },

    /// This crate cannot use the server: it has TLS and the URL has not, or the reverse, it has no such database, it is too old,
    /// it is a node of a cluster, or a command that locks need was renamed.
    #[error("cannot use the lock server {server}: {reason}")]
    #[non_exhaustive]
    UnsupportedServer {
        /// The server's address, without user and password.
        server: String,
        /// Why it cannot be used, and what to do.
        reason: String,
    },

    /// The key holds a value that is not a lock of this kind. The value was not changed.
    #[error("{key:?} holds another type of value in the server; use another key")]
    #[non_exhaustive]
    WrongType {
        /// The key that was asked for.
        key: String,
    },

    /// The server's answer could not be understood.
    #[error("unexpected answer from the server for {key:?}: {cause}")]
    #[non_exhaustive]
    Protocol {
        /// The key that was asked for.
        key: String,
        /// What was wrong with the answer. It is part of the message, so it is not the source of the error as well.
        cause: Cause,
    },

    /// The waiter limit is reached: the lock was not immediately available, so this acquisition was refused instead of
    /// queued.
    #[error("too many waiters for {key:?}: {waiters} already waiting")]
    #[non_exhaustive]
    Overloaded {
        /// The key that was asked for.
        key: String,
        /// How many acquisitions were waiting: for this key, or for all keys of the client if that limit was reached.
        waiters: u32,
    },

    /// This kind of lock does not support the requested operation.
    #[error("unsupported for {key:?}: {reason}")]
    #[non_exhaustive]
    Unsupported {
        /// The key, or the first of several keys.
        key: String,
        /// What is not supported.
        reason: &'static str,
    },

    /// A multi-lock has no keys, or a quorum has no servers.
    #[error("no keys: a lock over several keys or servers needs at least one")]
    NoKeys,

    /// The acquisition would wait for itself. A scope or a guard of the caller holds the key and excludes the
    /// acquisition, or a multi-lock asks for the key as two kinds of lock, or with two clients that use one server.
    ///
    /// The error is returned at once, without waiting for the key.
    #[error("acquiring {key:?} here would deadlock: {reason}")]
    #[non_exhaustive]
    Deadlock {
        /// The key, without the client's prefix.
        key: String,
        /// Why the acquisition would wait for itself.
        reason: String,
    },

    /// The key cannot name a lock: it is empty or too long, its braces are in the way of a cluster, or it is the name of what the
    /// server stores for another lock.
    #[error("invalid key {key:?}: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// The key, shortened if it is long.
        key: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The lease is shorter than a millisecond, or shorter than 10 ms for a Redlock, or longer than ten years.
    #[error("invalid lease {}: expected {}", exact(*lease), bounds_of_lease(*margin))]
    #[non_exhaustive]
    InvalidLease {
        /// The lease that was asked for.
        lease: Duration,
        /// The part of the lease that a Redlock sets aside for clock drift; zero for every other lock.
        margin: Duration,
    },

    /// The wait is longer than a year, and not `Duration::MAX`.
    #[error(
        "invalid wait {}: expected at most 365days, or `Duration::MAX` to wait without limit",
        exact(*wait)
    )]
    #[non_exhaustive]
    InvalidWait {
        /// The wait that was asked for.
        wait: Duration,
    },

    /// The number of permits is more or less than a semaphore can have, or can grant at once. Nothing was changed.
    #[error("invalid number of permits {permits}: expected {min} to {max}")]
    #[non_exhaustive]
    InvalidPermits {
        /// The number that was asked for, or that would have been available.
        permits: i64,
        /// The smallest number: 1 for permits that are acquired or released, 0 for those of a semaphore, and below 0 for those that are
        /// available.
        min: i32,
        /// The largest number.
        max: u32,
    },

    /// The text is not the id of a permit.
    #[error("invalid permit id {id:?}: expected 32 hex digits")]
    #[non_exhaustive]
    InvalidPermitId {
        /// The text, shortened if it is long.
        id: String,
    },

    /// The text is not that of an [`Owner`](crate::Owner).
    #[error("invalid owner {text:?}: expected the id of a client, a colon and a number")]
    #[non_exhaustive]
    InvalidOwner {
        /// The text, shortened if it is long.
        text: String,
    },

    /// The text is not that of a [`DetachedHold`](crate::DetachedHold), or of one with another sort of guard.
    #[error(
        "invalid text of a detached hold {text:?}: expected what a `DetachedHold` was written as, for the same sort of guard"
    )]
    #[non_exhaustive]
    InvalidDetachedHold {
        /// The text, shortened if it is long.
        text: String,
    },

    /// The count of a latch is 0, or more than Redisson can count.
    #[error("invalid count {count}: expected 1 to {}", i32::MAX)]
    #[non_exhaustive]
    InvalidCount {
        /// The count that was asked for.
        count: u32,
    },

    /// A setting has an invalid value.
    #[error("invalid setting {setting} = {value}{}{expected}", if expected.is_empty() { "" } else { ": expected " })]
    #[non_exhaustive]
    InvalidConfig {
        /// The name of the setting, which is that of its method.
        setting: &'static str,
        /// The value that it was given.
        value: String,
        /// The values that it may have. Empty if the text of the value says what to do.
        expected: String,
    },

    /// The URL does not name a server that this build can talk to. The text does not contain the URL's password.
    #[error("invalid server URL: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },

    /// An attribute found no client: it names none, it does not run inside [`with_client`](crate::with_client), and no
    /// client is [installed](crate::Client::install).
    #[error(
        "no distlock client here: call `client.install()` at start-up or `client.install_scoped()` in a test, wrap the call \
         in `distlock::with_client`, or give the attribute `client = ..`"
    )]
    NoClient,

    /// The client was closed before the lock was acquired.
    #[error("the distlock client was closed; {key:?} was not acquired")]
    #[non_exhaustive]
    Closed {
        /// The key that was asked for.
        key: String,
    },
}

// An error is never changed after it was made, so a panic cannot leave it half-changed. Its cause is a trait object, which
// would take these traits away.
impl UnwindSafe for Error {}
impl RefUnwindSafe for Error {}

impl Error {
    pub(crate) fn lost(key: &str, reason: Loss) -> Self {
        Self::Lost {
            key: key.to_owned(),
            reason,
            body_completed: false,
        }
    }

    pub(crate) fn closed(key: &str) -> Self {
        Self::Closed {
            key: key.to_owned(),
        }
    }

    /// An answer did not come in time, and no error of another crate says why.
    pub(crate) fn unavailable(key: &str, after: Duration, why: &'static str) -> Self {
        let why: Box<dyn std::error::Error + Send + Sync> = why.into();
        Self::Unavailable {
            key: key.to_owned(),
            after,
            cause: Arc::from(why),
        }
    }

    pub(crate) fn deadlock(key: &str, reason: impl Into<String>) -> Self {
        Self::Deadlock {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid_key(key: &str, reason: impl Into<String>) -> Self {
        Self::InvalidKey {
            key: cut(key),
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid_permit_id(text: &str) -> Self {
        Self::InvalidPermitId { id: cut(text) }
    }

    pub(crate) fn invalid_owner(text: &str) -> Self {
        Self::InvalidOwner { text: cut(text) }
    }

    pub(crate) fn invalid_detached_hold(text: &str) -> Self {
        Self::InvalidDetachedHold { text: cut(text) }
    }

    pub(crate) fn invalid_config(
        setting: &'static str,
        value: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::InvalidConfig {
            setting,
            value: value.to_string(),
            expected: expected.into(),
        }
    }

    pub(crate) fn invalid_time(
        setting: &'static str,
        time: Duration,
        expected: impl Into<String>,
    ) -> Self {
        Self::invalid_config(setting, exact(time), expected)
    }
}

#[cfg(test)]
mod tests;

//! What can go wrong, told apart by what the caller can do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The cause behind an error, from the layer below; its type is no part of this crate's promises.
pub(crate) type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// Why a lock could not be had or kept.
///
/// Busy, overloaded, unavailable, lost and permanent are never one value: ask with [`is_busy`](Error::is_busy),
/// [`is_overloaded`](Error::is_overloaded), [`is_unavailable`](Error::is_unavailable), [`is_lost`](Error::is_lost) and
/// [`is_permanent`](Error::is_permanent); each error answers yes to exactly one of them.
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
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wait ended while somebody else held the lock. Nothing is held.
    #[error("timed out after {} waiting for {key:?}, {blocker}", show(*waited))]
    #[non_exhaustive]
    Timeout {
        /// The key that was waited for.
        key: String,
        /// How long was waited.
        waited: Duration,
        /// Who stood in the way.
        blocker: Blocker,
    },

    /// The hold was gone before it was released: others may have been inside meanwhile.
    #[error("lost {key:?}: {reason}{}", if *.body_completed { "; the body had completed" } else { "" })]
    #[non_exhaustive]
    Lost {
        /// The key of the hold.
        key: String,
        /// How the loss came about.
        reason: Loss,
        /// Whether the guarded body ran to its end: then its effects stand, though perhaps not alone.
        body_completed: bool,
    },

    /// The backend gave no answer. Nothing is held that will not be freed by itself.
    #[error("lock backend unavailable for {} at {key:?}: {cause}", show(*after))]
    #[non_exhaustive]
    Unavailable {
        /// The key that was asked for.
        key: String,
        /// How long was tried.
        after: Duration,
        /// The last failure.
        #[source]
        cause: Cause,
    },

    /// The server refuses what this client needs: its user lacks a right.
    #[error("the server denied an operation on {key:?}: {cause}")]
    #[non_exhaustive]
    Denied {
        /// The key that was asked for.
        key: String,
        /// What the server said.
        #[source]
        cause: Cause,
    },

    /// The key holds something that is no lock of this kind; it was left as it is.
    #[error("{key:?} holds another type of value in the server; use another key")]
    #[non_exhaustive]
    WrongType {
        /// The key that was asked for.
        key: String,
    },

    /// The server answered something that cannot be understood.
    #[error("unexpected answer of the server for {key:?}: {cause}")]
    #[non_exhaustive]
    Protocol {
        /// The key that was asked for.
        key: String,
        /// What was wrong with it.
        #[source]
        cause: Cause,
    },

    /// As many wait for the key as may: this one was not to be had at once, and did not begin to wait.
    #[error("too many wait for {key:?}: {waiters} others already")]
    #[non_exhaustive]
    Overloaded {
        /// The key that was asked for.
        key: String,
        /// How many acquisitions waited for it, or for all keys of the client, whichever were too many.
        waiters: u32,
    },

    /// What was asked for is nothing that this kind of lock can do.
    #[error("unsupported for {key:?}: {reason}")]
    #[non_exhaustive]
    Unsupported {
        /// The key; of several the first.
        key: String,
        /// What it cannot do.
        reason: &'static str,
    },

    /// A lock of several keys or servers was given none.
    #[error("no keys: a lock of several needs at least one")]
    NoKeys,

    /// Waiting would never end: the scope around holds the key, in a way that keeps this acquisition out.
    #[error("acquiring {key:?} here would deadlock: {reason}")]
    #[non_exhaustive]
    Deadlock {
        /// The key, without the client's prefix.
        key: String,
        /// What stands in the way.
        reason: &'static str,
    },

    /// The key cannot name a lock.
    #[error("invalid key {key:?}: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// The key, cut short where it is long.
        key: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The lease is below a millisecond or beyond ten years.
    #[error("invalid lease {lease:?}: expected 1ms to 10 years")]
    #[non_exhaustive]
    InvalidLease {
        /// The lease that was asked for.
        lease: Duration,
    },

    /// The wait is longer than a timer can hold.
    #[error("invalid wait {wait:?}: expected at most a year; leave it out to wait without limit")]
    #[non_exhaustive]
    InvalidWait {
        /// The wait that was asked for.
        wait: Duration,
    },

    /// The number of permits is zero, or more than a semaphore can have.
    #[error("invalid number of permits {permits}: expected 1 to 2147483647")]
    #[non_exhaustive]
    InvalidPermits {
        /// The number that was asked for.
        permits: u64,
    },

    /// The text is no id of a permit.
    #[error("invalid permit id {id:?}: expected 32 hex digits")]
    #[non_exhaustive]
    InvalidPermitId {
        /// The text, cut short where it is long.
        id: String,
    },

    /// The count of a latch is 0, or beyond what Redisson can count.
    #[error("invalid count {count}: expected 1 to {}", i32::MAX)]
    #[non_exhaustive]
    InvalidCount {
        /// The count that was to be set.
        count: u32,
    },

    /// A setting of the builder cannot work.
    #[error("invalid setting {setting} = {value}")]
    #[non_exhaustive]
    InvalidConfig {
        /// The builder's method.
        setting: &'static str,
        /// What it was given.
        value: String,
    },

    /// The URL names no server that this build can talk to. Passwords are left out of the text.
    #[error("invalid server URL: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },

    /// An attribute found no client: neither scoped nor installed.
    #[error(
        "no distlock client here: call `client.install()` at start-up, wrap the call in `distlock::with_client`, \
         or give the attribute `client = ..`"
    )]
    NoClient,

    /// The client was closed.
    #[error("the distlock client was closed; {key:?} was not acquired")]
    #[non_exhaustive]
    Closed {
        /// The key that was asked for.
        key: String,
    },
}

/// Who stood in the way of an acquisition that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocker {
    /// Another owner, for at most this much longer unless it renews; `None` where its lease has no known end.
    Owner(Option<Duration>),
    /// Another waiter of this client, first in line.
    Queue,
    /// Another branch within the same scope, which holds the key just now.
    Sibling,
    /// A count-down latch, which was this far from 0.
    Count(u64),
}

/// How a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease ended without a confirmed renewal, by this process's own clock.
    Expired,
    /// The backend said that the hold is no longer there: it expired, was force-released or the data is gone.
    Gone,
    /// The watchdog renewed it no longer, because its [`max_hold`](crate::Acquire::max_hold) was over.
    HeldTooLong,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(Some(ttl)) => write!(f, "held for another {}", show(*ttl)),
            Self::Owner(None) => f.write_str("held with no known end"),
            Self::Queue => f.write_str("behind other waiters of this client"),
            Self::Sibling => f.write_str("held by a sibling branch of the same scope"),
            Self::Count(count) => write!(f, "whose count was still {count}"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ended before it was released",
            Self::Gone => "the server no longer knows the hold",
            Self::HeldTooLong => "it was held for longer than its `max_hold`",
        })
    }
}

impl Error {
    /// Somebody else holds the lock: trying later may help.
    /// # Examples
    /// See [`Error`].
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Others hold the lock, and as many wait for it as may: trying later may help, when there is less to do.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let error = client.lock("order:42").acquire().max_waiters(0).await.unwrap_err();
    /// assert!(error.is_overloaded() && !error.is_busy());
    /// # Ok(()) }
    /// ```
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Overloaded { .. })
    }

    /// [`Error::Overloaded`] of a crowd that is counted elsewhere: for `distlock-tower`.
    #[doc(hidden)]
    pub fn overloaded(key: String, waiters: u32) -> Self {
        Self::Overloaded { key, waiters }
    }

    /// Nobody answered: the lock may be free or held.
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.is_unavailable());
    /// ```
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// A hold was gone before its time.
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.is_lost());
    /// ```
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// The call, the configuration or the server's set-up must be changed: trying again will not help.
    /// # Examples
    /// ```
    /// assert!(distlock::Error::NoClient.is_permanent());
    /// ```
    pub fn is_permanent(&self) -> bool {
        !(self.is_busy() || self.is_overloaded() || self.is_unavailable() || self.is_lost())
    }

    /// Whether the error is a loss that was found only after the guarded body had run to its end.
    ///
    /// The body's effects stand then, though others may have been inside the critical section with it.
    /// # Examples
    /// ```
    /// assert!(!distlock::Error::NoClient.body_completed());
    /// ```
    pub fn body_completed(&self) -> bool {
        matches!(
            self,
            Self::Lost {
                body_completed: true,
                ..
            }
        )
    }

    /// The same error; a loss says that the guarded body had run to its end.
    ///
    /// For authors of middleware, whose release finds the loss. [`run`](crate::Acquire::run) does it by itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// client.lock("order:42").force_release().await?;
    /// let lost = guard.release().await.unwrap_err();
    /// assert!(lost.is_lost() && !lost.body_completed());
    /// assert!(lost.after_body().body_completed());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn after_body(self) -> Self {
        match self {
            Self::Lost { key, reason, .. } => Self::Lost {
                key,
                reason,
                body_completed: true,
            },
            other => other,
        }
    }

    pub(crate) fn lost(key: &str, reason: Loss) -> Self {
        Self::Lost {
            key: key.to_owned(),
            reason,
            body_completed: false,
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

    pub(crate) fn invalid_config(setting: &'static str, value: impl fmt::Debug) -> Self {
        Self::InvalidConfig {
            setting,
            value: format!("{value:?}"),
        }
    }
}

/// The beginning of a text, if it is long.
fn cut(text: &str) -> String {
    const SHOWN: usize = 64;
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown + ".."
    } else {
        shown
    }
}

/// A duration as people write it, to the millisecond.
fn show(duration: Duration) -> humantime::FormattedDuration {
    let whole = Duration::from_millis(duration.as_millis().min(u128::from(u64::MAX)) as u64);
    humantime::format_duration(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(blocker: Blocker) -> Error {
        Error::Timeout {
            key: "order:42".into(),
            waited: Duration::from_secs(5),
            blocker,
        }
    }

    #[test]
    fn messages_have_the_key_the_numbers_and_the_way_out() {
        let ttl = Some(Duration::from_micros(12_300_700));
        assert_eq!(
            timeout(Blocker::Owner(ttl)).to_string(),
            r#"timed out after 5s waiting for "order:42", held for another 12s 300ms"#
        );
        let lost = Error::lost("order:42", Loss::Expired).after_body();
        assert_eq!(
            lost.to_string(),
            r#"lost "order:42": its lease ended before it was released; the body had completed"#
        );
        let permits = Error::InvalidPermits { permits: 0 };
        assert_eq!(
            permits.to_string(),
            "invalid number of permits 0: expected 1 to 2147483647"
        );
    }

    #[test]
    fn each_error_answers_to_one_predicate() {
        let cause: Cause = Arc::new(std::io::Error::other("down"));
        let key = String::from("k");
        let all = [
            timeout(Blocker::Sibling),
            Error::lost("k", Loss::Gone),
            Error::Unavailable {
                key: key.clone(),
                after: Duration::ZERO,
                cause: cause.clone(),
            },
            Error::Denied {
                key: key.clone(),
                cause,
            },
            Error::Overloaded { key, waiters: 7 },
            Error::NoClient,
            Error::InvalidLease {
                lease: Duration::ZERO,
            },
        ];
        for error in all {
            let yes = [
                error.is_busy(),
                error.is_overloaded(),
                error.is_unavailable(),
                error.is_lost(),
                error.is_permanent(),
            ];
            assert_eq!(yes.iter().filter(|yes| **yes).count(), 1, "{error}");
        }
    }

    #[test]
    fn long_keys_are_cut_in_messages() {
        let error = Error::invalid_key(&"é".repeat(100), "it is long").to_string();
        assert!(error.len() < 200, "{error}");
    }
}

//! Errors for mocks: a constructor for each variant of [`Error`].
//!
//! A mock of your own code answers them, so that you can test what the code around it does with a lock that is taken, lost
//! or away. The fields are those of the variant. A [`timeout`] names no holder: for a test of code that reads the holder, acquire the
//! lock with another client of one [`MemoryServer`](crate::MemoryServer). [`Error::NoKeys`] and [`Error::NoClient`] have none and need no
//! constructor. [`Error::after_body`] marks a loss as found after the body.
//!
//! # Examples
//! ```
//! # use std::time::Duration;
//! use distlock::testing::errors;
//! use distlock::{Blocker, Error};
//!
//! /// The code under test: what it does when the lock is taken, and when the server is away.
//! fn status(paid: Result<(), Error>) -> u16 {
//!     match paid {
//!         Ok(()) => 200,
//!         Err(error) if error.is_held_by_another() => 409,
//!         Err(error) if error.is_unavailable() => 503,
//!         Err(_) => 500,
//!     }
//! }
//!
//! let held = Blocker::Owner(Some(Duration::from_secs(20)));
//! assert_eq!(status(Err(errors::timeout("order:42", Duration::from_secs(5), held))), 409);
//! assert_eq!(status(Err(errors::unavailable("order:42", Duration::from_secs(5), "connection refused"))), 503);
//! assert_eq!(status(Err(errors::denied("order:42", "NOPERM"))), 500);
//! ```

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Blocker, Error, Loss};

/// The cause of an error: a text, or any error.
type BoxError = Box<dyn StdError + Send + Sync>;

/// Makes an [`Error::Timeout`]: the lock was still taken when the wait ended.
///
/// # Examples
/// See the [module](self).
#[must_use]
pub fn timeout(key: impl Into<String>, waited: Duration, blocker: Blocker) -> Error {
    Error::Timeout {
        key: key.into(),
        waited,
        blocker,
        holder: None,
    }
}

/// Makes an [`Error::Lost`]: the hold ended before it was released.
///
/// # Examples
/// ```
/// use distlock::testing::errors;
///
/// let lost = errors::lost("order:42", distlock::Loss::Expired);
/// assert!(lost.is_lost() && !lost.body_completed());
/// assert!(lost.after_body().body_completed());
/// ```
#[must_use]
pub fn lost(key: impl Into<String>, reason: Loss) -> Error {
    Error::Lost {
        key: key.into(),
        reason,
        body_completed: false,
    }
}

/// Makes an [`Error::Unavailable`]: the lock server did not answer for the time `after`.
///
/// # Examples
/// See the [module](self).
#[must_use]
pub fn unavailable(key: impl Into<String>, after: Duration, cause: impl Into<BoxError>) -> Error {
    Error::Unavailable {
        key: key.into(),
        after,
        cause: shared(cause),
    }
}

/// Makes an [`Error::Unreachable`]: a client could not connect to `server` within the time `after`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use distlock::testing::errors;
///
/// let refused = errors::unreachable("127.0.0.1:6379", Duration::from_secs(5), "connection refused");
/// assert!(refused.is_unavailable());
/// ```
#[must_use]
pub fn unreachable(
    server: impl Into<String>,
    after: Duration,
    cause: impl Into<BoxError>,
) -> Error {
    Error::Unreachable {
        server: server.into(),
        after,
        cause: shared(cause),
    }
}

/// Makes an [`Error::TimePaused`]: a client was to connect to `server` while tokio's time was paused.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::time_paused("127.0.0.1:6379").is_permanent());
/// ```
#[must_use]
pub fn time_paused(server: impl Into<String>) -> Error {
    Error::TimePaused {
        server: server.into(),
    }
}

/// Makes an [`Error::ReleasesPending`]: a client was closed, and in the time `after` these numbers of holds had not ended and of
/// releases were not confirmed.
///
/// # Examples
/// ```
/// let pending = distlock::testing::errors::releases_pending(0, 3, std::time::Duration::from_secs(5));
/// assert!(pending.is_unavailable());
/// ```
#[must_use]
pub fn releases_pending(holds: usize, releases: usize, after: Duration) -> Error {
    Error::ReleasesPending {
        holds,
        releases,
        after,
    }
}

/// Makes an [`Error::Denied`]: the server refused a command.
///
/// # Examples
/// See the [module](self).
#[must_use]
pub fn denied(key: impl Into<String>, cause: impl Into<BoxError>) -> Error {
    Error::Denied {
        key: key.into(),
        cause: shared(cause),
    }
}

/// Makes an [`Error::LoginDenied`]: `server` refused the user or the password.
///
/// # Examples
/// ```
/// let refused = distlock::testing::errors::login_denied("127.0.0.1:6379", "WRONGPASS");
/// assert!(refused.is_permanent());
/// ```
#[must_use]
pub fn login_denied(server: impl Into<String>, cause: impl Into<BoxError>) -> Error {
    Error::LoginDenied {
        server: server.into(),
        cause: shared(cause),
    }
}

/// Makes an [`Error::UnsupportedServer`]: this crate cannot use `server`.
///
/// # Examples
/// ```
/// let too_old = distlock::testing::errors::unsupported_server("127.0.0.1:6379", "it does not support RESP3");
/// assert!(too_old.is_permanent());
/// ```
#[must_use]
pub fn unsupported_server(server: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::UnsupportedServer {
        server: server.into(),
        reason: reason.into(),
    }
}

/// Makes an [`Error::WrongType`]: the key holds another type of value.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::wrong_type("order:42").is_permanent());
/// ```
#[must_use]
pub fn wrong_type(key: impl Into<String>) -> Error {
    Error::WrongType { key: key.into() }
}

/// Makes an [`Error::Protocol`]: the server's answer could not be understood.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::protocol("order:42", "not a number").is_permanent());
/// ```
#[must_use]
pub fn protocol(key: impl Into<String>, cause: impl Into<BoxError>) -> Error {
    Error::Protocol {
        key: key.into(),
        cause: shared(cause),
    }
}

/// Makes an [`Error::Overloaded`]: the waiter limit is reached.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::overloaded("order:42", 1_000).is_overloaded());
/// ```
#[must_use]
pub fn overloaded(key: impl Into<String>, waiters: u32) -> Error {
    Error::Overloaded {
        key: key.into(),
        waiters,
    }
}

/// Makes an [`Error::Unsupported`]: this kind of lock does not support the operation.
///
/// # Examples
/// ```
/// let refused = distlock::testing::errors::unsupported("order:42", "a lock of a quorum has a single key");
/// assert!(refused.is_permanent());
/// ```
#[must_use]
pub fn unsupported(key: impl Into<String>, reason: &'static str) -> Error {
    Error::Unsupported {
        key: key.into(),
        reason,
    }
}

/// Makes an [`Error::Deadlock`]: the acquisition would wait for itself.
///
/// # Examples
/// ```
/// let refused = distlock::testing::errors::deadlock("order:42", "a write lock inside a read of the same key");
/// assert!(refused.is_permanent());
/// ```
#[must_use]
pub fn deadlock(key: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::Deadlock {
        key: key.into(),
        reason: reason.into(),
    }
}

/// Makes an [`Error::InvalidKey`]: the key cannot name a lock.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_key("", "it is empty").is_permanent());
/// ```
#[must_use]
pub fn invalid_key(key: impl AsRef<str>, reason: impl Into<String>) -> Error {
    Error::invalid_key(key.as_ref(), reason)
}

/// Makes an [`Error::InvalidLease`]: the lease is too short or too long. `margin` is zero, except for a Redlock.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// assert!(distlock::testing::errors::invalid_lease(Duration::ZERO, Duration::ZERO).is_permanent());
/// ```
#[must_use]
pub fn invalid_lease(lease: Duration, margin: Duration) -> Error {
    Error::InvalidLease { lease, margin }
}

/// Makes an [`Error::InvalidWait`]: the wait is too long.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// assert!(distlock::testing::errors::invalid_wait(Duration::from_secs(1 << 40)).is_permanent());
/// ```
#[must_use]
pub fn invalid_wait(wait: Duration) -> Error {
    Error::InvalidWait { wait }
}

/// Makes an [`Error::InvalidPermits`]: the number of permits is below `min` or above `max`.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_permits(0, 1, 3).is_permanent());
/// ```
#[must_use]
pub fn invalid_permits(permits: i64, min: i32, max: u32) -> Error {
    Error::InvalidPermits { permits, min, max }
}

/// Makes an [`Error::InvalidPermitId`]: the text is not the id of a permit.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_permit_id("42").is_permanent());
/// ```
#[must_use]
pub fn invalid_permit_id(id: impl AsRef<str>) -> Error {
    Error::invalid_permit_id(id.as_ref())
}

/// Makes an [`Error::InvalidOwner`]: the text is not that of an owner.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_owner("42").is_permanent());
/// ```
#[must_use]
pub fn invalid_owner(text: impl AsRef<str>) -> Error {
    Error::invalid_owner(text.as_ref())
}

/// Makes an [`Error::InvalidDetachedHold`]: the text is not that of a detached hold.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_detached_hold("42").is_permanent());
/// ```
#[must_use]
pub fn invalid_detached_hold(text: impl AsRef<str>) -> Error {
    Error::invalid_detached_hold(text.as_ref())
}

/// Makes an [`Error::InvalidCount`]: the count of a latch is invalid.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_count(0).is_permanent());
/// ```
#[must_use]
pub fn invalid_count(count: u32) -> Error {
    Error::InvalidCount { count }
}

/// Makes an [`Error::InvalidConfig`]: a setting has an invalid value.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_config("page_size", "0", "1 to 10000").is_permanent());
/// ```
#[must_use]
pub fn invalid_config(
    setting: &'static str,
    value: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::InvalidConfig {
        setting,
        value: value.into(),
        expected: expected.into(),
    }
}

/// Makes an [`Error::InvalidUrl`]: the URL names no server that this build can talk to.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::invalid_url("it has no host").is_permanent());
/// ```
#[must_use]
pub fn invalid_url(reason: impl Into<String>) -> Error {
    Error::InvalidUrl {
        reason: reason.into(),
    }
}

/// Makes an [`Error::Closed`]: the client was closed before the lock was acquired.
///
/// # Examples
/// ```
/// assert!(distlock::testing::errors::closed("order:42").is_permanent());
/// ```
#[must_use]
pub fn closed(key: impl Into<String>) -> Error {
    Error::Closed { key: key.into() }
}

fn shared(cause: impl Into<BoxError>) -> Arc<dyn StdError + Send + Sync> {
    Arc::from(cause.into())
}

#[cfg(test)]
mod tests;

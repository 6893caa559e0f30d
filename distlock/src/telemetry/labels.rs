//! The words for the lock and the outcome of an acquisition, in its span and in the metrics.

use crate::error::Error;
use crate::resource::kind::Kind;

/// Names the class of a key.
pub(crate) type KeyClass = fn(&str) -> &'static str;

/// The type of lock that is acquired, in spans and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockType {
    Single(Kind),
    Multi,
    Red,
}

impl LockType {
    /// How many there are.
    #[cfg(feature = "metrics")]
    pub(super) const NUMBER: usize = Kind::NUMBER + 2;

    /// Its place in a table of all types.
    #[cfg(feature = "metrics")]
    pub(super) fn index(self) -> usize {
        match self {
            Self::Single(kind) => kind as usize,
            Self::Multi => Kind::NUMBER,
            Self::Red => Kind::NUMBER + 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single(kind) => kind.name(),
            Self::Multi => "multi_lock",
            Self::Red => "red_lock",
        }
    }
}

/// How an acquisition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    Busy,
    Overloaded,
    Unavailable,
    Lost,
    Closed,
    Failed,
    /// Its future was dropped.
    Cancelled,
}

impl Outcome {
    /// In the order of their declaration.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 8] = [
        Self::Granted,
        Self::Busy,
        Self::Overloaded,
        Self::Unavailable,
        Self::Lost,
        Self::Closed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The outcome of an acquisition that has failed with this error, or was granted.
    pub(crate) fn of(error: Option<&Error>) -> Self {
        match error {
            None => Self::Granted,
            Some(Error::Closed { .. }) => Self::Closed,
            Some(error) if error.is_held_by_another() => Self::Busy,
            Some(error) if error.is_overloaded() => Self::Overloaded,
            // Nobody is known to hold the lock if a wait that was too short ended before the server had answered.
            Some(error) if error.is_unavailable() || error.is_busy() => Self::Unavailable,
            Some(error) if error.is_lost() => Self::Lost,
            Some(_) => Self::Failed,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Lost => "lost",
            Self::Closed => "closed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Outcome;
    use crate::error::{Blocker, Error};

    #[test]
    fn wait_that_ended_before_the_server_had_answered_is_unavailable_and_not_busy() {
        let ended = |blocker| {
            let error = Error::Timeout {
                key: String::from("order:42"),
                waited: Duration::ZERO,
                blocker,
                holder: None,
            };
            Outcome::of(Some(&error))
        };
        assert_eq!(ended(Blocker::Unanswered), Outcome::Unavailable);
        assert_eq!(ended(Blocker::Owner(None)), Outcome::Busy);
        assert_eq!(ended(Blocker::Queue(None)), Outcome::Busy);
    }
}

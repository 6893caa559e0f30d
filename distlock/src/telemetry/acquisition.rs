//! The span of one acquisition, and the words for its lock and its outcome.

use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, debug};
use uuid::Uuid;

use super::TARGET;
use crate::error::Error;
use crate::foreign;
use crate::resource::key::Key;
use crate::resource::kind::Kind;

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
            Some(error) if error.is_busy() => Self::Busy,
            Some(error) if error.is_overloaded() => Self::Overloaded,
            Some(error) if error.is_unavailable() => Self::Unavailable,
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

/// The span of an acquisition, unless nobody collects spans of this level. Then the cost is a comparison of levels.
pub(crate) fn acquire_span<'k>(
    lock_type: LockType,
    keys: impl Iterator<Item = &'k Key>,
    client: Uuid,
    wait: Option<Duration>,
) -> Option<Box<Span>> {
    let keys = || keys.map(Key::text).collect::<Vec<_>>().join(", ");
    let span = foreign::tell(|| {
        tracing::debug_span!(
            target: TARGET, "distlock.acquire", kind = lock_type.name(), key = keys(), %client,
            wait = wait.map(debug), outcome = Empty, waited = Empty,
        )
    });
    (!span.is_disabled()).then(|| Box::new(span))
}

/// Records how an acquisition ended. `span`: its span, if there is one.
pub(crate) fn acquire_ended(span: Option<&Span>, outcome: Outcome, waited: Duration) {
    if let Some(span) = span {
        foreign::tell(|| {
            span.record("outcome", outcome.name());
            span.record("waited", debug(waited));
        });
    }
}

/// Logs that an acquisition ended without a grant, inside its span.
pub(crate) fn acquire_refused(span: Option<&Span>, error: &Error) {
    foreign::tell(|| match span {
        Some(span) => span.in_scope(|| super::refused(error)),
        None => super::refused(error),
    });
}

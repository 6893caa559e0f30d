//! Why a request was refused, and what is always said of that.

use std::time::Duration;

use bytes::Bytes;
use distlock::{Blocker, Error};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::{grpc, problem};

/// Bounds of `Retry-After` in seconds. What is left of a lease that is being renewed says nothing about its end.
const RETRY_AFTER_BUSY: (u64, u64) = (1, 10);

/// `Retry-After` in seconds where too many wait: they have come and gone by then, or it is said again.
const RETRY_AFTER_OVERLOADED: u64 = 1;

/// `Retry-After` in seconds where nobody answered: a server that is down or failing over needs some.
const RETRY_AFTER_UNAVAILABLE: u64 = 5;

/// What kind of refusal a [`Rejection`] is.
///
/// # Examples
/// ```
/// use distlock_tower::{Reason, Rejection};
///
/// fn is_worth_a_page(rejection: &Rejection) -> bool {
///     matches!(rejection.reason(), Reason::Unavailable | Reason::Config)
/// }
/// # let _ = is_worth_a_page;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Held by another until the wait was over.
    Busy,
    /// Too many wait already.
    Overloaded,
    /// The lock server could not be reached.
    Unavailable,
    /// The hold was lost before it was released. The only one in which the handler was called.
    Lost,
    /// The request gave no key, or one that cannot be.
    Key,
    /// The layer is misused, or the server refuses its client.
    Config,
}

impl Reason {
    /// The last word of the problem's `type`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Lost => "lost",
            Self::Key => "key",
            Self::Config => "config",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Busy => "Locked by another request",
            Self::Overloaded => "Too many requests wait",
            Self::Unavailable => "Lock service unavailable",
            Self::Lost => "Lock lost",
            Self::Key => "Invalid lock key",
            Self::Config => "Lock misconfigured",
        }
    }

    pub(super) fn is_retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Overloaded | Self::Unavailable)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::CONFLICT,
            Self::Overloaded | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Lost | Self::Config => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Key => StatusCode::BAD_REQUEST,
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Busy => {
                "Another request is at work on the same resource. Nothing was done; try again later."
            }
            Self::Overloaded => {
                "Too many requests wait for the same resource. Nothing was done; try again later."
            }
            Self::Unavailable => {
                "The lock that this request needs could not be acquired. Nothing was done; try again later."
            }
            Self::Lost => {
                "The lock was lost while the request was being handled. What it did, if anything, is unknown."
            }
            Self::Key => {
                "The request does not say, in a form that can be used, which resource it is about."
            }
            Self::Config => "The server's locks are not set up as this request needs them.",
        }
    }
}

/// A request that the layer refuses, as [`LockLayer::on_reject`](crate::LockLayer::on_reject) gets to see it.
///
/// # Examples
/// ```
/// use distlock_tower::LockLayer;
/// use http::header::RETRY_AFTER;
///
/// let client = distlock::Client::in_memory();
/// let layer = LockLayer::new(client)
///     .key(|_: &http::request::Parts| "import")
///     .on_reject(|rejection| {
///         let mut answer = rejection.answer(); // what would be sent without this function
///         answer.headers_mut().remove(RETRY_AFTER);
///         answer
///     });
/// ```
#[derive(Clone, Debug)]
pub struct Rejection {
    reason: Reason,
    pub(super) status: StatusCode,
    retry_after: Option<u64>,
    pub(super) detail: &'static str,
    error: Option<Error>,
    pub(super) grpc: bool,
}

impl Rejection {
    pub(crate) fn new(reason: Reason) -> Self {
        Self {
            reason,
            status: reason.status(),
            retry_after: None,
            detail: reason.detail(),
            error: None,
            grpc: false,
        }
    }

    /// A body that is too large to look for a key in it.
    pub(crate) fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: "The request's body is too large to see which resource it is about.",
            ..Self::new(Reason::Key)
        }
    }

    /// A request that found its lock held, in a layer where as many are acquiring as may.
    pub(super) fn too_many_pending(busy: &Error) -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_OVERLOADED),
            error: Some(busy.clone()),
            ..Self::new(Reason::Overloaded)
        }
    }

    pub(super) fn of(error: &Error) -> Self {
        let (reason, retry_after) = match error {
            Error::Timeout { blocker, .. } => (Reason::Busy, Some(retry_after(*blocker))),
            Error::Overloaded { .. } => (Reason::Overloaded, Some(RETRY_AFTER_OVERLOADED)),
            Error::Unavailable { .. } => (Reason::Unavailable, Some(RETRY_AFTER_UNAVAILABLE)),
            Error::Lost { .. } => (Reason::Lost, None),
            Error::InvalidKey { .. } => (Reason::Key, None),
            _ => (Reason::Config, None),
        };
        Self {
            retry_after,
            error: Some(error.clone()),
            ..Self::new(reason)
        }
    }

    /// What kind of refusal it is.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status that the layer answers with by itself. A gRPC client gets another one: it is in the answer's headers.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// After how long trying again may help, in whole seconds; `None` where it will not.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    /// What went wrong with the lock; `None` where the request's keys were refused before that.
    ///
    /// Its text names the key: it is for logs, and not for answers.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the request came by gRPC, whose clients understand no other answer than one in its own form.
    pub fn is_grpc(&self) -> bool {
        self.grpc
    }

    /// What the layer answers by itself: problem+json, or trailers only where the request came by gRPC.
    pub fn answer(&self) -> Response<Full<Bytes>> {
        if self.grpc {
            grpc::answer(self)
        } else {
            problem::answer(self)
        }
    }
}

fn retry_after(blocker: Blocker) -> u64 {
    let (least, most) = RETRY_AFTER_BUSY;
    match blocker {
        Blocker::Owner(Some(left)) => ceil_secs(left).clamp(least, most),
        Blocker::Owner(None) => most,
        _ => least,
    }
}

fn ceil_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

//! Why a request was refused: the reasons, and what each of them means for the answer.

use distlock::Error;
use http::StatusCode;

/// Why a request was refused.
///
/// # Examples
/// ```
/// use distlock_tower::{Reason, Rejection};
///
/// fn needs_alert(rejection: &Rejection) -> bool {
///     matches!(rejection.reason(), Reason::Unavailable | Reason::Config)
/// }
/// # let _ = needs_alert;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Another owner held the lock until the wait was over.
    Busy,
    /// The lock is held, and a waiter limit is reached: [`max_waiters`](crate::LockLayer::max_waiters),
    /// [`max_pending_requests`](crate::LockLayer::max_pending_requests), or a limit of the client.
    Overloaded,
    /// The lock server could not be reached, or had not answered when the wait was over, or the client is [closed](distlock::Client::close).
    Unavailable,
    /// The hold was lost before its release. The handler was called.
    Lost,
    /// The client took longer than [`request_body_timeout`](crate::LockLayer::request_body_timeout) to send the
    /// request's body. The handler was called.
    BodyTimeout,
    /// The request has no key, or an invalid one, or one whose name in the lock server holds data that is not a lock.
    Key,
    /// The layer is used wrongly, or the lock server rejects the client.
    Config,
}

impl Reason {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 7] = [
        Self::Busy,
        Self::Overloaded,
        Self::Unavailable,
        Self::Lost,
        Self::BodyTimeout,
        Self::Key,
        Self::Config,
    ];

    pub(crate) fn of(error: &Error) -> Self {
        match error {
            held if held.is_held_by_another() => Self::Busy,
            Error::Overloaded { .. } => Self::Overloaded,
            // A timeout that is left: nobody is known to hold the lock.
            Error::Timeout { .. }
            | Error::Unavailable { .. }
            | Error::Unreachable { .. }
            | Error::ReleasesPending { .. }
            // Mostly the process ends, and another one serves the next request.
            | Error::Closed { .. } => Self::Unavailable,
            Error::Lost { .. } => Self::Lost,
            // Clients choose keys, and may hit one that holds something else.
            Error::InvalidKey { .. } | Error::WrongType { .. } => Self::Key,
            _ => Self::Config,
        }
    }

    /// Returns the name of the reason: the last part of the `type` of the default answer, which is `urn:distlock:busy` for
    /// [`Busy`](Self::Busy), for example. Names do not change.
    ///
    /// # Examples
    /// An own body with what the default answer says:
    /// ```
    /// use distlock_tower::{LockLayer, Rejection};
    /// use http::Response;
    ///
    /// fn own_answer(rejection: Rejection) -> Response<String> {
    ///     let body = format!(
    ///         r#"{{"error":"urn:distlock:{}","title":"{}","message":"{}","retry":{}}}"#,
    ///         rejection.reason().name(),
    ///         rejection.reason().title(),
    ///         rejection.detail(),
    ///         rejection.is_retryable(),
    ///     );
    ///     let mut answer = Response::new(body);
    ///     *answer.status_mut() = rejection.status();
    ///     answer
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .on_reject(own_answer);
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Lost => "lost",
            Self::BodyTimeout => "body-timeout",
            Self::Key => "key",
            Self::Config => "config",
        }
    }

    /// The value of its label in metrics.
    #[cfg(feature = "metrics")]
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::BodyTimeout => "body_timeout",
            _ => self.name(),
        }
    }

    /// Returns the `title` of the default answer: what has happened, in a few words.
    ///
    /// # Examples
    /// See [`name`](Self::name).
    pub fn title(self) -> &'static str {
        match self {
            Self::Busy => "Locked by another request",
            Self::Overloaded => "Too many waiting requests",
            Self::Unavailable => "Lock service unavailable",
            Self::Lost => "Lock lost",
            Self::BodyTimeout => "Request body took too long",
            Self::Key => "Invalid lock key",
            Self::Config => "Lock misconfigured",
        }
    }

    pub(super) fn is_retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Overloaded | Self::Unavailable)
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::CONFLICT,
            Self::Overloaded | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Lost | Self::Config => StatusCode::INTERNAL_SERVER_ERROR,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Key => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::Busy => {
                "Another request is using the same resource. Nothing was done; try again later."
            }
            Self::Overloaded => {
                "Too many requests are already waiting. Nothing was done; try again later."
            }
            Self::Unavailable => {
                "The lock that this request needs could not be acquired. Nothing was done; try again later."
            }
            Self::Lost => {
                "The lock was lost while the request was handled. It is unknown how much of the request was done."
            }
            Self::BodyTimeout => {
                "The request's body did not arrive in time. It is unknown how much of the request was done."
            }
            Self::Key => "The request does not name its resource in a valid form.",
            Self::Config => "The locks of this server are misconfigured. Nothing was done.",
        }
    }

    /// The detail if the handler may have worked before the error.
    pub(super) fn detail_of_unknown_work(self) -> &'static str {
        match self {
            Self::Busy => {
                "Another request is using the same resource. It is unknown how much of the request was done."
            }
            Self::Overloaded => {
                "Too many requests are already waiting. It is unknown how much of the request was done."
            }
            Self::Unavailable => {
                "The lock service is not available. It is unknown how much of the request was done."
            }
            Self::Config => {
                "The locks of this server are misconfigured. It is unknown how much of the request was done."
            }
            Self::Key => {
                "The name of a resource is not in a valid form. It is unknown how much of the request was done."
            }
            Self::Lost | Self::BodyTimeout => self.detail(),
        }
    }
}

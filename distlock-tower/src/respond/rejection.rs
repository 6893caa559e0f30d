//! The answer to a request that is refused: reason, status, texts, and `Retry-After`.

use std::fmt;
use std::time::Duration;

use distlock::Error;
use http::StatusCode;

use super::pace::Pace;
use super::reason::Reason;

/// `Retry-After` in seconds when a waiter limit is reached. Queues change fast, and a retry is cheap.
const RETRY_AFTER_OVERLOADED: u64 = 1;

/// `Retry-After` in seconds when the lock server does not answer. A restart or a failover takes some seconds.
const RETRY_AFTER_UNAVAILABLE: u64 = 5;

/// A request that the layer refuses. The argument of the function for
/// [`LockLayer::on_reject`](crate::LockLayer::on_reject).
///
/// It is also an error type for axum handlers that lock without the layer, by `#[distributed_lock]` or by
/// [`acquire`](distlock::Lock::acquire). As a response it is `application/problem+json`. The error is logged then, because
/// its text contains the key and the answer does not. A handler that is called by gRPC clients needs its own translation.
///
/// There are two ways to make it of a [`distlock::Error`]:
///
/// * [`Rejection::before_work`] is for the error of an acquisition that comes before all work. It is the answer that the
///   layer would give: nothing was done, and the client may send the request again after `Retry-After`.
/// * `From`, and so `?`, is for all other errors. It has the same status. A conversion cannot know what the handler did
///   before, so the answer says that this is unknown. It has no `Retry-After`, and `retryable` is false.
///
/// The error of [`Guard::release`](distlock::Guard::release) after the work mostly belongs in the log, and not in the
/// answer: unless it [is a loss](distlock::Error::is_lost), the work was done under the lock.
///
/// As an error it has the text of [`detail`](Rejection::detail), and [`error`](Rejection::error) is its source.
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use axum::{Router, body::Body, extract::Path, http::Request, routing::post};
/// use distlock::{Client, distributed_lock};
/// use distlock_tower::Rejection;
/// use tower::ServiceExt;
///
/// #[distributed_lock(key = "order:<id>", wait = 0, on_error = |error| Err(Rejection::before_work(error)))]
/// async fn pay(Path(id): Path<u64>) -> Result<String, Rejection> {
///     Ok(format!("paid {id}"))
/// }
///
/// let client = Client::in_memory();
/// let app: Router = Router::new().route("/orders/{id}/pay", post(pay));
/// let _other = client.lock("order:42").acquire().await.unwrap();
/// let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
/// let response = distlock::with_client(&client, app.oneshot(request)).await.unwrap();
/// assert_eq!(response.status(), 409);
/// assert!(response.headers().contains_key("retry-after"));
/// # }
/// ```
///
/// For `on_reject`:
/// ```
/// use distlock_tower::LockLayer;
/// use http::header::RETRY_AFTER;
///
/// let client = distlock::Client::in_memory();
/// let layer = LockLayer::new(client)
///     .key(|_: &http::request::Parts| "import")
///     .on_reject(|rejection| {
///         eprintln!("{:?}: {:?}", rejection.reason(), rejection.error());
///         let mut answer = rejection.answer(); // the default answer
///         if !rejection.is_grpc() {
///             answer.headers_mut().remove(RETRY_AFTER);
///         }
///         answer
///     });
/// ```
#[derive(Clone, Debug)]
pub struct Rejection {
    pub(super) reason: Reason,
    pub(super) status: StatusCode,
    pub(super) retryable: bool,
    retry_after: Option<u64>,
    pub(super) detail: &'static str,
    pub(super) error: Option<Error>,
    pub(super) grpc: bool,
    /// Whether the error was logged already.
    #[cfg(feature = "axum")]
    pub(super) is_logged: bool,
}

impl Rejection {
    pub(crate) fn new(reason: Reason) -> Self {
        Self {
            reason,
            status: reason.status(),
            retryable: reason.is_retryable(),
            retry_after: None,
            detail: reason.detail(),
            error: None,
            grpc: false,
            #[cfg(feature = "axum")]
            is_logged: true,
        }
    }

    /// The body is too large to read a key from it.
    pub(crate) fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: "The request's body is too large.",
            ..Self::new(Reason::Key)
        }
    }

    /// The body has an encoding or a type in which no key can be read.
    pub(crate) fn unsupported_body() -> Self {
        Self {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            detail: "The encoding or the type of the request's body is not supported.",
            ..Self::new(Reason::Key)
        }
    }

    /// The layer's limit of pending requests is reached, and the lock is held.
    pub(super) fn too_many_pending(busy: &Error) -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_OVERLOADED),
            error: Some(busy.clone()),
            ..Self::new(Reason::Overloaded)
        }
    }

    pub(super) fn of(error: &Error, pace: Pace) -> Self {
        let reason = Reason::of(error);
        let retry_after = match (reason, error) {
            (Reason::Busy, Error::Timeout { blocker, .. }) => Some(pace.retry_after(*blocker)),
            (Reason::Overloaded, _) => Some(RETRY_AFTER_OVERLOADED),
            (Reason::Unavailable, _) => Some(RETRY_AFTER_UNAVAILABLE),
            _ => None,
        };
        Self {
            retry_after,
            error: Some(error.clone()),
            ..Self::new(reason)
        }
    }

    /// The answer to a request whose handler did nothing before this error.
    ///
    /// It is the answer that the layer would give: 409 or 503 with `Retry-After`, and a text that says that nothing was
    /// done. Use it for the error of an acquisition that comes before all work, and for an annotated function whose body
    /// returns no errors of other locks. If the lock was [lost](Error::is_lost), the answer still says that the outcome is
    /// unknown.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::Rejection;
    ///
    /// async fn pay(client: &distlock::Client, id: u64) -> Result<String, Rejection> {
    ///     let lock = client.lock(format!("order:{id}"));
    ///     let guard = lock.acquire().await.map_err(Rejection::before_work)?;
    ///     let paid = format!("paid {id}"); // the work
    ///     match guard.release().await {
    ///         Err(loss) if loss.is_lost() => return Err(loss.into()),
    ///         Err(error) => eprintln!("order {id} is paid, but {error}"),
    ///         Ok(()) => {}
    ///     }
    ///     Ok(paid)
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # assert_eq!(pay(&distlock::Client::in_memory(), 7).await.unwrap(), "paid 7");
    /// # }
    /// ```
    pub fn before_work(error: Error) -> Self {
        Self {
            #[cfg(feature = "axum")]
            is_logged: false,
            ..Self::of(&error, Pace::default())
        }
    }

    /// Returns why the request was refused.
    ///
    /// # Examples
    /// See [`Reason`].
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the HTTP status of the default answer. The answer to a gRPC client has status 200, and a gRPC status in
    /// its headers.
    ///
    /// # Examples
    /// See [`Rejection`].
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which a retry can succeed, in whole seconds, or `None` if a retry does not help or may do the
    /// work twice.
    ///
    /// # Examples
    /// See [`Rejection`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    /// Returns the error of the acquisition or of the hold, or `None` if the request has no valid key.
    ///
    /// If the limit of [pending requests](crate::LockLayer::max_pending_requests) is reached, this is the
    /// [`Timeout`](Error::Timeout) of the single attempt.
    ///
    /// The text of the error contains the key. Log it, and do not send it to clients.
    ///
    /// # Examples
    /// See [`Rejection`].
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Returns the `detail` of the default answer, which says what the client can do. It has no key.
    ///
    /// # Examples
    /// See [`Reason::name`].
    pub fn detail(&self) -> &'static str {
        self.detail
    }

    /// Returns the `retryable` of the default answer: whether nothing was done, and the same request may succeed later.
    ///
    /// # Examples
    /// See [`Reason::name`].
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns whether the request came by gRPC. Such clients only understand gRPC answers.
    ///
    /// # Examples
    /// See [`Rejection`].
    pub fn is_grpc(&self) -> bool {
        self.grpc
    }
}

/// The text has no key. The text of the source has it.
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail)
    }
}

impl std::error::Error for Rejection {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}

impl From<Error> for Rejection {
    /// Makes no promise about what was done before the error: see [`Rejection::before_work`].
    fn from(error: Error) -> Self {
        // The error may be that of a release, or of a second lock, after the work.
        let rejection = Self::before_work(error);
        Self {
            retryable: false,
            retry_after: None,
            detail: rejection.reason.detail_of_unknown_work(),
            ..rejection
        }
    }
}

/// Logs why a request did not get its lock, or lost it.
pub(super) fn log(reason: Reason, error: &Error) {
    match reason {
        Reason::Busy | Reason::Overloaded => {
            tracing::info!(%error, "request refused: the lock is busy")
        }
        Reason::Unavailable => {
            tracing::warn!(%error, "request refused: the lock server has not answered, or the client is closed")
        }
        Reason::Lost => {
            tracing::error!(%error, "lock lost while its request was handled; the client gets a 500")
        }
        // Any client may send such a key, so the line must not look like a fault of the program.
        Reason::Key => {
            tracing::info!(%error, "request refused: its lock key is invalid, or holds other data")
        }
        Reason::Config | Reason::BodyTimeout => {
            tracing::error!(%error, "request refused: the layer or the lock server is misconfigured");
        }
    }
}

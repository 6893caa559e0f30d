//! The times of a request's lock, for access logs.

use std::time::Duration;

/// How long a request waited for its lock and held it. An extension of the response, for access logs and metrics.
///
/// A response of a [`LockService`](crate::LockService) has it if the request asked for a lock, even if the request was
/// refused. With several lock layers around a handler, it has the times of the outermost layer.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), std::convert::Infallible> {
/// use std::time::Duration;
/// use distlock_tower::{LockInfo, LockLayer};
/// use http::{Request, Response, request::Parts};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// async fn import(_: Request<()>) -> Result<Response<String>, std::convert::Infallible> {
///     Ok(Response::new(String::from("done")))
/// }
///
/// let layer = LockLayer::new(distlock::Client::in_memory()).key(|_: &Parts| "import");
/// let response = layer.layer(service_fn(import)).oneshot(Request::new(())).await?;
/// let info = response.extensions().get::<LockInfo>();
/// assert!(info.is_some_and(|info| info.waited < Duration::from_secs(1)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The time from the start of the acquisition to the grant or the refusal.
    pub waited: Duration,
    /// The time from the grant to the response, or zero if there was no grant. With
    /// [`HoldUntil::Body`](crate::HoldUntil::Body) the hold continues after that.
    pub held: Duration,
}

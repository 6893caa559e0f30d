//! What access logs want to know of a request's lock.

use std::time::Duration;

/// How long a request waited for its lock and held it: an extension of the response, for access logs and metrics.
///
/// Every response of a [`LockService`](crate::LockService) has it whose request asked for a lock, refused ones included;
/// with several layers around a handler it is the outermost one's.
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
    /// From asking for the lock to its grant, or to the refusal.
    pub waited: Duration,
    /// From the grant to the response; zero where there was no grant. With [`HoldUntil::Body`](crate::HoldUntil::Body)
    /// the hold goes on from there.
    pub held: Duration,
}

//! The bound on the time that a request's body takes while its lock is held, and the rest of a body that nobody reads.
//!
//! The inner service gets the body with its own type. A body is therefore timed only if its type can be built from any
//! other body: axum's body, and the boxed bodies of `http-body-util`, also within its `Limited`, or as the `KeyedBody` of a
//! lock layer outside. `watch` rebuilds such a body around the timed one.

mod clock;
mod drain;
mod keyed;
#[cfg(feature = "axum")]
mod limited;
mod timed;

use std::any::Any;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Request, Version};
use http_body::Body;
use http_body_util::Limited;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};

pub(crate) use self::clock::BodyClock;
pub(crate) use self::drain::{DRAIN_LIMIT, drain, drain_unread, may_drain, may_drain_begun};
pub use self::keyed::KeyedBody;
#[cfg(feature = "axum")]
use self::limited::LimitedBody;
pub(crate) use self::timed::BodyTimeout;
use self::timed::TimedBody;
use crate::error::BoxError;

/// What became of a body.
pub(crate) enum Watched {
    Timed(Arc<BodyClock>),
    /// There is nothing to wait for.
    Empty,
    /// The type of the body is not known.
    Unknown,
}

/// Bounds the time that a body takes from now on, if its type is known.
pub(crate) fn watch<B: 'static>(body: &mut B, limit: Duration) -> Watched {
    let body: &mut dyn Any = body;
    #[cfg(feature = "axum")]
    if let Some(watched) = watch_as::<axum::body::Body>(body, limit) {
        return watched;
    }
    watch_as::<UnsyncBoxBody<Bytes, BoxError>>(body, limit)
        .or_else(|| watch_as::<BoxBody<Bytes, BoxError>>(body, limit))
        .unwrap_or(Watched::Unknown)
}

/// The same for a body of type `T`, also behind a limit of its length.
fn watch_as<T: Rebuild>(body: &mut dyn Any, limit: Duration) -> Option<Watched> {
    watch_exactly(body, limit, T::empty)
        .or_else(|| watch_exactly(body, limit, || Limited::new(T::empty(), 0)))
}

fn watch_exactly<B: Timed>(
    body: &mut dyn Any,
    limit: Duration,
    empty: fn() -> B,
) -> Option<Watched> {
    if let Some(body) = body.downcast_mut::<B>() {
        return Some(rebuild(body, limit, empty()));
    }
    let unread = body.downcast_mut::<KeyedBody<B>>()?.unread_mut();
    // What the lock layer outside has read is in memory.
    Some(unread.map_or(Watched::Empty, |body| rebuild(body, limit, empty())))
}

fn rebuild<B: Timed>(body: &mut B, limit: Duration, empty: B) -> Watched {
    if body.is_end_stream() {
        return Watched::Empty;
    }
    let clock = BodyClock::new(limit);
    *body = mem::replace(body, empty).timed(Arc::clone(&clock));
    Watched::Timed(clock)
}

/// Whether a body may follow the head of this request.
pub(crate) fn may_have_body<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    match headers.get(CONTENT_LENGTH) {
        Some(length) if length != "0" => true,
        // From HTTP/2 on a body ends with its stream, and no header needs to announce it.
        None if request.version() > Version::HTTP_11 => true,
        _ => headers.contains_key(TRANSFER_ENCODING),
    }
}

/// A type of body that can be made from any other body.
trait Rebuild: Timed + Unpin {
    fn empty() -> Self;

    /// The same type around a body that lets at most so many bytes pass, inside of another limit.
    fn limited(body: TimedBody<Limited<Self>>, limit: usize) -> Limited<Self>
    where
        Self: Sized;
}

/// A type of body that can time itself.
trait Timed: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {
    fn timed(self, clock: Arc<BodyClock>) -> Self;
}

impl<T: Rebuild> Timed for Limited<T> {
    /// The limit that counts stays inside, since it cannot be taken off. It does not tell how much it lets pass, but its hint does.
    fn timed(self, clock: Arc<BodyClock>) -> Self {
        let limit = self.size_hint().upper();
        let limit = limit.and_then(|bytes| usize::try_from(bytes).ok());
        let timed = TimedBody::new(self, clock, BoxError::from);
        T::limited(timed, limit.unwrap_or(usize::MAX))
    }
}

#[cfg(feature = "axum")]
impl Timed for axum::body::Body {
    fn timed(self, clock: Arc<BodyClock>) -> Self {
        // Boxed with axum's own error, which axum then does not wrap again. Its extractors look for the error of a length
        // limit only so deep.
        let timed = TimedBody::new(self, clock, axum::Error::new);
        Self::new(UnsyncBoxBody::new(timed))
    }
}

#[cfg(feature = "axum")]
impl Rebuild for axum::body::Body {
    fn empty() -> Self {
        Self::empty()
    }

    fn limited(body: TimedBody<Limited<Self>>, limit: usize) -> Limited<Self> {
        let body = LimitedBody::new(body, limit);
        Limited::new(Self::new(body), limit)
    }
}

impl Timed for UnsyncBoxBody<Bytes, BoxError> {
    fn timed(self, clock: Arc<BodyClock>) -> Self {
        Self::new(TimedBody::new(self, clock, BoxError::from))
    }
}

impl Rebuild for UnsyncBoxBody<Bytes, BoxError> {
    fn empty() -> Self {
        Self::default()
    }

    // A boxed body does not wrap the error of the limit inside. The one outside never refuses anything.
    fn limited(body: TimedBody<Limited<Self>>, _: usize) -> Limited<Self> {
        Limited::new(Self::new(body), usize::MAX)
    }
}

impl Timed for BoxBody<Bytes, BoxError> {
    fn timed(self, clock: Arc<BodyClock>) -> Self {
        Self::new(TimedBody::new(self, clock, BoxError::from))
    }
}

impl Rebuild for BoxBody<Bytes, BoxError> {
    fn empty() -> Self {
        Self::default()
    }

    // A boxed body does not wrap the error of the limit inside. The one outside never refuses anything.
    fn limited(body: TimedBody<Limited<Self>>, _: usize) -> Limited<Self> {
        Limited::new(Self::new(body), usize::MAX)
    }
}

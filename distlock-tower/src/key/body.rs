//! Key functions over the body of a request. The body is buffered, and given back to the request.

use std::error::Error;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::{BodyError, KeyFn, KeyFuture, LockKeys};
use crate::error::BoxError;

/// Marks layers that read only the head of a request, so that its body can be of any type. See
/// [`LockLayer`](crate::LockLayer).
///
/// # Examples
/// See [`LockLayer`](crate::LockLayer).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Head;

/// Marks layers that read the whole body of a request. See [`Unkeyed::key_from_body`](crate::Unkeyed::key_from_body).
///
/// # Examples
/// ```
/// use distlock::Client;
/// use distlock_tower::{LockLayer, key::WholeBody};
///
/// fn one_at_a_time(client: &Client) -> LockLayer<WholeBody> {
///     LockLayer::new(client).key_from_body(1024, |_, body| String::from_utf8(body.to_vec()).ok())
/// }
/// # let _layer = one_at_a_time(&Client::in_memory());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeBody {
    pub(crate) limit: usize,
}

impl WholeBody {
    /// Refuses a body that no key can be read from, before it is polled.
    pub(crate) fn check(self, headers: &HeaderMap, body: &impl Body) -> Result<(), BodyError> {
        if let Some(encoding) = encoding(headers) {
            return Err(BodyError::Encoded { encoding });
        }
        let limit = self.limit;
        // A body that announces too much is not read.
        if body.size_hint().lower() > limit as u64 {
            return Err(BodyError::TooLarge { limit });
        }
        Ok(())
    }

    /// Reads the body to its end, or to its limit.
    pub(crate) async fn read<B>(self, body: Pin<&mut B>) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let limit = self.limit;
        match Limited::new(body, limit).collect().await {
            Ok(read) => Ok(read.to_bytes()),
            Err(error) if is_length_limit(&*error) => Err(BodyError::TooLarge { limit }),
            Err(error) => Err(BodyError::Unreadable { error }),
        }
    }
}

/// The content encoding of a body that is not as its sender wrote it. A key function would read the compressed bytes.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let mut written = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    written.find(|written| {
        let is_none = |one: &str| one.is_empty() || one.eq_ignore_ascii_case("identity");
        !written.split(',').all(|one| is_none(one.trim()))
    })
}

/// Whether a length limit was exceeded, here or outside the layer. Looks through errors that wrap the limit's error.
fn is_length_limit(error: &(dyn Error + 'static)) -> bool {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.any(|error| error.is::<LengthLimitError>())
}

/// The buffered body, which travels to the key function in the request's extensions.
#[derive(Clone)]
pub(crate) struct BufferedBody(pub(crate) Bytes);

impl BufferedBody {
    pub(super) fn take(parts: &mut Parts) -> Bytes {
        let taken = parts.extensions.remove();
        taken.map_or_else(Bytes::new, |Self(body)| body)
    }
}

/// Marks key functions over the body.
pub(crate) enum ViaBody {}

/// A function over the head of a request and its body.
pub(crate) struct BodyKeyFn<F>(pub(crate) F);

impl<F, K, S> KeyFn<ViaBody, S> for BodyKeyFn<F>
where
    F: Fn(&Parts, &Bytes) -> K + Send + Sync + 'static,
{
    type Keys = K;

    fn keys<'a, T: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        _: &'a S,
        into: fn(Result<K, LockKeys>) -> T,
    ) -> KeyFuture<'a, T> {
        let body = BufferedBody::take(parts);
        KeyFuture::Ready(into(Ok(self.0(parts, &body))))
    }
}

//! Keys from the body of a request, which is read as a whole before and put back.

use std::error::Error;

use bytes::Bytes;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::{BadKeys, KeyFn, KeyFuture};
use crate::error::BoxError;

/// Marks layers that look at the head of a request alone, whatever its body is; see [`LockLayer`](crate::LockLayer).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Head;

/// Marks layers that read the whole body of a request; see [`Unkeyed::key_from_body`](crate::Unkeyed::key_from_body).
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
    pub(crate) async fn read<B>(self, body: B) -> Result<Bytes, BadKeys>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let limit = self.limit;
        if body.size_hint().lower() > limit as u64 {
            return Err(BadKeys::TooLarge { limit });
        }
        match Limited::new(body, limit).collect().await {
            Ok(read) => Ok(read.to_bytes()),
            Err(error) if is_of_length(&*error) => Err(BadKeys::TooLarge { limit }),
            Err(error) => Err(BadKeys::Unread { error }),
        }
    }
}

/// Whether a limit on the way was exceeded, this one or one outside, whatever error it came to be wrapped in.
fn is_of_length(error: &(dyn Error + 'static)) -> bool {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.any(|error| error.is::<LengthLimitError>())
}

/// The body of the request whose key is being worked out, among its extensions.
#[derive(Clone)]
pub(crate) struct Read(pub(crate) Bytes);

pub(crate) enum ViaBody {}

/// A function over the head of a request and its body.
pub(crate) struct OfBody<F>(pub(crate) F);

impl<F, K, S> KeyFn<ViaBody, S> for OfBody<F>
where
    F: Fn(&Parts, &Bytes) -> K + Send + Sync + 'static,
{
    type Keys = K;

    fn keys<'a>(&'a self, parts: &'a mut Parts, _: &'a S) -> KeyFuture<'a, K> {
        Box::pin(async {
            let Read(body) = parts.extensions.remove().unwrap_or(Read(Bytes::new()));
            Ok(self.0(parts, &body))
        })
    }
}

//! Key functions over the head of a request, with the types of the `http` crate.

use std::mem;

use http::Request;
use http::request::Parts;

use super::{KeyFn, KeyFuture, LockKeys};

/// Marks key functions over `&http::request::Parts`. Always inferred.
#[derive(Debug)]
pub enum ViaParts {}

/// Marks key functions over `&http::Request<()>`. Always inferred.
#[derive(Debug)]
pub enum ViaRequest {}

#[diagnostic::do_not_recommend]
impl<F, K, S> KeyFn<ViaParts, S> for F
where
    F: Fn(&Parts) -> K + Send + Sync + 'static,
{
    type Keys = K;

    fn keys<'a, T: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        _: &'a S,
        into: fn(Result<K, LockKeys>) -> T,
    ) -> KeyFuture<'a, T> {
        KeyFuture::Ready(into(Ok(self(parts))))
    }
}

#[diagnostic::do_not_recommend]
impl<F, K, S> KeyFn<ViaRequest, S> for F
where
    F: Fn(&Request<()>) -> K + Send + Sync + 'static,
{
    type Keys = K;

    fn keys<'a, T: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        _: &'a S,
        into: fn(Result<K, LockKeys>) -> T,
    ) -> KeyFuture<'a, T> {
        // The parts move into a request and back: cloning them would copy all headers and extensions.
        let (empty, ()) = Request::new(()).into_parts();
        let request = Request::from_parts(mem::replace(parts, empty), ());
        let keys = self(&request);
        (*parts, ()) = request.into_parts();
        KeyFuture::Ready(into(Ok(keys)))
    }
}

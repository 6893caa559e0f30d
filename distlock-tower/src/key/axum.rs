//! Key functions over axum's extractors, and errors of key functions that implement `IntoResponse`.

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use http::request::Parts;

use super::{IntoLockKeys, KeyFn, KeyFuture, LockKeys};

#[diagnostic::do_not_recommend]
impl<T: IntoLockKeys, E: IntoResponse> IntoLockKeys for Result<T, E> {
    fn into_lock_keys(self) -> LockKeys {
        self.map_or_else(LockKeys::answer, T::into_lock_keys)
    }
}

macro_rules! extractors {
    ($($value:ident: $Extractor:ident),+) => {
        #[diagnostic::do_not_recommend]
        impl<F, K, S, $($Extractor),+> KeyFn<($($Extractor,)+), S> for F
        where
            F: Fn($($Extractor),+) -> K + Send + Sync + 'static,
            K: 'static,
            S: Sync,
            $($Extractor: FromRequestParts<S> + Send,)+
        {
            type Keys = K;

            fn keys<'a, T: Send + 'a>(
                &'a self,
                parts: &'a mut Parts,
                state: &'a S,
                into: fn(Result<K, LockKeys>) -> T,
            ) -> KeyFuture<'a, T> {
                KeyFuture::Boxed(Box::pin(async move {
                    $(
                        let $value = match $Extractor::from_request_parts(parts, state).await {
                            Ok(value) => value,
                            Err(rejection) => return into(Err(LockKeys::answer(rejection))),
                        };
                    )+
                    into(Ok(self($($value),+)))
                }))
            }
        }
    };
}

extractors!(a: A);
extractors!(a: A, b: B);
extractors!(a: A, b: B, c: C);
extractors!(a: A, b: B, c: C, d: D);
extractors!(a: A, b: B, c: C, d: D, e: E);
extractors!(a: A, b: B, c: C, d: D, e: E, g: G);
extractors!(a: A, b: B, c: C, d: D, e: E, g: G, h: H);
extractors!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I);

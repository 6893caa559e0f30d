//! What is said about a layer that has no key yet: its settings, and its use as a layer, exist only to explain themselves.

use tower_layer::Layer;

use super::Unkeyed;

/// Implemented by nothing that lacks a key.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this `LockLayer` has no key yet",
    label = "call `.key(..)` first",
    note = "the key comes first, then the settings: `LockLayer::new(client).key(|Path(id): Path<u64>| format!(\"order:{{id}}\")).wait(..)`",
    note = "one key for all requests is `.key(|_: &http::request::Parts| \"import\")`"
)]
pub trait HasKey {}

macro_rules! settings_without_a_key {
    ($($setting:ident($($value:ident)?)),+) => {
        impl<S> Unkeyed<S> {$(
            #[doc(hidden)]
            pub fn $setting(self $(, $value: impl Sized)?) -> Self
            where
                Self: HasKey,
            {
                $(drop($value);)?
                self
            }
        )+}
    };
}

settings_without_a_key!(
    wait(value),
    lease(value),
    max_hold(value),
    hold_at_least(value),
    request_body_timeout(value),
    drain_limit(value),
    max_waiters(value),
    max_pending_requests(value),
    called_from(value),
    mode(value),
    read_write(),
    when(value),
    methods(value),
    optional(),
    hold_until(value),
    run_to_completion(),
    busy_status(value),
    on_reject(value)
);

impl<S, T> Layer<S> for Unkeyed<T>
where
    Self: HasKey,
{
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

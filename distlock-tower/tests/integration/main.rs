//! All integration tests of the crate: one binary, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod answers;
mod api;
#[cfg(feature = "axum")]
mod compile_fail;
mod completing;
#[cfg(feature = "axum")]
mod connections;
mod hold_until;
mod inside;
mod key_from_body;
mod limits;
mod modes;
mod non_http;
mod refusals;
mod response_body;
#[cfg(feature = "axum")]
mod router;
mod service;
mod stack;
mod support;
mod template;

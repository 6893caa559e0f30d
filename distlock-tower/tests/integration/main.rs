//! The integration tests of the crate. They are one binary, because linking each file on its own is slow.
//!
//! `tests/log` is apart: it needs a process of its own.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod answers;
mod api;
mod bodies;
#[cfg(feature = "axum")]
mod compile_fail;
mod completing;
#[cfg(feature = "axum")]
mod connections;
mod current_hold;
mod keys;
mod limits;
mod modes;
mod non_http;
#[cfg(feature = "axum")]
mod router;
mod service;
mod settings;
mod stack;
mod support;

//! The integration tests of the crate. They are one binary, because linking each file on its own is slow.
//!
//! `tests/log.rs` is apart: it needs a process of its own.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod answers;
mod api;
#[cfg(feature = "axum")]
mod compile_fail;
mod completing;
#[cfg(feature = "axum")]
mod connections;
mod current_hold;
#[cfg(feature = "axum")]
mod drained;
mod hold_until;
mod key_from_body;
#[cfg(feature = "json")]
mod key_json;
mod limits;
mod modes;
mod non_http;
#[cfg(feature = "axum")]
mod own_errors;
mod rejections;
#[cfg(feature = "axum")]
mod request_body;
mod response_body;
mod retry_after;
#[cfg(feature = "axum")]
mod router;
mod service;
mod stack;
mod support;
mod template;
mod template_text;

//! Bodies of requests and responses, and the hold while they are read.

#[cfg(feature = "axum")]
mod body_limit;
#[cfg(feature = "axum")]
mod drained;
mod hold_until;
#[cfg(feature = "axum")]
mod request;
mod response;

//! The error type of response bodies.

/// A boxed error. For a [`HoldBody`](crate::HoldBody) it is the inner body's own error, a [`distlock::Error`], or an error
/// that says that the request's body [took too long](crate::LockLayer::request_body_timeout).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

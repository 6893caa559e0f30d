//! The error type of response bodies.

/// A boxed error. For a [`HoldBody`](crate::HoldBody) it is the inner body's own error or a [`distlock::Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

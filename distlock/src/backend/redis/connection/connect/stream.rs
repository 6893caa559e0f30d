//! What the driver reads and writes: a socket, or TLS over it.

use tokio::io::{AsyncRead, AsyncWrite};

/// What the driver reads and writes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

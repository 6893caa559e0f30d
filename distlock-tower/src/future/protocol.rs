//! How a request came, as far as the answer depends on it.

use http::Version;
use http::request::Parts;

use crate::request_body;
use crate::respond::is_grpc;

/// How the request came.
#[derive(Clone, Copy)]
pub(super) struct Protocol {
    pub(super) grpc: bool,
    pub(super) http1: bool,
    /// Whether the client sees an answer only after the rest of its request was read.
    pub(super) may_drain: bool,
    /// The layer has read the body already.
    pub(super) has_whole_body: bool,
}

impl Protocol {
    /// By the head of a request.
    pub(super) fn of(parts: &Parts) -> Self {
        Self {
            grpc: is_grpc(&parts.headers),
            http1: parts.version <= Version::HTTP_11,
            may_drain: request_body::may_drain(parts),
            has_whole_body: false,
        }
    }
}

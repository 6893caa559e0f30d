//! How a request came, as far as the answer depends on it.

use http::request::Parts;
use http::{Method, StatusCode, Version};

use crate::request_body;
use crate::respond::is_grpc;

/// How the request came.
#[derive(Clone, Copy)]
pub(super) struct Protocol {
    pub(super) grpc: bool,
    pub(super) http1: bool,
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
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
            is_head: parts.method == Method::HEAD,
            is_connect: parts.method == Method::CONNECT,
            may_drain: request_body::may_drain(parts),
            has_whole_body: false,
        }
    }

    /// Whether a server sends the body of a response with this status. Routers and servers drop the others without reading
    /// them, when the client may have the whole response already.
    pub(super) fn sends_body(self, status: StatusCode) -> bool {
        let is_bodiless = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_tunnel = self.is_connect && status.is_success();
        !(is_bodiless || self.is_head || is_tunnel)
    }
}

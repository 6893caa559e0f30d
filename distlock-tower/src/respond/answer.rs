//! The default answer to a request that is refused.

use http::Response;

#[cfg(feature = "axum")]
use super::rejection::log;
use super::{Rejection, grpc, problem};

impl Rejection {
    /// Returns the default answer: problem details, or a trailers-only response if the request came by gRPC. A `String` is a body of
    /// HTTP, by `http_body::Body`.
    ///
    /// # Examples
    /// See [`Rejection`].
    pub fn answer(&self) -> Response<String> {
        if self.grpc {
            grpc::answer(self)
        } else {
            problem::answer(self)
        }
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Rejection {
    fn into_response(self) -> axum::response::Response {
        // The layer logs its own refusals. The error of a handler is logged by nobody else.
        if let (false, Some(error)) = (self.is_logged, &self.error) {
            log(self.reason, error);
            super::count_answer(self.reason);
        }
        self.answer().into_response()
    }
}

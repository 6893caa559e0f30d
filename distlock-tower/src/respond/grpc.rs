//! Answers for gRPC: trailers-only, which is status 200 with the outcome in the headers and no body.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{Empty, Full};

use super::{Answer, Reason, Rejection, boxed};

const GRPC: &str = "application/grpc";
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

const UNKNOWN: u8 = 2;
const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;
const NOT_FOUND: u8 = 5;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const FAILED_PRECONDITION: u8 = 9;
const ABORTED: u8 = 10;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

/// Whether a request's client speaks gRPC, in whatever encoding.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(GRPC.as_bytes()))
}

pub(super) fn answer(rejection: &Rejection) -> Response<Full<Bytes>> {
    let code = match rejection.reason() {
        Reason::Busy => ABORTED,
        Reason::Overloaded => RESOURCE_EXHAUSTED,
        Reason::Unavailable => UNAVAILABLE,
        Reason::Lost => UNKNOWN,
        Reason::Key => INVALID_ARGUMENT,
        Reason::Config => INTERNAL,
    };
    let mut answer = Response::new(Full::default());
    say(answer.headers_mut(), code, rejection.detail);
    answer
}

/// What an extractor said in HTTP's words, in those of gRPC: its clients do not look at bodies. What speaks gRPC already
/// stays as it is.
pub(super) fn translated(answer: Answer) -> Answer {
    if answer.headers().contains_key(STATUS) {
        return answer;
    }
    let code = match answer.status() {
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::NOT_FOUND => NOT_FOUND,
        StatusCode::CONFLICT => ABORTED,
        StatusCode::PRECONDITION_FAILED => FAILED_PRECONDITION,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => DEADLINE_EXCEEDED,
        StatusCode::NOT_IMPLEMENTED => UNIMPLEMENTED,
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
        status if status.is_client_error() => INVALID_ARGUMENT,
        _ => INTERNAL,
    };
    let mut answer = boxed(Response::new(Empty::new()));
    say(answer.headers_mut(), code, "The request was refused.");
    answer
}

/// `message` needs no percent-encoding.
fn say(headers: &mut HeaderMap, code: u8, message: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(STATUS, u16::from(code).into());
    headers.insert(MESSAGE, HeaderValue::from_static(message));
}

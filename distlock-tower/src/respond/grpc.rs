//! Trailers-only responses for gRPC clients: status 200, the gRPC status in the headers, no body.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::{Answer, Reason, Rejection, boxed};

const GRPC: &str = "application/grpc";
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
/// When a client that repeats calls automatically may do so, in milliseconds; see gRFC A6. A negative number forbids it.
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

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

/// Whether a request came by gRPC, in any encoding: `application/grpc` or `application/grpc+..`, in upper or lower case,
/// with or without parameters. Any client can send this header, so it chooses the form of an answer and nothing else.
///
/// Over HTTP/1 as well: behind tonic's `GrpcWebLayer`, a request of gRPC-Web has this header, and the answer is translated.
///
/// gRPC-Web (`application/grpc-web`) is not gRPC: its clients expect another content type.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| match value.split_at_checked(GRPC.len()) {
        Some((start, rest)) => {
            let ends = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
            start.eq_ignore_ascii_case(GRPC.as_bytes()) && (ends || rest.starts_with(b"+"))
        }
        None => false,
    })
}

pub(super) fn answer(rejection: &Rejection) -> Response<String> {
    let code = match rejection.reason() {
        Reason::Busy => ABORTED,
        Reason::Overloaded => RESOURCE_EXHAUSTED,
        Reason::Unavailable => UNAVAILABLE,
        Reason::Lost => UNKNOWN,
        Reason::BodyTimeout => DEADLINE_EXCEEDED,
        Reason::Key => INVALID_ARGUMENT,
        Reason::Config => INTERNAL,
    };
    let mut answer = Response::new(String::new());
    let headers = answer.headers_mut();
    set_status(headers, code, rejection.detail);
    let pushback = match rejection.retry_after() {
        Some(after) => (after.as_secs() * 1000).into(),
        None => HeaderValue::from_static("-1"),
    };
    headers.insert(RETRY_PUSHBACK, pushback);
    answer
}

/// Translates the HTTP answer of an extractor, since gRPC clients ignore HTTP bodies. An answer with a gRPC status
/// stays as it is.
pub(super) fn translate(answer: Answer) -> Answer {
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
    let mut answer = boxed(Response::new(String::new()));
    set_status(answer.headers_mut(), code, "The request was refused.");
    answer
}

/// `message` must not need percent-encoding.
fn set_status(headers: &mut HeaderMap, code: u8, message: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(STATUS, u16::from(code).into());
    headers.insert(MESSAGE, HeaderValue::from_static(message));
}

//! Problem details (RFC 9457) for HTTP clients.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};

use super::Rejection;

/// The texts of a rejection need no escaping in JSON.
pub(super) fn answer(rejection: &Rejection) -> Response<String> {
    let reason = rejection.reason();
    let name = reason.name();
    let title = reason.title();
    let retryable = rejection.retryable;
    let status = rejection.status();
    let detail = rejection.detail;
    // Scripts in a browser see no `Retry-After`, unless CORS exposes it.
    let retry_after = rejection.retry_after();
    let retry_after = retry_after.map(|after| format!(r#","retry_after":{}"#, after.as_secs()));
    let body = format!(
        r#"{{"type":"urn:distlock:{name}","title":"{title}","status":{},"detail":"{detail}","retryable":{retryable}{}}}"#,
        status.as_u16(),
        retry_after.unwrap_or_default()
    );
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if let Some(after) = rejection.retry_after() {
        headers.insert(RETRY_AFTER, after.as_secs().into());
    }
    answer
}

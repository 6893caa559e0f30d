//! Frees locks by force, for people who type the key as a confirmation.

use std::sync::Arc;

use distlock::{Client, Error, KeyReport, Primitive};
use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{StatusCode, Uri};
use serde::Deserialize;

use super::lock::can_be_released;

pub(super) type WhoFn = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether people may free locks, and how they are called.
pub(super) struct Releases {
    pub(super) are_allowed: bool,
    pub(super) who: Option<WhoFn>,
}

/// The body of a request.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) key: String,
    /// The key once more, as it was typed.
    confirmation: String,
}

/// Why a lock was not freed.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }
}

impl Releases {
    pub(super) fn who(&self, parts: &Parts) -> String {
        self.who
            .as_ref()
            .map_or_else(|| String::from("unknown"), |who| who(parts))
    }

    /// Refuses a request that may not free any lock.
    pub(super) fn check_sender(&self, parts: &Parts) -> Result<(), Refusal> {
        if !self.are_allowed {
            let text = "this console only reads: the program does not allow to free locks by force";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        if !is_from_here(parts) {
            let text = "the request comes from another origin";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        Ok(())
    }
}

impl Request {
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let request: Self = serde_json::from_slice(body).map_err(|error| {
            let text = format!("the body must be JSON with \"key\" and \"confirmation\": {error}");
            Refusal::new(StatusCode::BAD_REQUEST, text)
        })?;
        if request.key != request.confirmation {
            let text = "the confirmation is not the key; nothing was freed";
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text));
        }
        Ok(request)
    }
}

/// Whether a request was sent by a page of this server, or by a program that is no browser.
///
/// Browsers say by `Sec-Fetch-Site` where a request comes from, unless the page is served without TLS, and by `Origin`
/// whenever a request may change something.
fn is_from_here(parts: &Parts) -> bool {
    if let Some(site) = parts.headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let Some(origin) = parts.headers.get(ORIGIN) else {
        return true;
    };
    // HTTP/2 has the host in the URI.
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    let origin = origin.to_str().ok().and_then(|it| it.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority);
    host.is_some_and(|host| origin.is_some_and(|origin| origin.as_str().eq_ignore_ascii_case(host)))
}

/// Frees a lock, and returns whether it was held.
pub(super) async fn force_release(client: &Client, report: &KeyReport) -> Result<bool, Refusal> {
    if report.primitive == Primitive::Nothing || !report.is_held() {
        return Ok(false);
    }
    if !can_be_released(report) {
        let text = format!("a {} cannot be freed by force", report.primitive);
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    let key = report.key.as_str();
    let freed = match report.primitive {
        Primitive::ReadLock | Primitive::WriteLock => client.rw_lock(key).force_release().await,
        Primitive::FairLock => client.fair_lock(key).force_release().await,
        Primitive::FencedLock => client.fenced_lock(key).force_release().await,
        _ => client.lock(key).force_release().await,
    };
    freed.map_err(|error| refusal(&error))
}

/// What the answer to an error is.
pub(super) fn refusal(error: &Error) -> Refusal {
    let status = match error {
        Error::InvalidKey { .. } => StatusCode::BAD_REQUEST,
        error if error.is_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    Refusal::new(status, error.to_string())
}

//! Frees locks by force, for people who type the key as a confirmation.

use std::panic;
use std::sync::Arc;

use distlock::{Error, ForceRelease, KeyReport, Primitive, visible};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use tokio::task::JoinError;

use super::lock::{can_be_released, number};
use super::looks::Looks;
use super::senders::Senders;
use crate::span::in_current_span;

pub(super) type UserFn = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Whether people may free locks, and how they are called.
pub(super) struct Releases {
    pub(super) are_allowed: bool,
    pub(super) user: Option<UserFn>,
    pub(super) senders: Senders,
}

/// The body of a request.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) key: String,
    /// The key once more, as it was typed: as it is, or as it is shown, since nobody can type a line break into a field.
    confirmation: String,
    /// The owners that the sender knows as the holders. Without them any holder loses the lock.
    pub(super) owners: Option<Vec<String>>,
    /// The number that the sender knows: the free permits of a semaphore, or the count of a latch. Without it the key is deleted
    /// with any number.
    number: Option<i64>,
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

    fn adding(self, outcome: &str) -> Self {
        Self::new(self.status, format!("{}; {outcome}", self.text))
    }
}

impl Releases {
    pub(super) fn user(&self, parts: &Parts) -> String {
        self.user
            .as_ref()
            .map_or_else(|| String::from("unknown"), |user| user(parts))
    }

    /// Refuses a request that may not free any lock.
    pub(super) fn check_sender(&self, parts: &Parts) -> Result<(), Refusal> {
        if !self.are_allowed {
            let text = "this console only reads: the program does not allow to free locks by force";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        let checked = self.senders.check(parts);
        checked.map_err(|text| Refusal::new(StatusCode::FORBIDDEN, text))
    }
}

impl Request {
    /// Refuses to take the lock from a holder that the sender does not know, and to delete another number than the one that the
    /// sender knows.
    pub(super) fn check_seen(&self, report: &KeyReport) -> Result<(), Refusal> {
        if let Some(owners) = &self.owners {
            let mut holders = report.holders.iter();
            if !holders.all(|holder| owners.contains(&holder.owner)) {
                return Err(changed(report, owners));
            }
        }
        match number(report) {
            Some(now) if self.number.is_some_and(|seen| seen != now) => {
                Err(changed(report, &owners_of(report)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let request: Self = serde_json::from_slice(body).map_err(|error| {
            let text = format!("the body must be JSON with \"key\" and \"confirmation\": {error}");
            Refusal::new(StatusCode::BAD_REQUEST, text)
        })?;
        let confirmation = &request.confirmation;
        if request.key != *confirmation && visible(&request.key) != *confirmation {
            let text = "the confirmation is not the key; nothing was freed";
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text));
        }
        Ok(request)
    }
}

fn owners_of(report: &KeyReport) -> Vec<String> {
    let owners = report.holders.iter().map(|holder| holder.owner.clone());
    owners.collect()
}

/// The key is not what the sender has seen: it has a holder whom the sender does not know, or another number.
fn changed(now: &KeyReport, known: &[String]) -> Refusal {
    let unknown = now.holders.iter();
    let unknown: Vec<String> = unknown
        .filter(|holder| !known.contains(&holder.owner))
        .map(|holder| match &holder.client {
            Some(client) => format!("{} ({})", visible(&client.name), holder.owner),
            None => visible(&holder.owner).into_owned(),
        })
        .collect();
    let unknown = unknown.join(", ");
    let text = match (unknown.is_empty(), now.permits, now.count) {
        (false, None, _) => format!("the lock has another holder by now: {unknown}"),
        (false, Some(_), _) => format!("the semaphore has another holder by now: {unknown}"),
        (true, Some(permits), _) => {
            format!("the semaphore has {} free permits by now", permits.free)
        }
        (true, None, Some(count)) => format!("the number is {count} by now"),
        (true, None, None) => String::from("the key was something else a moment ago"),
    };
    Refusal::new(StatusCode::CONFLICT, format!("{text}; nothing was freed"))
}

/// Frees what a request names, and returns whether there was something to free.
///
/// This has a separate task. The server may free the lock although the sender of the request has gone, and the log and the history
/// have to say who it was.
pub(super) async fn release(
    looks: Arc<Looks>,
    request: Request,
    user: String,
) -> Result<bool, Refusal> {
    let releasing = async move { inspect_and_free(&looks, &request, &user).await };
    let released = tokio::spawn(in_current_span(releasing)).await;
    match released.map_err(JoinError::try_into_panic) {
        Ok(released) => released,
        Err(Ok(panic)) => panic::resume_unwind(panic),
        Err(Err(_)) => {
            let text = format!("the program shuts down; {IN_DOUBT}");
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text))
        }
    }
}

const IN_DOUBT: &str = "it may or may not have been freed";

async fn inspect_and_free(looks: &Looks, request: &Request, user: &str) -> Result<bool, Refusal> {
    let report = looks.client().inspect(request.key.as_str()).await;
    let report = report.map_err(|error| refusal(&error).adding("nothing was freed"))?;
    request.check_seen(&report)?;
    if matches!(
        report.primitive,
        Primitive::OtherData | Primitive::Unreadable
    ) {
        let text = "the key has data of another program, which cannot be freed by force";
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    if !can_be_released(&report) {
        return Ok(false);
    }
    // Before it is freed: this process knows since when it holds a key, as long as it does.
    let freed = looks.shown(report.clone());
    match looks.client().force_release(&report).await {
        Ok(ForceRelease::Freed) => {
            if let Some(freed) = freed {
                looks.forced(&freed, user);
            }
            log_freed(&report, user);
            Ok(true)
        }
        Ok(ForceRelease::Changed(now)) => Err(changed(&now, &owners_of(&report))),
        Ok(_) => Ok(false),
        Err(error @ Error::WrongType { .. }) => Err(refusal(&error).adding("nothing was freed")),
        // The server may have carried the command out.
        Err(error) => {
            log_in_doubt(&report, user, &error);
            Err(refusal(&error).adding(IN_DOUBT))
        }
    }
}

fn log_freed(report: &KeyReport, user: &str) {
    tracing::warn!(
        key = report.key,
        user,
        holders = owners_of(report).join(", "),
        number = number(report),
        "a lock was freed by force from the console"
    );
}

fn log_in_doubt(report: &KeyReport, user: &str, error: &Error) {
    tracing::warn!(
        key = report.key,
        user,
        holders = owners_of(report).join(", "),
        number = number(report),
        %error,
        "a lock was to be freed by force from the console, and it is not known whether it was freed"
    );
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

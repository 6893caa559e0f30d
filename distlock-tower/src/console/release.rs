//! Frees locks by force, for people who type the key as a confirmation.

use std::sync::Arc;

use distlock::{Client, Error, ForceRelease, KeyReport, Primitive, visible};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;

use super::lock::can_be_released;
use super::senders::Senders;

pub(super) type WhoFn = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Whether people may free locks, and how they are called.
pub(super) struct Releases {
    pub(super) are_allowed: bool,
    pub(super) who: Option<WhoFn>,
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
        let checked = self.senders.check(parts);
        checked.map_err(|text| Refusal::new(StatusCode::FORBIDDEN, text))
    }
}

impl Request {
    /// Refuses to take the lock from a holder that the sender does not know.
    pub(super) fn check_holders(&self, report: &KeyReport) -> Result<(), Refusal> {
        let Some(owners) = &self.owners else {
            return Ok(());
        };
        let mut holders = report.holders.iter();
        match holders.all(|holder| owners.contains(&holder.owner)) {
            true => Ok(()),
            false => Err(held_by_others(report, owners)),
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

/// The lock is held by somebody whom the sender has not seen.
fn held_by_others(report: &KeyReport, known: &[String]) -> Refusal {
    let unknown = report.holders.iter();
    let unknown: Vec<String> = unknown
        .filter(|holder| !known.contains(&holder.owner))
        .map(|holder| match &holder.client {
            Some(client) => format!("{} ({})", visible(&client.name), holder.owner),
            None => visible(&holder.owner).into_owned(),
        })
        .collect();
    let text = match unknown.is_empty() {
        true => String::from("the lock had another holder a moment ago; nothing was freed"),
        false => format!(
            "the lock has another holder by now: {}; nothing was freed",
            unknown.join(", ")
        ),
    };
    Refusal::new(StatusCode::CONFLICT, text)
}

/// Frees a lock from the holders in the report, and returns whether it was held.
pub(super) async fn force_release(client: &Client, report: &KeyReport) -> Result<bool, Refusal> {
    if report.primitive == Primitive::Nothing || !report.is_held() {
        return Ok(false);
    }
    if !can_be_released(report) {
        let text = format!("a {} cannot be freed by force", report.primitive);
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    match client.force_release(report).await {
        Ok(ForceRelease::Freed) => Ok(true),
        Ok(ForceRelease::Changed(now)) => {
            let known = report.holders.iter().map(|holder| holder.owner.clone());
            Err(held_by_others(&now, &known.collect::<Vec<_>>()))
        }
        Ok(_) => Ok(false),
        Err(error) => Err(refusal(&error)),
    }
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

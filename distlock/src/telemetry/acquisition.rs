//! The span of one acquisition.

use std::borrow::Cow;
use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, debug};
use uuid::Uuid;

use super::events::{TARGET, refused};
use super::labels::{LockType, Outcome};
use crate::error::Error;
use crate::resource::key::Key;
use crate::sync::foreign;

/// The span of an acquisition, unless nobody collects spans of this level. Then the cost is a comparison of levels.
pub(crate) fn acquire_span<'k>(
    lock_type: LockType,
    keys: impl Iterator<Item = &'k Key>,
    client: Uuid,
    wait: Option<Duration>,
) -> Option<Box<Span>> {
    // One key is not copied: without a subscriber, but with the feature `log` of `tracing`, the values are made for nobody.
    let keys = || {
        let mut keys = keys.map(Key::text);
        match (keys.next(), keys.next()) {
            (Some(one), None) => Cow::Borrowed(one),
            (first, second) => {
                let all: Vec<&str> = first.into_iter().chain(second).chain(keys).collect();
                Cow::Owned(all.join(", "))
            }
        }
    };
    let mut span = Span::none();
    foreign::tell(|| {
        span = tracing::debug_span!(
            target: TARGET, "distlock.acquire", kind = lock_type.name(), key = &*keys(), %client,
            wait = wait.map(debug), outcome = Empty, waited = Empty,
        );
    });
    (!span.is_disabled()).then(|| Box::new(span))
}

/// Records how an acquisition ended. `span`: its span, if there is one.
pub(crate) fn acquire_ended(span: Option<&Span>, outcome: Outcome, waited: Duration) {
    if let Some(span) = span {
        foreign::tell(|| {
            span.record("outcome", outcome.name());
            span.record("waited", debug(waited));
        });
    }
}

/// Logs that an acquisition ended without a grant, inside its span.
pub(crate) fn acquire_refused(span: Option<&Span>, error: &Error) {
    foreign::tell(|| match span {
        Some(span) => span.in_scope(|| refused(error)),
        None => refused(error),
    });
}

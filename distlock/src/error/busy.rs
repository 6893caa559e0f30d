//! The message of a busy lock.

use std::time::Duration;

use super::text::show;
use super::{Blocker, HeldBy};

/// The message of a wait that ended, or of a single attempt.
pub(super) fn timed_out(
    key: &str,
    waited: Duration,
    blocker: Blocker,
    holder: Option<&HeldBy>,
) -> String {
    let (state, then) = match blocker {
        Blocker::Owner(_) => ("held", ": "),
        _ => ("busy", ", "),
    };
    let start = if waited.is_zero() {
        format!("{key:?} is {state}")
    } else {
        format!("timed out after {} waiting for {key:?}", show(waited))
    };
    let holder = holder.map(|holder| format!("; held by {holder}"));
    format!("{start}{then}{blocker}{}", holder.unwrap_or_default())
}

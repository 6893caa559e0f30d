//! Parts of the messages.

use std::time::Duration;

/// The bounds of a lease of which `margin` is set aside.
pub(super) fn bounds_of_lease(margin: Duration) -> String {
    if margin.is_zero() {
        return "1ms to 10 years".into();
    }
    format!("10ms to 10 years for a Redlock, which sets {margin:?} aside for clock drift")
}

/// Shortens a long text to its beginning.
pub(super) fn cut(text: &str) -> String {
    const SHOWN: usize = 64;
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown + ".."
    } else {
        shown
    }
}

/// Formats a duration for people, to the millisecond.
pub(crate) fn show(duration: Duration) -> humantime::FormattedDuration {
    let whole = Duration::from_millis(duration.as_millis().min(u128::from(u64::MAX)) as u64);
    humantime::format_duration(whole)
}

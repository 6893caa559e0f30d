//! Parts of the messages.

use std::time::Duration;

/// The bounds of a lease of which `margin` is set aside.
pub(super) fn bounds_of_lease(margin: Duration) -> String {
    if margin.is_zero() {
        return LEASES.into();
    }
    let margin = exact(margin);
    format!("10ms to 3650days for a Redlock, which sets {margin} aside for clock drift")
}

/// The leases that a server can keep.
pub(crate) const LEASES: &str = "1ms to 3650days";

/// Formats a duration that was refused: to the nanosecond, and in days as the bounds are. No setting lasts for a century.
pub(crate) fn exact(duration: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    let days = duration.as_secs() / DAY;
    // In days, as the bounds are said: humantime would write months and years.
    let rest = duration - Duration::from_secs(days * DAY);
    match days {
        0 => humantime::format_duration(duration).to_string(),
        1..36_500 if rest.is_zero() => format!("{days}days"),
        1..36_500 => format!("{days}days {}", humantime::format_duration(rest)),
        _ => "more than 36500days".to_owned(),
    }
}

/// What a close did not see end: guards that hold something, releases without a confirmation, or both.
pub(super) fn not_ended(holds: usize, releases: usize, after: Duration) -> String {
    let guards = (holds > 0).then(|| {
        format!(
            "guards that hold something: {holds} (named in the log; end them before `close`, or give it more time)"
        )
    });
    let releases = (releases > 0).then(|| {
        format!(
            "releases without the server's confirmation: {releases} (repeated while the program runs; otherwise their leases end)"
        )
    });
    let parts: Vec<String> = guards.into_iter().chain(releases).collect();
    format!(
        "the client is closed, and after {} there are still {}",
        show(after),
        parts.join(", and ")
    )
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

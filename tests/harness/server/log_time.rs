//! The times of the lines in the log of a server.

use std::time::{Duration, UNIX_EPOCH};

use crate::pulse::monotonic_nanos;

/// Time zones differ by multiples of this, so the rest of a time of day is the same in all of them.
const QUARTER: u64 = 15 * 60 * 1_000;

/// The lines that contain a text, and when they were written: those of the last quarter of an hour.
pub(super) fn of_lines(log: &str, text: &str) -> Vec<(u64, String)> {
    let (now, unix) = (monotonic_nanos(), UNIX_EPOCH.elapsed().unwrap_or_default());
    let lines = log.lines().filter(|line| line.contains(text));
    let times = lines.filter_map(|line| {
        let ago = before(unix, millis_of_day(line)?);
        Some((now.saturating_sub(ago * 1_000_000), line.to_owned()))
    });
    times.collect()
}

/// How many milliseconds before the time `now` a time of day was.
fn before(now: Duration, millis_of_day: u64) -> u64 {
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX) % QUARTER;
    (now + QUARTER - millis_of_day % QUARTER) % QUARTER
}

/// The time of a line such as `123:M 23 Nov 2026 07:06:17.123 * Ready`, in milliseconds.
fn millis_of_day(line: &str) -> Option<u64> {
    let (time, millis) = line.split_whitespace().nth(4)?.split_once('.')?;
    let seconds = time.split(':').try_fold(0, |sum, part| {
        let part: u64 = part.parse().ok()?;
        Some(sum * 60 + part)
    })?;
    Some(seconds * 1_000 + millis.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_its_time() {
        let line = "5:X 23 Nov 2026 07:06:17.123 # +switch-master locks 127.0.0.1 1 127.0.0.1 2";
        assert_eq!(
            millis_of_day(line),
            Some(((7 * 60 + 6) * 60 + 17) * 1_000 + 123)
        );
        assert_eq!(millis_of_day("Redis is starting"), None);
    }

    #[test]
    fn time_of_day_is_behind_now_in_each_time_zone() {
        // 00:01 on the first day, in a zone where it was 01:01.
        let now = Duration::from_secs(60);
        assert_eq!(before(now, (60 * 60 + 59) * 1_000), 1_000);
        assert_eq!(before(now, 60 * 60 * 1_000), 60_000);
        // A moment before midnight.
        assert_eq!(before(now, (23 * 60 * 60 + 59 * 60 + 59) * 1_000), 61_000);
    }
}

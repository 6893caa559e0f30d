//! What the server says of a key, as JSON and in rows of text.

use std::borrow::Cow;
use std::time::Duration;

use distlock::{ClientReport, HolderReport, KeyReport};
use serde_json::{Value, json};

use crate::output::plain;

/// The heads of the columns.
pub(crate) const HEADS: [&str; 6] = ["KEY", "KIND", "HOLDER", "LEASE", "WAITING", "LISTENING"];

/// A key as JSON. Durations are in milliseconds.
pub(crate) fn json(report: &KeyReport) -> Value {
    let client = |client: &Option<ClientReport>| {
        client
            .as_ref()
            .map(|client| json!({ "name": client.name, "address": client.address }))
    };
    let holders = report.holders.iter().map(|holder| {
        json!({
            "owner": holder.owner,
            "count": holder.count,
            "lease_left_ms": holder.lease_left.map(millis),
            "is_released": holder.is_released,
            "client": client(&holder.client),
        })
    });
    let waiters = report.waiters.iter().map(|waiter| {
        json!({
            "owner": waiter.owner,
            "place_left_ms": millis(waiter.place_left),
            "client": client(&waiter.client),
        })
    });
    json!({
        "key": report.key,
        "primitive": report.primitive.to_string(),
        "is_held": report.is_held(),
        "holders": holders.collect::<Vec<_>>(),
        "holder_total": report.holder_total,
        "waiters": waiters.collect::<Vec<_>>(),
        "waiter_total": report.waiter_total,
        "expires_in_ms": report.expires_in.map(millis),
        "permits": report.permits.as_ref().map(|permits| json!({ "free": permits.free, "taken": permits.taken })),
        "count": report.count,
        "fencing_token": report.fencing_token,
        "listeners": report.listeners,
        "missing_rights": report.missing_rights,
        "fault": report.fault,
    })
}

/// A key as a row under [`HEADS`].
pub(crate) fn row(report: &KeyReport) -> [String; 6] {
    let lease = report.holders.first().and_then(|first| first.lease_left);
    let lease = lease.or(report.expires_in);
    [
        plain(&report.key),
        report.primitive.to_string(),
        holders(report),
        lease.map_or_else(|| "-".to_owned(), time),
        report.waiter_total.to_string(),
        report
            .listeners
            .map_or_else(|| "?".to_owned(), |listeners| listeners.to_string()),
    ]
}

/// The first holder and the number of the others, or what a number counts.
fn holders(report: &KeyReport) -> String {
    if report.fault.is_some() {
        return "?".to_owned();
    }
    let more = report.holder_total.saturating_sub(1);
    match (&report.holders[..], &report.permits, report.count) {
        ([], Some(permits), _) => format!("{} free, {} taken", permits.free, permits.taken),
        ([], None, Some(count)) => format!("count {count}"),
        ([], None, None) => "-".to_owned(),
        ([first, ..], ..) if more > 0 => format!("{} and {more} more", holder(first)),
        ([first, ..], ..) => holder(first),
    }
}

/// The name of the holder's client, or the owner where the name is not known.
pub(crate) fn holder(holder: &HolderReport) -> String {
    let name = match &holder.client {
        Some(client) => plain(&client.name),
        None => plain(&holder.owner),
    };
    if holder.is_released {
        format!("{name} (released)")
    } else {
        name
    }
}

/// Whole seconds, and milliseconds below one.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        seconds => humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The columns that may be cut, and what has to be left of each.
const CUT: [(usize, usize); 2] = [(0, 16), (2, 12)];

/// A table, of which some lines may be shown before the others are known.
pub(crate) struct Table {
    /// The width of a line; `usize::MAX` if it has no limit.
    width: usize,
    /// The widths of the columns, over the lines so far.
    widths: Option<[usize; 6]>,
}

impl Table {
    /// A table in lines of at most this width, if there is one: long keys and names are cut in their middle, because they
    /// often differ at the end.
    pub(crate) fn new(width: Option<usize>) -> Self {
        Self {
            width: width.unwrap_or(usize::MAX),
            widths: None,
        }
    }

    /// Whether it has no line yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.widths.is_none()
    }

    /// The next lines, below the heads if they are the first. The columns are as wide as in the lines before, or wider.
    pub(crate) fn lines(&mut self, rows: &[[String; 6]]) -> Vec<String> {
        let heads = self.is_empty().then(|| HEADS.map(str::to_owned));
        let rows = heads.iter().chain(rows);
        let length = |text: &String| text.chars().count();
        let before = self.widths.unwrap_or_default();
        let mut widths: [usize; 6] = std::array::from_fn(|at| {
            let lengths = rows.clone().map(|row| length(&row[at]));
            lengths.fold(before[at], usize::max)
        });
        for (at, least) in CUT {
            let all = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
            let rest = widths[at].saturating_sub(all.saturating_sub(self.width));
            widths[at] = rest.max(least.min(widths[at]));
        }
        self.widths = Some(widths);
        let line = |row: &[String; 6]| {
            let cells = row.iter().zip(widths);
            let cells = cells.map(|(cell, width)| format!("{:<width$}", middle_cut(cell, width)));
            let line = cells.collect::<Vec<_>>().join("  ");
            line.trim_end().chars().take(self.width).collect()
        };
        rows.map(line).collect()
    }
}

/// A text of at most this width: if it is longer, its beginning and its end.
fn middle_cut(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(1);
    let begins = text.chars().take(kept.div_ceil(2));
    let ends = text.chars().skip(length - kept / 2);
    Cow::Owned(begins.chain(['…']).chain(ends).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[String; 6]], width: Option<usize>) -> Vec<String> {
        Table::new(width).lines(rows)
    }

    #[test]
    fn lines_that_come_later_have_no_heads_and_columns_that_are_as_wide_or_wider() {
        let row = |key: &str| [key, "lock", "web-1", "28s", "0", "2"].map(str::to_owned);
        let mut table = Table::new(None);
        assert!(table.is_empty());
        assert_eq!(table.lines(&[row("order:42")]).len(), 2);
        assert_eq!(
            table.lines(&[row("a")]),
            ["a         lock  web-1   28s    0        2"]
        );
        assert_eq!(
            table.lines(&[row("order:4242")]),
            ["order:4242  lock  web-1   28s    0        2"]
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_are_cut() {
        let row = ["order:42", "lock", "web-1", "28s", "0", "2"].map(str::to_owned);
        assert_eq!(
            table(std::slice::from_ref(&row), None),
            [
                "KEY       KIND  HOLDER  LEASE  WAITING  LISTENING",
                "order:42  lock  web-1   28s    0        2",
            ]
        );
        assert_eq!(table(&[row], Some(8))[1], "order:42");
    }

    #[test]
    fn long_keys_are_cut_in_the_middle_and_then_long_names_and_nothing_without_a_width() {
        let key = format!("order:{}:42", "x".repeat(300));
        let name = "n".repeat(60);
        let row = [&key, "lock", &name, "28s", "0", "2"].map(str::to_owned);
        let rows = std::slice::from_ref(&row);
        let lines = table(rows, Some(120));
        assert!(
            lines[1].starts_with("order:") && lines[1].contains("…"),
            "{lines:#?}"
        );
        assert!(lines[1].contains(":42  lock"), "{lines:#?}");
        assert!(
            lines[1].contains(&name) && lines[0].ends_with("LISTENING"),
            "{lines:#?}"
        );
        let narrow = table(rows, Some(80));
        assert!(
            narrow.iter().all(|line| line.chars().count() <= 80),
            "{narrow:#?}"
        );
        assert_eq!(narrow[1].matches('…').count(), 2, "{narrow:#?}");
        assert!(narrow[1].ends_with('2'), "{narrow:#?}");
        assert!(table(rows, None)[1].contains(&key));
    }
}

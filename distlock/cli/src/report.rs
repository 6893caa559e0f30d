//! What the server says of a key, as JSON and in rows of text.

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

/// A table, in lines of at most this width.
pub(crate) fn table(rows: &[[String; 6]], width: usize) -> Vec<String> {
    let heads = HEADS.map(str::to_owned);
    let rows = [&heads].into_iter().chain(rows);
    let length = |text: &String| text.chars().count();
    let widths: [usize; 6] =
        std::array::from_fn(|at| rows.clone().map(|row| length(&row[at])).max().unwrap_or(0));
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().chars().take(width).collect()
    };
    rows.clone().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_are_cut() {
        let row = ["order:42", "lock", "web-1", "28s", "0", "2"].map(str::to_owned);
        assert_eq!(
            table(std::slice::from_ref(&row), 200),
            [
                "KEY       KIND  HOLDER  LEASE  WAITING  LISTENING",
                "order:42  lock  web-1   28s    0        2",
            ]
        );
        assert_eq!(table(&[row], 8)[1], "order:42");
    }
}

//! `ls` and `who`: the locks under a pattern, and one lock.

use std::time::Duration;

use distlock::{Client, HolderReport, KeyReport, Primitive};
use serde_json::json;
use tokio::time::Instant;

use crate::args::{List, Who};
use crate::exit::{Failed, Status};
use crate::look::{End, Look};
use crate::output::note;
use crate::report::Table;
use crate::{output, report, terminal};

/// What is found within this time is gathered, sorted by key and shown in columns that fit. Later keys are shown as they come.
const GATHERED: Duration = Duration::from_millis(500);

/// Lists the locks. Returns the exit status.
pub(crate) async fn list(client: &Client, args: &List, json: bool) -> Result<u8, Failed> {
    let mut look = Look::new(client, &args.looked, args.limit);
    // A document is there as a whole or not at all.
    let gathered = (!json).then_some(GATHERED);
    let (found, gathered) = gather(&mut look, gathered).await;
    if json {
        gathered?;
        let locks: Vec<_> = found.iter().map(report::json).collect();
        output::json(&json!({ "locks": locks, "is_cut": look.end().is_cut() }))?;
        return Ok(0);
    }
    let width = terminal::columns().filter(|_| !args.wide);
    let mut shown = Shown::new(width);
    // A list that nobody reads any more, as of `distlock ls | head`, is no reason to go on to scan the server.
    if !shown.rows(&found)? {
        return Ok(0);
    }
    // What the other nodes of a cluster have is shown, if one of them does not answer.
    if !gathered? {
        while let Some(page) = look.next().await? {
            if !shown.rows(&page)? {
                return Ok(0);
            }
        }
    }
    if shown.is_empty() {
        let pattern = &args.looked.pattern;
        note(format_args!("distlock: no locks under {pattern:?}"));
        tell_prefix(client);
    }
    match look.end() {
        End::Over => {}
        End::Limit => note(format_args!(
            "distlock: there are more than {}; see --limit",
            args.limit
        )),
        End::MostKeys(keys) => note(format_args!(
            "distlock: looked at {keys} keys and stopped; a pattern of fewer keys or --max-keys shows the rest"
        )),
    }
    Ok(0)
}

/// What is found within this time, or all, by key; and whether that is all, or why there is no more.
async fn gather(
    look: &mut Look,
    within: Option<Duration>,
) -> (Vec<KeyReport>, Result<bool, Failed>) {
    let started = Instant::now();
    let mut found = Vec::new();
    let mut is_over = Ok(false);
    while matches!(is_over, Ok(false)) && within.is_none_or(|within| started.elapsed() < within) {
        match look.next().await {
            Ok(Some(page)) => found.extend(page),
            Ok(None) => is_over = Ok(true),
            Err(error) => is_over = Err(error),
        }
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    (found, is_over.map_err(Failed::from))
}

/// What was written to stdout so far.
struct Shown {
    table: Table,
    are_rights_told: bool,
}

impl Shown {
    fn new(width: Option<usize>) -> Self {
        Self {
            table: Table::new(width),
            are_rights_told: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Shows more locks. Returns whether somebody reads them.
    fn rows(&mut self, found: &[KeyReport]) -> Result<bool, Failed> {
        if found.is_empty() {
            return Ok(true);
        }
        let is_first = self.is_empty();
        let rows: Vec<_> = found.iter().map(report::row).collect();
        let mut lines = self.table.lines(&rows);
        if is_first {
            lines[0] = terminal::stdout().bold(&lines[0]);
        }
        if !output::part(&(lines.join("\n") + "\n"))? {
            return Ok(false);
        }
        if !self.are_rights_told {
            self.are_rights_told = tell_missing_rights(found);
        }
        tell_faults(found);
        Ok(true)
    }
}

/// Why some keys could not be read.
fn tell_faults(found: &[KeyReport]) {
    for report in found {
        if let Some(fault) = &report.fault {
            let key = output::plain(&report.key);
            let fault = output::plain(fault);
            note(format_args!("distlock: {key} cannot be read: {fault}"));
        }
    }
}

/// Which rights the user lacks for what the reports leave out. Returns whether there are any.
fn tell_missing_rights(found: &[KeyReport]) -> bool {
    let missing = found
        .iter()
        .find(|report| !report.missing_rights.is_empty());
    if let Some(report) = missing {
        let rights = report.missing_rights.join(" ");
        note(format_args!(
            "distlock: some columns are incomplete; the user lacks {rights}"
        ));
    }
    missing.is_some()
}

/// Shows one lock. Returns the exit status.
pub(crate) async fn who(client: &Client, args: &Who, json: bool) -> Result<u8, Failed> {
    let found = client.inspect(&args.key).await?;
    if json {
        output::json(&report::json(&found))?
    } else {
        output::text(&text(&found))?;
        tell_missing_rights(std::slice::from_ref(&found));
        if found.primitive == Primitive::Nothing {
            tell_prefix(client);
        }
    }
    Ok(if found.is_held() {
        0
    } else {
        Status::No.code()
    })
}

/// What to do if a key was copied from the log of a program, which leaves the program's prefix out. Without that, a lock that is
/// stuck looks free.
pub(crate) fn tell_prefix(client: &Client) {
    if client.key_prefix().is_empty() {
        note(format_args!(
            "distlock: a program that has a key prefix leaves it out of its log: give it as --key-prefix, or find the key on the \
             server by `distlock ls`"
        ));
    }
}

/// How a holder's name leads to its process, and from there to what no server knows.
const LEADS: [&str; 2] = [
    "  name       of the holder: its machine and the id of its process, unless its program has set another one",
    "  since      when it is held, and by which line of the code: on the page of the console of that process, and in its \
     `Client::snapshot`; the server knows neither",
];

/// The right without which it is not known which clients are connected.
const NAMES: &str = "+client|list";

fn holder_line(holder: &HolderReport) -> String {
    let mut line = format!("  holder     {}", report::holder(holder));
    if let Some(client) = &holder.client {
        let address = output::plain(&client.address);
        let owner = output::plain(&holder.owner);
        line += &format!(" at {address}, owner {owner}");
    }
    line += &format!(", count {}", holder.count);
    if let Some(left) = holder.lease_left {
        line += &format!(", lease left {}", report::time(left));
    }
    line
}

/// What it means that no client of this holder is connected. `None` if there is one, or if that is not known.
fn absent_line(holder: &HolderReport, found: &KeyReport) -> Option<String> {
    let _has_a_client = holder.client_id()?;
    if holder.client.is_some() || holder.is_released || found.missing_rights.contains(&NAMES) {
        return None;
    }
    let then = match holder.lease_left.or(found.expires_in) {
        Some(left) => format!(
            "nobody renews the lease then, and it ends in {}",
            report::time(left)
        ),
        None => "`distlock release` frees it then".to_owned(),
    };
    Some(format!(
        "  connected  no: the server lists no client with the id of this holder. Its process has probably ended, unless it is one of \
         Redisson, which is never listed, or the hold was detached; {then}"
    ))
}

/// A key in some lines.
fn text(found: &KeyReport) -> String {
    let state = if found.is_held() {
        "held"
    } else {
        "nobody holds it"
    };
    let key = terminal::stdout().bold(&output::plain(&found.key));
    let mut lines = vec![format!("{key}: {}, {state}", found.primitive)];
    for holder in &found.holders {
        lines.push(holder_line(holder));
        lines.extend(absent_line(holder, found));
    }
    for (place, waiter) in found.waiters.iter().enumerate() {
        let name = waiter
            .client
            .as_ref()
            .map_or(&waiter.owner, |client| &client.name);
        lines.push(format!("  waiter {:<3} {}", place + 1, output::plain(name)));
    }
    let numbers = [
        (
            "permits",
            found
                .permits
                .as_ref()
                .map(|permits| format!("{} free, {} taken", permits.free, permits.taken)),
        ),
        ("count", found.count.map(|count| count.to_string())),
        ("token", found.fencing_token.map(|token| token.to_string())),
        ("expires in", found.expires_in.map(report::time)),
        (
            "listening",
            found.listeners.map(|count| match count {
                0 => "no process".to_owned(),
                1 => "1 process, which may wait for it".to_owned(),
                count => format!("{count} processes, which may wait for it"),
            }),
        ),
    ];
    for (name, number) in numbers {
        lines.extend(number.map(|number| format!("  {name:<10} {number}")));
    }
    if found.holders.iter().any(|holder| holder.client.is_some()) {
        lines.extend(LEADS.map(str::to_owned));
    }
    lines.join("\n") + "\n"
}

//! `ls` and `who`: the locks under a pattern, and one lock.

use distlock::{Client, Error, HolderReport, KeyReport};
use serde_json::json;

use crate::args::{List, Who};
use crate::exit::{Failed, Status};
use crate::{output, report, terminal};

/// The locks under a pattern, by key. Stops at the limit; returns whether there may be more.
pub(crate) async fn find(
    client: &Client,
    pattern: &str,
    limit: usize,
) -> Result<(Vec<KeyReport>, bool), Error> {
    let mut scan = client.scan(pattern);
    let mut found = Vec::new();
    let mut is_cut = false;
    while !is_cut && let Some(page) = scan.next_page().await? {
        found.extend(page);
        is_cut = found.len() > limit;
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    // A server may give a key twice while its table grows.
    found.dedup_by(|one, other| one.key == other.key);
    found.truncate(limit);
    Ok((found, is_cut))
}

/// Lists the locks. Returns the exit status.
pub(crate) async fn list(client: &Client, args: &List, json: bool) -> Result<u8, Failed> {
    let (found, is_cut) = find(client, &args.pattern, args.limit).await?;
    if json {
        let locks: Vec<_> = found.iter().map(report::json).collect();
        output::json(&json!({ "locks": locks, "is_cut": is_cut }))?;
        return Ok(0);
    }
    if found.is_empty() {
        eprintln!("distlock: no locks under {:?}", args.pattern);
        return Ok(0);
    }
    let rows: Vec<_> = found.iter().map(report::row).collect();
    let width = terminal::columns().filter(|_| !args.wide);
    let mut lines = report::table(&rows, width);
    lines[0] = terminal::stdout().bold(&lines[0]);
    output::text(&(lines.join("\n") + "\n"))?;
    if is_cut {
        eprintln!("distlock: there are more than {}; see --limit", args.limit);
    }
    tell_missing_rights(&found);
    tell_faults(&found);
    Ok(0)
}

/// Why some keys could not be read.
fn tell_faults(found: &[KeyReport]) {
    for report in found {
        if let Some(fault) = &report.fault {
            let key = output::plain(&report.key);
            let fault = output::plain(fault);
            eprintln!("distlock: {key} cannot be read: {fault}");
        }
    }
}

/// Which rights the user lacks for what the reports leave out.
fn tell_missing_rights(found: &[KeyReport]) {
    let missing = found
        .iter()
        .find(|report| !report.missing_rights.is_empty());
    if let Some(report) = missing {
        let rights = report.missing_rights.join(" ");
        eprintln!("distlock: some columns are incomplete; the user lacks {rights}");
    }
}

/// Shows one lock. Returns the exit status.
pub(crate) async fn who(client: &Client, args: &Who, json: bool) -> Result<u8, Failed> {
    let found = client.inspect(&args.key).await?;
    if json {
        output::json(&report::json(&found))?
    } else {
        output::text(&text(&found))?;
        tell_missing_rights(std::slice::from_ref(&found));
    }
    Ok(if found.is_held() {
        0
    } else {
        Status::No.code()
    })
}

/// How a holder's name leads to its process, and from there to the line of the code, which no server knows.
const LEADS: [&str; 2] = [
    "  name       of the holder: its machine and the id of its process, unless its program has set another one",
    "  line       of the code: on the page of the console of that process, and in its `Client::snapshot`",
];

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

/// A key in some lines.
fn text(found: &KeyReport) -> String {
    let state = if found.is_held() {
        "held"
    } else {
        "nobody holds it"
    };
    let key = terminal::stdout().bold(&output::plain(&found.key));
    let mut lines = vec![format!("{key}: {}, {state}", found.primitive)];
    lines.extend(found.holders.iter().map(holder_line));
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

//! `release`: frees a lock that somebody else holds.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use distlock::{Client, ForceRelease, KeyReport, Primitive};
use serde_json::json;

use crate::args::Release;
use crate::exit::{Failed, Status};
use crate::{output, report};

/// Releases a lock by force, after a question, from the holders that it has found. Returns the exit status.
pub(crate) async fn release(client: &Client, args: &Release, json: bool) -> Result<u8, Failed> {
    let seen = client.inspect(&args.key).await?;
    if !is_lock(&seen) {
        let key = output::plain(&args.key);
        let text = format!("{key} is no lock that can be released: {}", seen.primitive);
        return Err(Failed::usage(text));
    }
    if !args.yes && !is_confirmed(&seen)? {
        return Err(Failed::new(Status::No, "nothing was released"));
    }
    let was_held = match client.force_release(&seen).await? {
        ForceRelease::Changed(now) => {
            let key = output::plain(&args.key);
            let text = format!(
                "{key} is held by {} by now; nothing was released",
                holders(&now)
            );
            return Err(Failed::new(Status::No, text));
        }
        outcome => outcome == ForceRelease::Freed,
    };
    let key = output::plain(&args.key);
    match (json, was_held) {
        (true, _) => {
            let all = report::json(&seen);
            let from = all.get("holders").filter(|_| was_held);
            output::json(&json!({ "key": args.key, "released": was_held, "from": from }))?;
        }
        (false, true) => output::text(&format!(
            "{key} is free; it was taken from {}\n",
            holders(&seen)
        ))?,
        (false, false) => eprintln!("distlock: nobody held {key}"),
    }
    Ok(if was_held { 0 } else { Status::No.code() })
}

fn is_lock(found: &KeyReport) -> bool {
    matches!(
        found.primitive,
        Primitive::Nothing
            | Primitive::Lock
            | Primitive::FencedLock
            | Primitive::FairLock
            | Primitive::ReadLock
            | Primitive::WriteLock
    )
}

/// The holders with their names and owners, or that there is none.
fn holders(found: &KeyReport) -> String {
    let holders = found.holders.iter().map(|holder| match &holder.client {
        Some(_) => format!(
            "{} ({})",
            report::holder(holder),
            output::plain(&holder.owner)
        ),
        None => report::holder(holder),
    });
    let holders: Vec<String> = holders.collect();
    match holders.is_empty() {
        true => String::from("nobody"),
        false => holders.join(", "),
    }
}

/// Asks the person at the terminal.
fn is_confirmed(seen: &KeyReport) -> Result<bool, Failed> {
    if !stdin().is_terminal() {
        return Err(Failed::usage(
            "release asks before it frees a lock, and stdin is no terminal; give --yes",
        ));
    }
    let (key, holders) = (output::plain(&seen.key), holders(seen));
    eprint!(
        "{key} is held by {holders}, and its work goes on without the lock. Release it? [y/N] "
    );
    let mut answer = String::new();
    let read = stderr()
        .flush()
        .and_then(|()| stdin().lock().read_line(&mut answer));
    read.map_err(|error| Failed::new(Status::Software, error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

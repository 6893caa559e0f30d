//! `release`: frees a lock, a semaphore or a latch that others use.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use distlock::{Client, ForceRelease, KeyReport, Primitive};
use serde_json::json;

use crate::args::Release;
use crate::exit::{Failed, Status};
use crate::ls::tell_prefix;
use crate::output::note;
use crate::{output, report};

/// Frees a key by force, after a question, if it is still what was found. Returns the exit status.
pub(crate) async fn release(client: &Client, args: &Release, json: bool) -> Result<u8, Failed> {
    let seen = client.inspect(&args.key).await?;
    let key = output::plain(&args.key);
    if matches!(seen.primitive, Primitive::OtherData | Primitive::Unreadable) {
        let text = format!("{key} is no lock that can be released: {}", seen.primitive);
        return Err(Failed::usage(text));
    }
    if !args.yes && !is_confirmed(&seen)? {
        return Err(Failed::new(Status::No, "nothing was released"));
    }
    let was_held = match client.force_release(&seen).await? {
        ForceRelease::Changed(now) => {
            let text = format!("{key} is {} by now; nothing was released", state(&now));
            return Err(Failed::new(Status::No, text));
        }
        outcome => outcome == ForceRelease::Freed,
    };
    match (json, was_held) {
        (true, _) => {
            let all = report::json(&seen);
            let from = all.get("holders").filter(|_| was_held);
            let number = number(&seen).filter(|_| was_held);
            output::json(&json!({
                "key": args.key, "released": was_held, "from": from, "number": number,
            }))?;
        }
        (false, true) => output::text(&match number(&seen) {
            None => format!("{key} is free; it was taken from {}\n", holders(&seen)),
            Some(_) => format!("{key} is deleted; it was {}\n", state(&seen)),
        })?,
        (false, false) => {
            note(format_args!("distlock: nobody held {key}"));
            tell_prefix(client);
        }
    }
    Ok(if was_held { 0 } else { Status::No.code() })
}

/// The number in the server of a semaphore or a latch; `None` for a lock.
fn number(found: &KeyReport) -> Option<i64> {
    let free = found.permits.as_ref().map(|permits| permits.free);
    free.or(found.count)
}

/// What somebody has to know of a key before it is freed: who holds it, and the number that it has.
fn state(found: &KeyReport) -> String {
    match (found.primitive, &found.permits, found.count) {
        (_, Some(permits), _) => {
            let taken = match permits.taken {
                0 => "none is known to be taken".to_owned(),
                taken => format!("{taken} taken by {}", holders(found)),
            };
            format!(
                "a semaphore of which {} permits are free and {taken}",
                permits.free
            )
        }
        (Primitive::CountDownLatch, _, Some(count)) => format!("a latch at {count}"),
        (_, _, Some(count)) => format!("the number {count}"),
        (Primitive::OtherData, ..) => "data of another program".to_owned(),
        _ => format!("held by {}", holders(found)),
    }
}

/// What follows if the key is freed, and the question.
fn question(found: &KeyReport) -> &'static str {
    match (found.primitive, number(found)) {
        (_, None) => ", and its work goes on without the lock. Release it?",
        (Primitive::CountDownLatch, _) => ". Whoever waits for it goes on at once. Delete it?",
        (Primitive::Number, _) => {
            ": a semaphore or a latch that nobody uses at the moment, or a number of another program. Delete it?"
        }
        _ => {
            ". Work that has a permit goes on without it, and nobody gets one until the number is set again. Delete it?"
        }
    }
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
    let mut holders: Vec<String> = holders.collect();
    let more = found.holder_total.saturating_sub(holders.len() as u64);
    if more > 0 {
        holders.push(format!("{more} more"));
    }
    if holders.is_empty() {
        String::from("nobody")
    } else {
        holders.join(", ")
    }
}

/// Asks the person at the terminal, if there is something to free.
fn is_confirmed(seen: &KeyReport) -> Result<bool, Failed> {
    if !stdin().is_terminal() {
        return Err(Failed::usage(
            "release asks before it frees a lock, and stdin is no terminal; give --yes",
        ));
    }
    if seen.primitive == Primitive::Nothing {
        return Ok(true);
    }
    let key = output::plain(&seen.key);
    let state = state(seen);
    let question = format!("{key} is {state}{} [y/N] ", question(seen));
    let mut answer = String::new();
    // A question that nobody can see has no answer.
    let read = stderr()
        .write_all(question.as_bytes())
        .and_then(|()| stdin().lock().read_line(&mut answer));
    read.map_err(|error| Failed::new(Status::Software, error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

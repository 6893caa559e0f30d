//! `release`: frees a lock that somebody else holds.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use distlock::{Client, Primitive};
use serde_json::json;

use crate::args::Release;
use crate::exit::{Failed, Status};
use crate::output;

/// Releases a lock by force, after a question. Returns the exit status.
pub(crate) async fn release(client: &Client, args: &Release, json: bool) -> Result<u8, Failed> {
    if !args.yes && !is_confirmed(&args.key)? {
        return Err(Failed::new(Status::No, "nothing was released"));
    }
    let was_held = by_force(client, &args.key).await?;
    match (json, was_held) {
        (true, _) => output::json(&json!({ "key": args.key, "released": was_held }))?,
        (false, true) => output::text(&format!("{:?} is free\n", args.key))?,
        (false, false) => eprintln!("distlock: nobody held {:?}", args.key),
    }
    Ok(if was_held { 0 } else { Status::No.code() })
}

/// Releases whatever lock the key is. Returns whether somebody held it.
async fn by_force(client: &Client, key: &str) -> Result<bool, Failed> {
    let found = client.inspect(key).await?;
    let released = match found.primitive {
        Primitive::FairLock => client.fair_lock(key).force_release().await?,
        Primitive::ReadLock | Primitive::WriteLock => client.rw_lock(key).force_release().await?,
        Primitive::Nothing | Primitive::Lock | Primitive::FencedLock => {
            client.lock(key).force_release().await?
        }
        other => {
            let text = format!("{key:?} is no lock that can be released: {other}");
            return Err(Failed::usage(text));
        }
    };
    Ok(released)
}

/// Asks the person at the terminal.
fn is_confirmed(key: &str) -> Result<bool, Failed> {
    if !stdin().is_terminal() {
        return Err(Failed::usage(
            "release asks before it frees a lock, and stdin is no terminal; give --yes",
        ));
    }
    eprint!("Whoever holds {key:?} loses it while its work goes on. Release it? [y/N] ");
    let mut answer = String::new();
    let read = stderr()
        .flush()
        .and_then(|()| stdin().lock().read_line(&mut answer));
    read.map_err(|error| Failed::new(Status::Software, error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

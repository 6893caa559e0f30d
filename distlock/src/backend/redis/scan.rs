//! The names of the keys that may belong to a primitive, page by page.

use std::collections::BTreeSet;

use redis::{Cmd, Value};

use super::examine::{listener_counts, needs};
use super::servers::{ScannedPage, ScannedServer};
use super::{RedisBackend, names, reply};
use crate::backend::{Fault, ScanFilter, ScanPosition, Scanned, Sweep, side_keys};

/// A page of names, without those that belong to a primitive under another key.
pub(super) async fn scan(
    backend: &RedisBackend,
    position: &ScanPosition,
    ScanFilter { pattern, sweep }: ScanFilter<'_>,
    most: u32,
) -> Result<Scanned, Fault> {
    let page = backend.servers.scan(position, |cursor| {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(most);
        // The server leaves out keys of other types. Otherwise the client would get and examine them for nothing.
        scan.arg("TYPE").arg(match sweep {
            Sweep::Locks => "hash",
            Sweep::Numbers | Sweep::NumbersInUse => "string",
        });
        scan
    });
    let ScannedPage { value, server } = page.await.map_err(|fault| needs("+scan", fault))?;
    let (next, keys) = match reply::parts(&value) {
        [next, Value::Array(keys)] => reply::bytes(next).zip(Some(keys)),
        _ => None,
    }
    .ok_or_else(|| reply::unexpected(&value))?;
    let next = String::from_utf8_lossy(next).into_owned();
    // The server may name a key several times.
    let mut names = BTreeSet::new();
    let mut no_text = BTreeSet::new();
    for name in keys.iter().filter_map(reply::bytes) {
        match std::str::from_utf8(name) {
            Ok(name) if side_keys::belongs_to_another(name) => {}
            Ok(name) => drop(names.insert(name.to_owned())),
            // No client of this crate could use it as a semaphore or a latch.
            Err(_) if sweep == Sweep::NumbersInUse => {}
            Err(_) => drop(no_text.insert(as_text(name))),
        }
    }
    let mut names: Vec<String> = names.into_iter().collect();
    if sweep == Sweep::NumbersInUse && !names.is_empty() {
        names = in_use(backend, &server, names).await?;
    }
    Ok(Scanned {
        names,
        looked_at: keys.len() as u64,
        no_text: no_text.into_iter().collect(),
        next: backend.servers.after(position, server, next),
    })
}

/// Leaves out the numbers that the server shows to be unused. A number that the server says nothing about stays.
async fn in_use(
    backend: &RedisBackend,
    server: &ScannedServer,
    names: Vec<String>,
) -> Result<Vec<String>, Fault> {
    let mut commands: Vec<Cmd> = names.iter().map(|name| beside(name)).collect();
    for (count, _) in listener_counts(backend.servers.publishes()) {
        let mut listeners = redis::cmd("PUBSUB");
        listeners.arg(count);
        for name in &names {
            listeners.arg(names::semaphore_channel(name));
            listeners.arg(names::latch_channel(name));
        }
        commands.push(listeners);
    }
    let answers = backend.servers.ask_scanned(server, &commands).await?;
    let (beside, listeners) = answers.split_at(names.len().min(answers.len()));
    // A number without an answer stays: its key may have moved, or the user may lack a right.
    let mut are_used: Vec<bool> = beside
        .iter()
        .map(|answer| !matches!(answer, Some(Value::Int(0))))
        .collect();
    are_used.resize(names.len(), true);
    for counts in listeners {
        let Some(Value::Array(counts)) = counts else {
            continue;
        };
        // For each name two channels, each with its count behind it.
        for (is_used, counts) in are_used.iter_mut().zip(counts.chunks(4)) {
            let mut counts = counts.iter().skip(1).step_by(2);
            *is_used |= counts.any(|count| !matches!(count, Value::Int(0)));
        }
    }
    let names = names.into_iter().zip(are_used);
    Ok(names
        .filter_map(|(name, is_used)| is_used.then_some(name))
        .collect())
}

/// Asks how many keys of a semaphore are beside a number.
fn beside(name: &str) -> Cmd {
    let mut exists = redis::cmd("EXISTS");
    exists.arg(names::permits(name));
    exists.arg(names::semaphore_owners(name));
    exists
}

/// A name that is not UTF-8, with the bytes that are none as `%FF`.
fn as_text(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_shown_as_numbers() {
        assert_eq!(as_text(b"bin:\xff\x00\xc3\xa9\xc3"), "bin:%FF\0é%C3");
    }
}

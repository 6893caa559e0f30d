//! Reads whether owners still have what they hold, and has the server track the keys.

use redis::Value;

use super::script::{self, Call};
use super::tracking::Track;
use super::{RedisBackend, names, reply};
use crate::backend::{Fault, Target};
use crate::config::PERMITS_READ;
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};
use crate::resource::permit_id::PermitId;

/// Reads holds of any family whose keys have one slot. A server that does not track is not asked, and each hold counts as still
/// there.
pub(super) async fn read(
    backend: &RedisBackend,
    first: &Key,
    batch: &[Target],
) -> Result<Vec<bool>, Fault> {
    let keys: Vec<String> = batch.iter().map(key_of).collect();
    let with = |call: Call| {
        let call = call.keys(keys.iter().map(String::as_str));
        batch.iter().fold(call, holders)
    };
    let servers = &backend.servers;
    let read = servers.run_tracked(first, &script::STILL_HELD, Track::Only, &with);
    let value = read.await?;
    if value == Value::Nil {
        return Ok(vec![true; batch.len()]);
    }
    reply::renewed(value, batch.len())
}

/// The key that a hold is in.
fn key_of(target: &Target) -> String {
    let name = target.resource.key.name();
    match target.resource.kind.family() {
        Family::Permit => names::permits(name),
        _ => name.to_string(),
    }
}

/// Adds what the hold is in its key: how many fields of a hash, or members of a sorted set, and these.
fn holders(call: Call, target: &Target) -> Call {
    let owner = target.owner;
    match (target.resource.kind, target.resource.kind.family()) {
        (_, Family::Permit) => {
            let many = target.permits.min(PERMITS_READ);
            let ids = PermitId::all_of(owner, many);
            let call = call.arg("set").arg(many);
            ids.fold(call, |call, id| call.arg(&id.as_bytes()[..]))
        }
        (Kind::Write, _) => call.arg("hash").arg(1).arg(owner.text() + ":write"),
        _ => call.arg("hash").arg(1).arg(owner.text()),
    }
}

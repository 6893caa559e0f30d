//! Reads whether owners still have what they hold, and has the server track the keys.

use std::borrow::Cow;

use redis::Value;

use super::script::{self, Call};
use super::tracking::{self, Order, Track};
use super::{RedisBackend, reply};
use crate::backend::{Fault, Target};
use crate::config::PERMITS_READ;
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};
use crate::resource::permit_id::PermitId;

/// Reads holds of any family whose keys have one slot, after the server has begun to track the keys. `None`: the server does not
/// track now, and was not asked.
pub(super) async fn read(
    backend: &RedisBackend,
    first: &Key,
    batch: &[Target],
) -> Result<Option<Vec<bool>>, Fault> {
    let keys: Vec<Cow<'_, str>> = batch.iter().map(tracking::key_of).collect();
    let with = |call: Call| {
        let call = call.keys(keys.iter().map(|key| &**key));
        batch.iter().fold(call, holders)
    };
    let Some(read) = tracking::read(batch.iter()) else {
        return Ok(Some(Vec::new()));
    };
    let order = Order::Before;
    let track = Track { read: &read, order };
    let servers = &backend.servers;
    let answer = servers
        .route(first)
        .run_tracked(&script::STILL_HELD, track, &with);
    let value = answer.await?;
    if value == Value::Nil {
        return Ok(None);
    }
    reply::renewed(value, batch.len()).map(Some)
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

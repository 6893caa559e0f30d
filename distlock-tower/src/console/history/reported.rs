//! A report of the server as the console shows it, with what is known from the look before.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{HolderReport, KeyReport, WaiterReport, visible};

use crate::console::clock::{Millis, millis};
use crate::console::lock::{Holder, Lock, Named, Permits, Waiter, can_be_released};
use crate::console::own::{self, OwnWaiters};

/// Two looks at one lease differ by so much at most, unless it was renewed.
const LEASE_TOLERANCE: Millis = 1_000;

/// How a look sees a key.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) at: Millis,
    /// Whether a hold that was not seen before began shortly before.
    pub(super) is_exact: bool,
    /// Since when this process has its holds, by [`own::owner`].
    pub(super) own_since: &'a HashMap<String, Millis>,
}

/// A report as the console shows it, with what is known from the look before.
pub(super) fn lock(
    sight: Sight<'_>,
    report: &KeyReport,
    own: OwnWaiters,
    before: Option<&Lock>,
) -> Lock {
    let at = sight.at;
    // That it cannot be read at this moment does not say that its holds have ended.
    if let (Some(_), Some(before)) = (&report.fault, before) {
        return Lock {
            fault: report.fault.clone(),
            contention: Vec::new(),
            changed: 0,
            ..before.clone()
        };
    }
    let holder = |holder: &HolderReport| {
        let known = before.and_then(|lock| lock.holders.iter().find(|it| it.owner == holder.owner));
        known_holder(sight, holder, known)
    };
    let waiter = |waiter: &WaiterReport| {
        let known = before.and_then(|lock| lock.waiters.iter().find(|it| it.owner == waiter.owner));
        Waiter {
            owner: waiter.owner.clone(),
            client: waiter.client.as_ref().map(Named::new),
            since: known.map_or(at, |known| known.since),
            place_ends: end(at, waiter.place_left, known.map(|known| known.place_ends)),
        }
    };
    let holders: Vec<Holder> = report.holders.iter().map(holder).collect();
    let expires_at = before.and_then(|lock| lock.expires_at);
    Lock {
        key: report.key.clone(),
        shown: visible(&report.key).into_owned(),
        primitive: report.primitive.to_string(),
        holders,
        holder_total: report.holder_total,
        waiters: report.waiters.iter().map(waiter).collect(),
        waiter_total: report.waiter_total,
        waiting: own.with(report.waiter_total, report.listeners.unwrap_or(0)),
        listening: report.listeners,
        permits: report.permits.map(|permits| Permits {
            free: permits.free,
            taken: permits.taken,
        }),
        count: report.count,
        fencing_token: report.fencing_token,
        fault: report.fault.clone(),
        expires_at: report.expires_in.map(|left| end(at, left, expires_at)),
        can_be_released: can_be_released(report),
        contention: Vec::new(),
        changed: 0,
    }
}

fn known_holder(sight: Sight<'_>, holder: &HolderReport, known: Option<&Holder>) -> Holder {
    let at = sight.at;
    let lease = holder.lease_left.map(|left| millis(left.as_millis()));
    let longest = known.and_then(|known| known.lease_millis);
    let ends = known.and_then(|known| known.lease_ends);
    let seen = known.map_or((at, sight.is_exact), |it| (it.since, it.is_since_exact));
    let own = sight.own_since.get(own::owner(&holder.owner));
    let (since, is_since_exact) = match (known, own) {
        // What is known stays, although the process tells it anew with a little difference.
        (Some(known), _) if known.is_since_exact => seen,
        (_, Some(own)) => (*own, true),
        (_, None) => seen,
    };
    Holder {
        owner: holder.owner.clone(),
        client: holder.client.as_ref().map(Named::new),
        count: holder.count,
        since,
        is_since_exact,
        lease_ends: holder.lease_left.map(|left| end(at, left, ends)),
        lease_millis: lease.map(|lease| lease.max(longest.unwrap_or(0))),
        is_released: holder.is_released,
    }
}

/// When a time is over. Without a renewal it is the end that was known before, so that it does not seem to change.
fn end(at: Millis, left: Duration, known: Option<Millis>) -> Millis {
    let end = at.saturating_add(millis(left.as_millis()));
    known
        .filter(|known| known.abs_diff(end) <= LEASE_TOLERANCE)
        .unwrap_or(end)
}

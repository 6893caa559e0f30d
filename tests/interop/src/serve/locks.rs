//! Locks of all kinds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use distlock::{Client, Guard};
use distlock_tests::{AnyLock, LockKind};
use serde_json::{Value, json};

use super::{Outcome, detached, millis, name, text, unknown, unless_busy};
use crate::protocol::{Call, Grant, Kind};

/// The guards of a worker, by the names and the kind of their lock; the last one is that of the innermost hold.
pub(super) type Guards = HashMap<Vec<String>, Vec<(Kind, Guard)>>;

pub(super) async fn perform(clients: &[Client], guards: &mut Guards, call: &Call) -> Outcome {
    let lock = lock(clients, call);
    match call.op.as_str() {
        "acquire" => {
            let held = guards.entry(call.names.clone()).or_default();
            let acquire = lock.acquire(millis(call.wait), millis(call.lease));
            let answer = match held.last() {
                // As a Java thread enters again what it holds.
                Some((_, guard)) => guard.scope(acquire).await.map_err(text)?,
                None => acquire.await,
            };
            let Some(guard) = unless_busy(answer)? else {
                return Ok(Value::Null);
            };
            Ok(json!(keep(guards, call, guard)))
        }
        "attach" => {
            let guard = detached::attach::<Guard>(&clients[0], call).await?;
            Ok(json!(guard.map(|guard| keep(guards, call, guard))))
        }
        "release" => {
            let guard = last(guards, call)?;
            guard.release().await.map_err(text)?;
            Ok(json!(true))
        }
        "detach" => {
            let detached = last(guards, call)?.detach().map_err(text)?;
            Ok(json!(detached.to_string()))
        }
        "release_detached" => detached::release::<Guard>(&clients[0], call).await,
        "force_release" => Ok(json!(lock.force_release().await.map_err(text)?)),
        "is_locked" => {
            let holders = lock.holders().await.map_err(text)?;
            Ok(json!(!holders.is_empty()))
        }
        "hold_count" => Ok(json!(lock.hold_count().await.map_err(text)?)),
        "remaining_lease" => {
            let left = lock.remaining_lease().await.map_err(text)?;
            Ok(json!(left.map_or(-2, |left| left.as_millis() as i64)))
        }
        "holders" => {
            let holders = lock.holders().await.map_err(text)?;
            let owners: Vec<String> = holders.into_iter().map(|holder| holder.owner).collect();
            Ok(json!(owners))
        }
        "hammer" => hammer(&lock, call).await,
        _ => unknown(call),
    }
}

/// The worker has this guard from now on.
fn keep(guards: &mut Guards, call: &Call, guard: Guard) -> Grant {
    let grant = Grant {
        owner: guard.owner().to_string(),
        token: guard.fencing_token(),
        permit: None,
    };
    let held = guards.entry(call.names.clone()).or_default();
    held.push((call.kind, guard));
    grant
}

/// The guard of the worker's innermost hold.
fn last(guards: &mut Guards, call: &Call) -> Result<Guard, String> {
    let held = guards.entry(call.names.clone()).or_default();
    let at = held.iter().rposition(|(kind, _)| *kind == call.kind);
    let (_, guard) = held.remove(at.ok_or("this thread does not hold it")?);
    Ok(guard)
}

fn lock(clients: &[Client], call: &Call) -> AnyLock {
    let kind = match call.kind {
        Kind::Reentrant => LockKind::Reentrant,
        Kind::Fair => LockKind::Fair,
        Kind::Read => LockKind::Read,
        Kind::Write => LockKind::Write,
        Kind::Spin => LockKind::Spin,
        Kind::Fenced => LockKind::Fenced,
        Kind::NonReentrant => LockKind::NonReentrant,
        Kind::NonReentrantFair => LockKind::NonReentrantFair,
        Kind::Red => LockKind::Red,
        Kind::Multi => return AnyLock::Multi(clients[0].multi_lock(call.names.clone())),
        Kind::Semaphore | Kind::Permit | Kind::Latch => unreachable!("not a lock"),
    };
    kind.lock_on(clients, name(call))
}

/// Acquires and releases the lock again and again. Counts the grants, and measures the longest wait in nanoseconds.
async fn hammer(lock: &AnyLock, call: &Call) -> Outcome {
    let time = millis(call.time).ok_or("no time")?;
    let hold = millis(call.hold).ok_or("no hold")?;
    let (start, mut grants, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    while start.elapsed() < time {
        let called = Instant::now();
        let guard = lock.acquire(None, None).await.map_err(text)?;
        longest = longest.max(called.elapsed());
        grants += 1;
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        guard.release().await.map_err(text)?;
    }
    Ok(json!({ "grants": grants, "longest": longest.as_nanos() as u64 }))
}

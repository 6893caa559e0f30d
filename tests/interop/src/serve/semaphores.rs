//! Semaphores whose permits have no lease.

use std::collections::HashMap;

use distlock::{Client, Permit};
use serde_json::{Value, json};

use super::{Outcome, millis, name, text, unknown, unless_busy};
use crate::protocol::{Call, Grant};

/// The permits of a worker.
pub(super) type Permits = HashMap<String, Vec<Permit>>;

pub(super) async fn perform(client: &Client, permits: &mut Permits, call: &Call) -> Outcome {
    let mut semaphore = client.semaphore(name(call));
    if let Some(time) = millis(call.expire_after) {
        semaphore = semaphore.expire_after(time);
    }
    let count = call.count.unwrap_or(1);
    match call.op.as_str() {
        "set_permits" => Ok(json!(semaphore.try_set_permits(count).await.map_err(text)?)),
        "acquire" => {
            let mut acquire = semaphore.acquire_many(count);
            if let Some(wait) = millis(call.wait) {
                acquire = acquire.wait(wait);
            }
            let Some(permit) = unless_busy(acquire.await)? else {
                return Ok(Value::Null);
            };
            permits
                .entry(name(call).to_owned())
                .or_default()
                .push(permit);
            let (owner, token, permit) = (String::new(), None, None);
            Ok(json!(Grant {
                owner,
                token,
                permit
            }))
        }
        "release" => {
            let own = permits.get_mut(name(call)).and_then(Vec::pop);
            match own {
                Some(permit) => permit.release().await.map_err(text)?,
                // No matter who took them: a permit has no owner.
                None => drop(semaphore.release_permits(count).await.map_err(text)?),
            }
            Ok(json!(true))
        }
        "add_permits" => {
            let count = i32::try_from(count).map_err(|error| error.to_string())?;
            semaphore.add_permits(count).await.map_err(text)?;
            Ok(json!(true))
        }
        "available" => Ok(json!(semaphore.available_permits().await.map_err(text)?)),
        _ => unknown(call),
    }
}

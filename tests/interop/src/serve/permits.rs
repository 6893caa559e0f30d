//! Semaphores whose permits have an id and a lease.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::LazyLock;

use distlock::{Client, ExpirablePermit, PermitId};
use serde_json::{Value, json};

use super::{Outcome, Shared, detached, millis, name, text, unknown, unless_busy};
use crate::protocol::{Call, Grant};

/// The permits that this program renews. Any of its threads may release them.
static PERMITS: LazyLock<Shared<HashMap<String, ExpirablePermit>>> = LazyLock::new(Shared::default);

pub(super) async fn perform(client: &Client, call: &Call) -> Outcome {
    let mut semaphore = client.expirable_semaphore(name(call));
    if let Some(time) = millis(call.expire_after) {
        semaphore = semaphore.expire_after(time);
    }
    match call.op.as_str() {
        "set_permits" => {
            let set = semaphore.try_set_permits(call.count.unwrap_or(1));
            Ok(json!(set.await.map_err(text)?))
        }
        "acquire" => {
            let mut acquire = semaphore.acquire();
            if let Some(wait) = millis(call.wait) {
                acquire = acquire.wait(wait);
            }
            if let Some(lease) = millis(call.lease) {
                acquire = acquire.lease(lease);
            }
            let Some(permit) = unless_busy(acquire.await)? else {
                return Ok(Value::Null);
            };
            Ok(json!(keep(permit)))
        }
        "attach" => {
            let permit = detached::attach::<ExpirablePermit>(client, call).await?;
            Ok(json!(permit.map(keep)))
        }
        "detach" => {
            let id = call.permit.as_deref().ok_or("no permit")?;
            let own = PERMITS.lock().remove(id);
            let detached = own.ok_or("no permit of this program")?.detach();
            Ok(json!(detached.map_err(text)?.to_string()))
        }
        "release_detached" => detached::release::<ExpirablePermit>(client, call).await,
        "release" => {
            let id = call.permit.as_deref().ok_or("no permit")?;
            let own = PERMITS.lock().remove(id);
            match own {
                Some(permit) => permit.release().await.map_err(text)?,
                None => semaphore.release(id_of(id)?).await.map_err(text)?,
            }
            Ok(json!(true))
        }
        "update_lease" => {
            let id = id_of(call.permit.as_deref().ok_or("no permit")?)?;
            let lease = millis(call.lease).ok_or("no lease")?;
            semaphore.update_lease(id, lease).await.map_err(text)?;
            Ok(json!(true))
        }
        "available" => Ok(json!(semaphore.available_permits().await.map_err(text)?)),
        _ => unknown(call),
    }
}

/// The program has this permit from now on.
fn keep(permit: ExpirablePermit) -> Grant {
    let (owner, id) = (permit.owner().to_string(), permit.id().to_string());
    PERMITS.lock().insert(id.clone(), permit);
    Grant {
        owner,
        token: None,
        permit: Some(id),
    }
}

fn id_of(text: &str) -> Result<PermitId, String> {
    PermitId::from_str(text).map_err(|error| error.to_string())
}

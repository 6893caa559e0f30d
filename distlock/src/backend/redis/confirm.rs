//! Which renewal replicas have to confirm, for what each kind was granted.

use std::time::Duration;

use super::families::{lock, permit, rw, semaphore};
use super::{RedisBackend, reply, script};
use crate::backend::family::HoldFamily;
use crate::backend::{Attempt, Fault, Renewal, cause};

/// What is added to the lease that was granted. A renewal that changes nothing writes nothing, and then there is nothing to
/// confirm.
const LONGER: Duration = Duration::from_millis(1);

/// Waits until enough replicas have what these attempts were granted by one command.
pub(super) async fn confirm(backend: &RedisBackend, granted: &[Attempt]) -> Result<(), Fault> {
    let [first, ..] = granted else {
        return Ok(());
    };
    let key = &first.target.resource.key;
    let servers = &backend.servers;
    let batch: Vec<Renewal> = granted.iter().map(renewal).collect();
    let value = match first.target.hold_family()? {
        HoldFamily::Lock | HoldFamily::Fair => {
            let renewals = lock::renewals(&batch);
            servers.confirm(key, &script::LOCK_RENEW, &renewals).await
        }
        HoldFamily::ReadWrite => {
            let renewals = rw::renewals(&batch);
            servers.confirm(key, &script::RW_RENEW, &renewals).await
        }
        HoldFamily::Permit => {
            let renewals = permit::renewals(&batch);
            servers.confirm(key, &script::PERMIT_RENEW, &renewals).await
        }
        HoldFamily::Semaphore => {
            let statement = semaphore::statement(&first.target);
            servers
                .confirm(key, &script::SEMAPHORE_STATE, &statement)
                .await
        }
    };
    if reply::renewed(value?, batch.len())?.contains(&false) {
        let text = "the grant was gone when the replicas were asked for it";
        return Err(Fault::Unknown(cause(text)));
    }
    Ok(())
}

fn renewal(granted: &Attempt) -> Renewal {
    Renewal {
        target: granted.target.clone(),
        count: 1,
        lease: granted.lease + LONGER,
    }
}

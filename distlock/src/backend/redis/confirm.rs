//! How replicas confirm a grant: the client renews it by the script of its kind, and replicas confirm that write.

use std::time::Duration;

use super::families::{lock, permit, rw, semaphore};
use super::{RedisBackend, reply, script};
use crate::backend::family::HoldFamily;
use crate::backend::{Attempt, Fault, Renewal, cause};

/// Is added to the lease that was granted. Otherwise the renewal would write nothing, and replicas would have nothing to confirm.
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
            servers
                .route(key)
                .confirm(&script::LOCK_RENEW, &renewals)
                .await
        }
        HoldFamily::ReadWrite => {
            let renewals = rw::renewals(&batch);
            servers
                .route(key)
                .confirm(&script::RW_RENEW, &renewals)
                .await
        }
        HoldFamily::Permit => {
            let renewals = permit::renewals(&batch);
            servers
                .route(key)
                .confirm(&script::PERMIT_RENEW, &renewals)
                .await
        }
        HoldFamily::Semaphore => {
            let statement = semaphore::statement(&first.target);
            servers
                .route(key)
                .confirm(&script::SEMAPHORE_STATE, &statement)
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
        track: false,
    }
}

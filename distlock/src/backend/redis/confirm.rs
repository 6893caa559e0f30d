//! How replicas confirm a grant: the client renews it by the script of its kind, and replicas confirm that write.

use std::time::Duration;

use super::renewals::renewals;
use super::{RedisBackend, reply};
use crate::backend::{Attempt, Fault, Renewal, cause};

/// Is added to the lease that was granted. Otherwise the renewal would write nothing, and replicas would have nothing to confirm.
const LONGER: Duration = Duration::from_millis(1);

/// Waits until enough replicas have what these attempts were granted by one command.
pub(super) async fn confirm(backend: &RedisBackend, granted: &[Attempt]) -> Result<(), Fault> {
    let [first, ..] = granted else {
        return Ok(());
    };
    let key = &first.target.resource.key;
    let batch: Vec<Renewal> = granted.iter().map(renewal).collect();
    let (script, with) = renewals(first.target.hold_family()?, &batch);
    let value = backend.servers.route(key).confirm(script, &with).await?;
    if reply::renewed(value, batch.len())?.contains(&false) {
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

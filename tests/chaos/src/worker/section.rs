//! What a worker does while it has a hold.

use std::panic::{AssertUnwindSafe, resume_unwind};

use distlock::Client;
use distlock_tests::any_lock::LockKind;
use distlock_tests::resource::ResourceHandle;
use futures_util::FutureExt;
use tokio::time::sleep;

use super::held::Held;
use crate::branches;
use crate::history::EventKind;
use crate::planned_operation::{More, PlannedOperation, Section};
use crate::time::timestamp;

/// How many leases a branch waits for others. A process that stands still for so long has lost its hold.
const PATIENCE_IN_LEASES: u32 = 4;

/// Runs the section. Returns whether the owner was told of a loss.
pub(super) async fn section(
    client: &Client,
    resource: &mut ResourceHandle,
    hold: &Held,
    planned: &PlannedOperation,
) -> bool {
    let guard = hold.guard();
    let body = visit(client, resource, hold, planned);
    match planned.section {
        Section::Watched => tokio::select! {
            biased;
            () = guard.lost() => true,
            () = body => false,
        },
        Section::Scoped | Section::Nested => guard.scope(body).await.is_err(),
        Section::Panics => {
            let scope = guard.scope(async {
                body.await;
                // Without the panic hook, which counts unplanned panics.
                resume_unwind(Box::new("planned"))
            });
            match AssertUnwindSafe(scope).catch_unwind().await {
                Ok(ended) => ended.is_err(),
                Err(panic) if panic.is::<&str>() => false,
                Err(panic) => resume_unwind(panic),
            }
        }
    }
}

/// Reads, works and writes, as one step of the owner.
async fn visit(
    client: &Client,
    resource: &mut ResourceHandle,
    hold: &Held,
    planned: &PlannedOperation,
) {
    let (id, context) = (hold.id, &hold.context);
    if planned.lock_kind.capacity() > 1 {
        // The resource lets in one at a time.
        sleep(planned.work).await;
        return extend(hold, planned).await;
    }
    let entry = resource.enter(&planned.key).await;
    context.now(EventKind::Entered { id });
    sleep(planned.work).await;
    extend(hold, planned).await;
    if planned.section == Section::Nested {
        // The scope around it reports a loss.
        let _again = hold.guard().reenter();
        sleep(planned.work / 4).await;
        // A re-entry without a fixed lease would make the watchdog renew a hold that its lease has to end.
        if planned.lock_kind == LockKind::Multi && planned.lease.is_none() {
            let own = format!("{}:{}:{}", planned.key, id.process, id.task);
            let patience = PATIENCE_IN_LEASES * context.workload.lease;
            branches::cross(client, &planned.key, &own, patience).await;
        }
    }
    if hold.guard().is_held() {
        let accepted = resource.write(&planned.key, entry).await;
        context.now(EventKind::Wrote { id, accepted });
    }
}

/// Extends the fixed lease, and stays for some of it. Without an answer, the present lease goes on.
async fn extend(hold: &Held, planned: &PlannedOperation) {
    let Some(More::Extend(lease)) = planned.more else {
        return;
    };
    let (id, context, guard) = (hold.id, &hold.context, hold.guard());
    let (asked, before) = (context.time.now(), context.deadline(guard));
    if guard.extend(lease).await.is_ok() {
        context.now(EventKind::Extended {
            id,
            asked,
            lease: timestamp(lease),
            before,
            deadline: context.deadline(guard),
        });
        sleep(lease / 2).await;
    }
}

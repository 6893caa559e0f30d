//! Semaphores whose permits have an id and a lease.

use distlock_interop::{Call, Kind, Side};

use crate::case::{Case, cases};
use crate::stage::{Stage, assert_by_message, assert_soon};
use crate::table::Row;

async fn no_more_permits_than_set_and_release_wakes_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    assert!(holder.count::<bool>("set_permits", &lock, 2).await);
    let permit = holder.take(&lock).await.permit.unwrap();
    let other = waiter.take(&lock).await.permit.unwrap();
    assert!(
        holder.try_take(&lock).await.is_none(),
        "a third permit of two"
    );
    assert!(
        waiter.try_take(&lock).await.is_none(),
        "a third permit of two"
    );
    let second = stage.waiter("w2").await;
    let waiting = second.acquire(&lock, None);
    stage.until_asleep(&second, &lock).await;
    let released = holder.give_back(&lock, Some(permit)).timed::<bool>().await;
    let granted = waiting.granted().await;
    assert_by_message("the wake-up", released.began, granted.ended);
    for permit in [other, granted.value.permit.unwrap()] {
        assert!(waiter.give_back(&lock, Some(permit)).value::<bool>().await);
    }
    assert_eq!(holder.ask::<i64>("available", &lock).await, 2);
}

async fn end_of_a_lease_returns_the_permit_and_not_before(stage: Stage) {
    const LEASE: u64 = 1_500;
    let (lock, holder, waiter) = stage.parts().await;
    assert!(holder.count::<bool>("set_permits", &lock, 1).await);
    let acquire = Call::new("acquire", lock.0, &lock.1).wait(0).lease(LEASE);
    let held = holder.call(acquire).granted().await;
    let granted = waiter.acquire(&lock, None).granted().await;
    let ends = held.began + LEASE * 1_000_000;
    assert!(
        granted.ended + 5_000_000 >= ends,
        "granted within the lease"
    );
    assert_soon("the grant", ends, granted.ended);
}

/// The id is another text before Redisson 3.17: then nothing is released, on either side.
async fn permit_is_released_by_the_other_side(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    assert!(holder.count::<bool>("set_permits", &lock, 1).await);
    let acquire = Call::new("acquire", lock.0, &lock.1).wait(0).lease(25_000);
    let permit = holder.call(acquire).granted().await.value.permit.unwrap();
    let released = waiter.give_back(&lock, Some(permit)).answer().await;
    let is_old = [stage.holder, stage.waiter].contains(&Side::Java(Side::versions()[1]));
    let (is_released, left) = match released {
        Ok(answer) => (answer.value == true, 1),
        Err(_) => (false, 0),
    };
    assert_eq!(is_released, !is_old);
    let left = if is_old { 0 } else { left };
    assert_eq!(waiter.ask::<i64>("available", &lock).await, left);
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::Permit, Kind::Permit;
        no_more_permits_than_set_and_release_wakes_waiter,
        end_of_a_lease_returns_the_permit_and_not_before,
        permit_is_released_by_the_other_side,
    ]
}

//! Semaphores whose permits have no lease.

use distlock_interop::{Call, Kind};

use super::locks::hundred_hand_overs;
use crate::case::{Case, cases};
use crate::stage::{Stage, assert_by_message};
use crate::table::Row;

async fn no_more_permits_than_set_and_release_wakes_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    assert!(holder.count::<bool>("set_permits", &lock, 2).await);
    assert!(
        !waiter.count::<bool>("set_permits", &lock, 9).await,
        "set twice"
    );
    holder.take(&lock).await;
    waiter.take(&lock).await;
    assert!(
        holder.try_take(&lock).await.is_none(),
        "a third permit of two"
    );
    assert!(
        waiter.try_take(&lock).await.is_none(),
        "a third permit of two"
    );
    let second = stage.waiter("w2").await;
    stage
        .release_wakes((&holder, &lock), (&second, &lock))
        .await;
    assert_eq!(waiter.ask::<i64>("available", &lock).await, 0);
    waiter.release(&lock).value::<bool>().await;
    second.release(&lock).value::<bool>().await;
    assert_eq!(holder.ask::<i64>("available", &lock).await, 2);
}

async fn added_permits_wake_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    assert!(waiter.count::<bool>("set_permits", &lock, 1).await);
    holder.take(&lock).await;
    let waiting = waiter.acquire(&lock, None);
    stage.until_asleep(&waiter, &lock).await;
    let add = Call::new("add_permits", lock.0, &lock.1).count(2);
    let added = holder.call(add).timed::<bool>().await;
    assert!(added.value);
    let granted = waiting.granted().await;
    assert_by_message("the wake-up", added.began, granted.ended);
    assert_eq!(holder.ask::<i64>("available", &lock).await, 1);
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = cases![Row::Semaphore, Kind::Semaphore;
        no_more_permits_than_set_and_release_wakes_waiter,
        added_permits_wake_waiter,
    ];
    let case = Case::new(
        Row::Semaphore,
        Kind::Semaphore,
        "hundred_hand_overs",
        hundred_hand_overs,
    );
    cases.push(case.symmetrical());
    cases
}

//! Multi-locks of three members.

use distlock_interop::{Call, Kind};

use crate::case::{Case, cases};
use crate::stage::Stage;
use crate::table::Row;

async fn held_members_are_refused_and_release_wakes_waiter(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    holder.take(&lock).await;
    assert!(waiter.try_take(&lock).await.is_none(), "held twice");
    for name in &lock.1 {
        let member = (Kind::Reentrant, vec![name.clone()]);
        assert!(
            waiter.try_take(&member).await.is_none(),
            "{name} is held twice"
        );
    }
    stage
        .release_wakes((&holder, &lock), (&waiter, &lock))
        .await;
    waiter.release(&lock).value::<bool>().await;
}

async fn refused_for_one_member_holds_none(stage: Stage) {
    let (lock, holder, waiter) = stage.parts().await;
    let members = lock
        .1
        .iter()
        .map(|name| (Kind::Reentrant, vec![name.clone()]));
    let members: Vec<_> = members.collect();
    holder.take(&members[1]).await;
    assert!(
        waiter.try_take(&lock).await.is_none(),
        "granted beside a holder"
    );
    assert!(
        waiter.acquire(&lock, Some(500)).grant().await.is_none(),
        "granted beside a holder"
    );
    for member in [&members[0], &members[2]] {
        holder.take(member).await;
        holder.release(member).value::<bool>().await;
    }
    holder.release(&members[1]).value::<bool>().await;
    waiter.take(&lock).await;
    waiter.release(&lock).value::<bool>().await;
}

async fn opposite_orders_make_no_deadlock(stage: Stage) {
    #[derive(serde::Deserialize)]
    struct Hammered {
        grants: u64,
    }
    let lock = stage.lock();
    let mut reversed = lock.clone();
    reversed.1.reverse();
    let hammer = |lock: &(Kind, Vec<String>)| {
        let mut call = Call::new("hammer", lock.0, &lock.1);
        (call.hold, call.time) = (Some(1), Some(4_000));
        call
    };
    let pending = [
        stage.holder("h").await.call(hammer(&lock)),
        stage.waiter("w").await.call(hammer(&reversed)),
    ];
    for pending in pending {
        let Hammered { grants } = pending.value().await;
        assert!(grants > 0, "one side was never granted it");
    }
    for name in &lock.1 {
        stage.until_gone(name).await;
    }
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::Multi, Kind::Multi;
        held_members_are_refused_and_release_wakes_waiter,
        refused_for_one_member_holds_none,
        opposite_orders_make_no_deadlock,
    ]
}

//! Count-down latches.

use distlock_interop::{Call, Kind};

use crate::case::{Case, cases};
use crate::stage::{Stage, assert_by_message};
use crate::table::Row;

async fn set_by_one_and_counted_down_by_the_other_lets_both_go(stage: Stage) {
    let (latch, holder, waiter) = stage.parts().await;
    for round in 0..2 {
        let setter = if round == 0 { &holder } else { &waiter };
        assert!(setter.count::<bool>("set_count", &latch, 2).await);
        assert!(
            !holder.count::<bool>("set_count", &latch, 3).await,
            "set twice"
        );
        assert_eq!(waiter.ask::<u64>("count", &latch).await, 2);
        let both = [stage.holder("a").await, stage.waiter("a").await];
        let waiting =
            [0, 1].map(|side: usize| both[side].call(Call::new("await", latch.0, &latch.1)));
        for side in &both {
            stage.until_asleep(side, &latch).await;
        }
        assert!(holder.ask::<bool>("count_down", &latch).await);
        assert!(
            waiting.iter().all(|pending| !pending.is_answered()),
            "open at 1"
        );
        let counted = waiter.call(Call::new("count_down", latch.0, &latch.1));
        let counted = counted.timed::<bool>().await;
        for pending in waiting {
            let opened = pending.timed::<bool>().await;
            assert!(opened.value);
            assert_by_message("the wake-up", counted.began, opened.ended);
        }
        assert_eq!(holder.ask::<u64>("count", &latch).await, 0);
    }
}

async fn wait_that_is_over_leaves_the_latch(stage: Stage) {
    let (latch, holder, waiter) = stage.parts().await;
    assert!(holder.count::<bool>("set_count", &latch, 1).await);
    let wait = Call::new("await", latch.0, &latch.1).wait(300);
    assert!(!waiter.call(wait).value::<bool>().await, "open at 1");
    assert!(holder.ask::<bool>("count_down", &latch).await);
    assert!(waiter.ask::<bool>("await", &latch).await);
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::Latch, Kind::Latch;
        set_by_one_and_counted_down_by_the_other_lets_both_go,
        wait_that_is_over_leaves_the_latch,
    ]
}

//! The tokens of fenced locks.

use distlock_interop::Kind;

use crate::case::{Case, cases};
use crate::stage::Stage;
use crate::table::Row;

async fn tokens_grow_over_both_sides_also_after_the_key_was_lost(stage: Stage) {
    let lock = stage.lock();
    let sides = [stage.holder("a").await, stage.waiter("b").await];
    let mut last = 0;
    for turn in 0..12 {
        let side = &sides[turn % 2];
        let token = side.take(&lock).await.token.expect("a token");
        assert!(token > last, "the token {token} after {last}");
        last = token;
        if turn % 5 == 4 {
            stage.server.cli(&["DEL", &stage.name]).await;
            // The one whose hold is gone may be told so.
            let _lost = side.release(&lock).answer().await;
        } else {
            side.release(&lock).value::<bool>().await;
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    cases![Row::Fenced, Kind::Fenced; tokens_grow_over_both_sides_also_after_the_key_was_lost]
}

use std::iter;
use std::sync::Arc;

use super::frames::{EnclosingScope, Frames, frames, outwards, within};
use crate::Client;

#[tokio::test]
async fn section_on_many_keys_is_one_link_of_the_chain_and_shares_its_guards_view() {
    let client = Client::in_memory();
    let keys = ["a", "b", "c"];
    let guard = client.multi_lock(keys).acquire().await.unwrap();
    let mut outer = guard.section();
    let mut inner = guard.section();
    let around = outer.enter(|| inner.enter(frames));
    assert_eq!(outwards(&around).count(), 2);
    let innermost = around.as_ref().unwrap().view.members();
    assert_eq!(innermost.len(), keys.len());
    assert!(std::ptr::eq(&*innermost, &*inner.view.members()));
}

/// How many scopes are kept for a piece of code, open or closed.
fn kept(frames: &Frames) -> usize {
    let parent = |scope: &Arc<EnclosingScope>| scope.parent.lock().clone();
    iter::successors(frames.clone(), parent).count()
}

#[tokio::test]
async fn closed_scopes_are_let_go_however_long_the_chain() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    // Each begins inside the last one, which ends before the next begins, or after.
    for overlaps in [false, true] {
        let mut last = guard.section();
        for _ in 0..1_000 {
            let inside = last.enter(frames);
            let mut next = guard.section();
            if overlaps {
                within(&inside, || next.enter(|| ()));
            }
            drop(last);
            within(&inside, || next.enter(|| ()));
            last = next;
            assert!(kept(&last.enter(frames)) <= 2);
        }
    }
}

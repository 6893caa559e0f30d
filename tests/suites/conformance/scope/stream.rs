//! A stream that holds a lock: until its last item, its loss or its drop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use distlock::{Client, Error, Loss};
use distlock_tests::faults::{Fault, Op};
use futures_util::Stream as _;
use futures_util::stream::{self, FusedStream as _, StreamExt as _};

use crate::conformance::stage::Stage;

const KEY: &str = "report";

async fn is_locked(client: &Client) -> bool {
    client.lock(KEY).is_locked().await.unwrap()
}

fn assert_lost(error: &Error, expected: Loss, completed: bool) {
    let Error::Lost { reason, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((*reason, error.body_completed()), (expected, completed));
}

async fn hold_lasts_until_the_end_is_told(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let mut rows = guard.hold_stream(stream::iter([1, 2]));
    for row in [1, 2] {
        assert_eq!(rows.next().await.unwrap().unwrap(), row);
        assert!(is_locked(&other).await && !rows.is_terminated());
    }
    assert!(rows.next().await.is_none());
    assert!(!is_locked(&other).await && rows.is_terminated());
    assert!(rows.next().await.is_none());
}

async fn hold_is_renewed_between_items(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    let slow = stream::iter(0..3).then(async |row| {
        tokio::time::sleep(stage.lease()).await;
        row
    });
    let rows: Vec<_> = guard.hold_stream(slow).map(Result::unwrap).collect().await;
    assert_eq!(rows, [0, 1, 2]);
    stage.is_free(KEY).await;
}

async fn items_are_made_inside_the_hold(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let again = stream::iter(0..2).then(async |_| lock.try_acquire().await.unwrap().is_some());
    let entered: Vec<_> = guard.hold_stream(again).map(Result::unwrap).collect().await;
    assert_eq!(entered, [true, true]);
}

async fn dropped_stream_is_dropped_inside_and_then_released(stage: &Stage) {
    struct Asks(tokio::sync::mpsc::UnboundedSender<bool>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.send(distlock::is_held(KEY)).unwrap();
        }
    }

    let client = stage.lasting_client().await;
    let (asks, mut said) = tokio::sync::mpsc::unbounded_channel();
    let guard = client.lock(KEY).acquire().await.unwrap();
    let asks = Asks(asks);
    let mut rows = guard.hold_stream(stream::repeat(()).inspect(move |()| {
        let _captured = &asks;
    }));
    rows.next().await.unwrap().unwrap();
    assert!(!distlock::is_held(KEY));
    drop(rows);
    assert_eq!(said.recv().await, Some(true));
    // Sooner than the lease would end.
    stage.is_free_within(stage.part(10), KEY).await;
}

async fn loss_is_the_last_item(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().max_hold(stage.part(2)).await;
    let endless = stream::once(async { 1 }).chain(stream::pending());
    let rows: Vec<_> = guard.unwrap().hold_stream(endless).collect().await;
    let [Ok(1), Err(lost)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_lost(lost, Loss::HeldTooLong, false);
    stage.is_free(KEY).await;
}

async fn no_item_is_made_after_the_loss(stage: &Stage) {
    let client = stage.client().await;
    let lease = stage.part(2);
    let guard = client.lock(KEY).acquire().lease(lease).await.unwrap();
    let lost = guard.lost();
    let made = AtomicUsize::new(0);
    let mut rows = pin!(guard.hold_stream(stream::poll_fn(|_| {
        made.fetch_add(1, Relaxed);
        Poll::Ready(Some(()))
    })));
    rows.next().await.unwrap().unwrap();
    lost.await;
    assert_lost(
        &rows.next().await.unwrap().unwrap_err(),
        Loss::Expired,
        false,
    );
    assert!(rows.next().await.is_none());
    assert_eq!(made.load(Relaxed), 1);
}

async fn loss_that_the_release_finds_is_told_after_all_items(stage: &Stage) {
    let (client, thief) = (stage.client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let mut rows = guard.hold_stream(stream::iter([1]));
    assert_eq!(rows.next().await.unwrap().unwrap(), 1);
    assert!(thief.lock(KEY).force_release().await.unwrap());
    let lost = rows.next().await.unwrap().unwrap_err();
    assert!(lost.is_lost() && lost.body_completed(), "{lost}");
    assert!(rows.next().await.is_none());
}

async fn release_that_nobody_answers_is_no_item(stage: &Stage) {
    let client = stage.faulty_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    stage.faults().always(Op::Release, Fault::Never);
    let rows: Vec<_> = guard.hold_stream(stream::iter([1])).collect().await;
    assert!(matches!(rows.as_slice(), [Ok(1)]), "{rows:?}");
    stage.faults().clear(Op::Release);
    stage.is_free_within(stage.lease(), KEY).await;
}

async fn it_says_how_much_may_come(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    let mut rows = guard.hold_stream(stream::iter(0..3));
    assert_eq!(rows.size_hint(), (1, Some(4)));
    let _row = rows.next().await.unwrap().unwrap();
    assert_eq!(rows.size_hint(), (1, Some(3)));
    assert_eq!(rows.by_ref().count().await, 2);
    assert_eq!(rows.size_hint(), (0, Some(0)));

    let guard = client.lock(KEY).acquire().await.unwrap();
    let mut rows = guard.hold_stream(stream::empty::<()>());
    assert_eq!(rows.size_hint(), (0, Some(1)));
    let first = poll_fn(|cx| Poll::Ready(rows.poll_next_unpin(cx))).await;
    // The end of the items is known; a server's answer to the release is not, and may be a loss.
    let left = if stage.is_paused() { 0 } else { 1 };
    assert_eq!(first.is_pending(), left == 1);
    assert_eq!(rows.size_hint(), (0, Some(left)));
    assert!(rows.next().await.is_none());
}

async fn fenced_guards_and_permits_can_do_it_too(stage: &Stage) {
    let client = stage.client().await;
    let fenced = client.fenced_lock(KEY);
    let guard = fenced.acquire().await.unwrap();
    let mut rows = guard.hold_stream(stream::iter([1]));
    assert_eq!(rows.next().await.unwrap().unwrap(), 1);
    assert!(fenced.is_locked().await.unwrap());
    assert!(rows.next().await.is_none());
    assert!(!fenced.is_locked().await.unwrap());
    stage.lose_token(KEY).await;

    let seats = client.expirable_semaphore("seats");
    seats.try_set_permits(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    let mut rows = permit.hold_stream(stream::iter([1]));
    assert_eq!(rows.next().await.unwrap().unwrap(), 1);
    assert_eq!(seats.available_permits().await.unwrap(), 0);
    assert!(rows.next().await.is_none());
    assert_eq!(seats.available_permits().await.unwrap(), 1);
    seats.delete().await.unwrap();
}

on_every_backend! {
    hold_lasts_until_the_end_is_told,
    hold_is_renewed_between_items,
    items_are_made_inside_the_hold,
    dropped_stream_is_dropped_inside_and_then_released,
    loss_is_the_last_item,
    no_item_is_made_after_the_loss,
    loss_that_the_release_finds_is_told_after_all_items,
    release_that_nobody_answers_is_no_item,
    it_says_how_much_may_come,
    fenced_guards_and_permits_can_do_it_too,
}

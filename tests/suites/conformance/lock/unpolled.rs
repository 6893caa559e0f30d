//! A waiter that exists and is not polled, such as a future beside a `select!` loop: it blocks others only for a short time.

use std::pin::Pin;
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, Guard};
use distlock_tests::faults::{Fault, Op};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::Stage;

const KEY: &str = "order:42";

/// How long the others may have to wait for such a waiter: two looks at the queue.
const BOUND: Duration = Duration::from_secs(2);

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// An acquisition that was polled until it stood in its place, and is left alone from then on.
async fn left_alone(stage: &Stage, client: &Client, place: usize) -> Waiting {
    let mut waiting: Waiting = Box::pin(client.lock(KEY).acquire().into_future());
    let in_line = async || {
        assert!(waiting.as_mut().now_or_never().is_none());
        sizes(client).waiters == place
    };
    stage.eventually("in line", stage.lease(), in_line).await;
    waiting
}

fn spawned(client: &Client) -> JoinHandle<Guard> {
    let acquiring = client.lock(KEY).acquire().into_future();
    tokio::spawn(async { acquiring.await.unwrap() })
}

async fn granted(stage: &Stage, waiter: JoinHandle<Guard>) -> Guard {
    let granted = timeout(BOUND + stage.slack(), waiter).await;
    granted.expect("an unpolled waiter is in the way").unwrap()
}

async fn unpolled_waiter_with_a_hold_in_its_slot_lets_the_next_one_go_first(stage: &Stage) {
    let client = stage.client().await;
    let first = client.lock(KEY).acquire().await.unwrap();
    let mut unpolled = left_alone(stage, &client, 1).await;
    let next = spawned(&client);
    stage.waiting(&client, 2).await;
    first.release().await.unwrap();
    let next = granted(stage, next).await;
    assert!(unpolled.as_mut().now_or_never().is_none());
    // It has found a new place, behind one that came later.
    let last = spawned(&client);
    stage.waiting(&client, 2).await;
    next.release().await.unwrap();
    unpolled.await.unwrap().release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
}

async fn unpolled_waiter_behind_another_process_lets_the_next_one_go_first(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let held = other.lock(KEY).acquire().await.unwrap();
    // On a cluster it now has a connection for the key, so an attempt is answered before the waiter is left alone.
    assert!(client.lock(KEY).is_locked().await.unwrap());
    let unpolled = left_alone(stage, &client, 1).await;
    let next = spawned(&client);
    stage.waiting(&client, 2).await;
    held.release().await.unwrap();
    let next = granted(stage, next).await;
    next.release().await.unwrap();
    unpolled.await.unwrap().release().await.unwrap();
}

async fn unpolled_waiter_with_nobody_behind_it_does_not_keep_the_hold_from_other_processes(
    stage: &Stage,
) {
    let (client, other) = (stage.client().await, stage.client().await);
    let first = client.lock(KEY).acquire().await.unwrap();
    let unpolled = left_alone(stage, &client, 1).await;
    first.release().await.unwrap();
    let waiter = spawned(&other);
    granted(stage, waiter).await.release().await.unwrap();
    unpolled.await.unwrap().release().await.unwrap();
}

async fn unpolled_waiters_lose_their_places_one_after_the_other(stage: &Stage) {
    let client = stage.client().await;
    let first = client.lock(KEY).acquire().await.unwrap();
    let mut unpolled = Vec::new();
    for place in 1..=3 {
        unpolled.push(left_alone(stage, &client, place).await);
    }
    let next = spawned(&client);
    stage.waiting(&client, 4).await;
    first.release().await.unwrap();
    let next = timeout(4 * BOUND + stage.slack(), next).await;
    let next = next.expect("unpolled waiters are in the way").unwrap();
    next.release().await.unwrap();
    drop(unpolled);
}

async fn waiter_that_is_polled_keeps_its_place_however_long_it_waits(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    // Behind a holder of the same client, and of another one.
    for holder in [&client, &other] {
        let held = holder.lock(KEY).acquire().await.unwrap();
        let mut first = spawned(&client);
        stage.waiting(&client, 1).await;
        let second = spawned(&client);
        stage.waiting(&client, 2).await;
        let start = Instant::now();
        while start.elapsed() < stage.size(2 * BOUND, 20 * BOUND) {
            assert!((&mut first).now_or_never().is_none());
            sleep(stage.part(10)).await;
        }
        held.release().await.unwrap();
        let first = granted(stage, first).await;
        assert!(!second.is_finished());
        first.release().await.unwrap();
        granted(stage, second).await.release().await.unwrap();
    }
}

/// As in an outage: the holder belongs to the same client, and the server does not answer for a while.
async fn waiter_whose_attempt_behind_its_own_holder_takes_long_keeps_its_place(stage: &Stage) {
    let patience = 4 * BOUND;
    let client = stage.patient_client(patience).await;
    let held = client.lock(KEY).acquire().await.unwrap();
    stage
        .faults()
        .next(Op::Attempt, Fault::DelayReply(2 * BOUND));
    let first = spawned(&client);
    stage.waiting(&client, 1).await;
    let second = spawned(&client);
    stage.waiting(&client, 2).await;
    stage
        .eventually("the slow attempt", BOUND, async || {
            stage.faults().hits(Op::Attempt) == 1
        })
        .await;
    sleep(2 * BOUND + stage.part(10)).await;
    held.release().await.unwrap();
    let first = granted(stage, first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    granted(stage, second).await.release().await.unwrap();
}

on_every_backend![
    unpolled_waiter_with_a_hold_in_its_slot_lets_the_next_one_go_first,
    unpolled_waiter_behind_another_process_lets_the_next_one_go_first,
    unpolled_waiter_with_nobody_behind_it_does_not_keep_the_hold_from_other_processes,
    unpolled_waiters_lose_their_places_one_after_the_other,
    waiter_that_is_polled_keeps_its_place_however_long_it_waits,
    waiter_whose_attempt_behind_its_own_holder_takes_long_keeps_its_place,
];

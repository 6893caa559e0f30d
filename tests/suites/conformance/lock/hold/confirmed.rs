//! What the server may have lost is found soon after a hand-over, and asking for it costs little.
//!
//! In paused time alone: there the number of bodies and of questions does not depend on the machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::Error;
use distlock_tests::faults::{Fault, Op};
use distlock_tests::size;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::Stage;

const KEY: &str = "order:42";
const BODY: Duration = Duration::from_millis(1);

async fn bodies_that_follow_a_force_release_are_few(stage: &Stage) {
    const TASKS: usize = 30;
    // A hold that was just confirmed is asked for at the end of the interval, an older one with its first hand-over.
    for (age, most) in [(0, 11), (20, 2)] {
        let (client, other) = (stage.client().await, stage.client().await);
        let inside: &'static AtomicBool = Box::leak(Box::default());
        let begun_inside: &'static AtomicUsize = Box::leak(Box::default());
        let first = client.lock(KEY).acquire().await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn(client.lock(KEY).acquire().run(async {
                if inside.load(Ordering::Relaxed) {
                    begun_inside.fetch_add(1, Ordering::Relaxed);
                }
                sleep(BODY).await;
            }));
        }
        stage.waiting(&client, TASKS).await;
        sleep(BODY * age).await;
        assert!(other.lock(KEY).force_release().await.unwrap());
        let guard = other.lock(KEY).try_acquire().await.unwrap().unwrap();
        inside.store(true, Ordering::Relaxed);
        first.release().await.unwrap();
        sleep(stage.part(100)).await;
        let begun = begun_inside.load(Ordering::Relaxed);
        assert!((1..=most).contains(&begun), "{begun} bodies began");
        inside.store(false, Ordering::Relaxed);
        guard.release().await.unwrap();
        let mut lost = 0;
        while let Some(ended) = tasks.join_next().await {
            match ended.unwrap() {
                Ok(()) => {}
                Err(Error::Lost { .. }) => lost += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(lost, 1, "the one that was inside when the loss was found");
    }
}

async fn key_that_is_handed_over_all_the_time_is_asked_for_a_hundred_times_a_second(stage: &Stage) {
    let seconds = size(3, 10);
    let client = stage.faulty_client().await;
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = client.lock(KEY);
        tasks.spawn(async move {
            while Instant::now() < until {
                lock.acquire().run(sleep(BODY)).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let asked = stage.faults().calls(Op::Renew);
    let most = seconds as usize * 100;
    assert!((most / 4..=most).contains(&asked), "asked {asked} times");
}

/// Without an answer to the renewals, the client does not know that the first hold is lost.
async fn hold_beside_one_that_the_server_granted_later_is_not_handed_over(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let first = client.lock(KEY).acquire().await.unwrap();
    let second = tokio::spawn(client.lock(KEY).acquire().into_future());
    // It no longer relies on the holder of the same client, and listens.
    sleep(stage.part(10)).await;
    stage.faults().always(Op::Renew, Fault::FailBefore);
    assert!(other.lock(KEY).force_release().await.unwrap());
    let second = second.await.unwrap().unwrap();
    let third = tokio::spawn(client.lock(KEY).acquire().into_future());
    stage.waiting(&client, 1).await;
    assert!(first.is_held() && second.is_held());
    assert!(first.release().await.unwrap_err().is_lost());
    sleep(stage.part(10)).await;
    assert!(!third.is_finished(), "two are inside");
    stage.faults().clear(Op::Renew);
    second.release().await.unwrap();
    third.await.unwrap().unwrap().release().await.unwrap();
}

on_memory![
    hold_beside_one_that_the_server_granted_later_is_not_handed_over,
    bodies_that_follow_a_force_release_are_few,
    key_that_is_handed_over_all_the_time_is_asked_for_a_hundred_times_a_second,
];

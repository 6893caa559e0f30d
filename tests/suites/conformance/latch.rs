//! What a count-down latch promises: all waiters are let go at 0, also late ones, and each count counts once.

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Blocker, Client, CountDownLatch, Error};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, drop_after, is_done_within, refused};

const KEY: &str = "jobs";

async fn latch(client: &Client, count: u32) -> CountDownLatch {
    let latch = client.count_down_latch(KEY);
    assert!(latch.try_set_count(count).await.unwrap());
    latch
}

fn waits(client: &Client) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(client.count_down_latch(KEY).wait().into_future())
}

async fn count_is_set_once_counted_down_and_set_again(stage: &Stage) {
    let client = stage.client().await;
    let latch = client.count_down_latch(KEY);
    for _ in 0..2 {
        assert_eq!(latch.count().await.unwrap(), 0);
        assert_eq!(latch.count_down().await.unwrap(), 0);
        assert_eq!(latch.count().await.unwrap(), 0);
        assert!(latch.try_set_count(2).await.unwrap());
        assert!(!latch.try_set_count(7).await.unwrap());
        assert_eq!(latch.count_down().await.unwrap(), 1);
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
    assert!(!latch.delete().await.unwrap());
}

async fn nobody_waits_for_a_latch_that_is_not_there(stage: &Stage) {
    let client = stage.client().await;
    let start = Instant::now();
    client.count_down_latch(KEY).wait().await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    // Also without time to wait, and if it was at 0 before.
    let latch = latch(&client, 1).await;
    latch.count_down().await.unwrap();
    latch.wait().timeout(Duration::ZERO).await.unwrap();
    assert_eq!(sizes(&client), Sizes::default());
}

async fn all_waiters_are_let_go_at_0_and_not_before(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let latch = latch(&one, 3).await;
    let mut waiting: Vec<_> = (0..100)
        .map(|n| waits(if n % 2 == 0 { &one } else { &two }))
        .collect();
    for left in [2, 1] {
        sleep(stage.part(100)).await;
        assert_eq!(latch.count_down().await.unwrap(), left);
    }
    sleep(stage.part(100)).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert!(stage.listened_channels().await <= 1, "more than one share");
    let start = Instant::now();
    latch.count_down().await.unwrap();
    for waiting in &mut waiting {
        waiting.await.unwrap().unwrap();
    }
    stage.assert_took(start, Duration::ZERO);
}

/// The count reaches 0 at every point of the waiter's way into its sleep.
async fn waiter_that_comes_while_the_count_ends_does_not_hang(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    for n in 0..stage.rounds(200) {
        let latch = latch(&one, 1).await;
        let waiting = waits(&two);
        for _ in 0..n % 10 {
            tokio::task::yield_now().await;
        }
        latch.count_down().await.unwrap();
        let start = Instant::now();
        waiting.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
    }
}

async fn deleted_latch_lets_its_waiters_go(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let latch = latch(&one, 3).await;
    let waiting = waits(&two);
    sleep(stage.part(20)).await;
    let start = Instant::now();
    assert!(latch.delete().await.unwrap());
    waiting.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
}

async fn change_that_meets_a_fault_counts_once(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let latch = client.count_down_latch(KEY);
    for fault in stage.survivable_faults() {
        let next = || stage.faults().next(Op::Adjust, fault);
        next();
        assert!(latch.try_set_count(3).await.unwrap(), "{fault:?}");
        next();
        assert_eq!(latch.count_down().await.unwrap(), 2, "{fault:?}");
        sleep(stage.part(20)).await;
        let seen = other.count_down_latch(KEY).count().await.unwrap();
        assert_eq!(seen, 2, "{fault:?}");
        next();
        latch.count_down().await.unwrap();
        next();
        assert_eq!(latch.count_down().await.unwrap(), 0, "{fault:?}");
        sleep(stage.part(20)).await;
    }
}

/// The answer to the last count is lost, and the latch is set again before it is counted again.
async fn count_sent_again_leaves_the_next_latch_alone(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for fault in [Fault::FailAfter, Fault::Late(stage.part(10))] {
        let first = latch(&client, 1).await;
        stage.faults().next(Op::Adjust, fault);
        stage
            .faults()
            .next(Op::Adjust, Fault::Delay(stage.part(10)));
        let counting = tokio::spawn(async move { first.count_down().await });
        let again = other.count_down_latch(KEY);
        stage
            .eventually("the next latch", stage.lease(), async || {
                again.try_set_count(5).await.unwrap()
            })
            .await;
        counting.await.unwrap().unwrap();
        sleep(stage.part(5)).await;
        assert_eq!(again.count().await.unwrap(), 5, "{fault:?}");
        again.delete().await.unwrap();
    }
}

async fn wait_times_out_and_says_what_is_left(stage: &Stage) {
    let client = stage.client().await;
    let latch = latch(&client, 2).await;
    for wait in [stage.part(10), Duration::ZERO] {
        let start = Instant::now();
        let error = refused(latch.wait().timeout(wait).await);
        stage.assert_took(start, wait);
        assert!(
            matches!(&error, Error::Timeout { key, blocker: Blocker::Count(2), .. } if key == KEY),
            "{error}"
        );
        assert!(error.is_busy());
    }
    let client = stage
        .client_with(|builder| builder.default_wait(stage.part(10)))
        .await;
    let start = Instant::now();
    assert!(refused(client.count_down_latch(KEY).wait().await).is_busy());
    stage.assert_took(start, stage.part(10));
    latch.delete().await.unwrap();
}

async fn wait_whose_last_read_was_answered_ends_with_the_count(stage: &Stage) {
    let client = stage.faulty_client().await;
    let latch = latch(&client, 2).await;
    // The second read, when messages arrive, is the last one.
    stage.faults().pass(Op::Adjust);
    stage.faults().next(Op::Adjust, Fault::FailBefore);
    let error = refused(latch.wait().timeout(stage.part(5)).await);
    let counts = matches!(
        &error,
        Error::Timeout {
            blocker: Blocker::Count(2),
            ..
        }
    );
    assert!(counts, "{error}");
    assert_eq!(stage.faults().hits(Op::Adjust), 1);
    latch.delete().await.unwrap();
}

async fn wait_that_nobody_answers_is_unavailable(stage: &Stage) {
    let client = stage.faulty_client().await;
    let latch = latch(&client, 1).await;
    for fault in [Fault::FailBefore, Fault::Never] {
        stage.faults().always(Op::Adjust, fault);
        let start = Instant::now();
        assert!(refused(latch.wait().await).is_unavailable());
        stage.assert_took(start, stage.unavailable_after());
        let start = Instant::now();
        let wait = stage.part(10);
        assert!(refused(latch.wait().timeout(wait).await).is_unavailable());
        stage.assert_took(start, wait);
        stage.faults().clear(Op::Adjust);
    }
    latch.delete().await.unwrap();
}

/// The first read is under way when the wait ends: a slow answer, or an outage.
async fn wait_that_ends_during_the_first_read_tells_a_slow_answer_from_an_outage(stage: &Stage) {
    let ms = Duration::from_millis;
    let client = stage
        .client_with(|builder| builder.faults(stage.faults()).watchdog_timeout(ms(30_000)))
        .await;
    let latch = latch(&client, 1).await;
    // In real time a stall may make a short wait long.
    let waits = if stage.is_paused() {
        vec![(ms(100), false), (ms(499), false), (ms(500), true)]
    } else {
        vec![(ms(1_000), true)]
    };
    for (wait, is_outage) in waits {
        stage.faults().next(Op::Adjust, Fault::Never);
        let error = refused(latch.wait().timeout(wait).await);
        let unanswered = Blocker::Unanswered;
        let is_slow = matches!(&error, Error::Timeout { blocker, .. } if *blocker == unanswered);
        assert_eq!(
            (error.is_unavailable(), is_slow),
            (is_outage, !is_outage),
            "{error}"
        );
    }
    latch.delete().await.unwrap();
}

/// Without messages, a waiter looks at its key now and then; and at once when messages come again.
async fn waiter_that_misses_the_message_looks_again(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    for heals in [true, false] {
        let latch = latch(&other, 1).await;
        let waiting = waits(&client);
        sleep(stage.part(20)).await;
        stage.faults().mute();
        latch.count_down().await.unwrap();
        let start = Instant::now();
        if heals {
            stage.faults().unmute();
        }
        let longest = Duration::from_secs(if heals { 0 } else { 5 });
        timeout(longest + stage.slack(), waiting)
            .await
            .expect("it looks again")
            .unwrap()
            .unwrap();
        assert!(start.elapsed() <= longest + stage.slack());
        stage.faults().unmute();
    }
}

/// As after a restart without the data.
async fn waiters_of_a_latch_that_is_gone_without_a_0_are_told(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.faulty_client().await);
    let latch = latch(&one, 2).await;
    let waiting = waits(&two);
    // It has looked, and once more since it listens.
    let looks = async || stage.faults().calls(Op::Adjust) >= 2;
    stage.eventually("two looks", stage.lease(), looks).await;
    sleep(stage.part(3)).await;
    stage.wipe().await;
    // It looks at its key every 5 s, and then waits for a message that may be under way.
    let longest = Duration::from_secs(7) + stage.slack();
    let error = refused(timeout(longest, waiting).await.expect("told").unwrap());
    assert!(error.to_string().contains("its number is gone"), "{error}");
    assert!(error.is_lost());
    // A new waiter finds no latch, as before.
    latch.wait().await.unwrap();
}

async fn latch_that_is_gone_is_not_taken_for_opened_when_the_wait_ends(stage: &Stage) {
    // It looks at its key some 5 s after it began, and then asks whether all messages have arrived.
    const WAIT: Duration = Duration::from_secs(6);
    let (one, two) = (stage.client().await, stage.faulty_client().await);
    let latch = latch(&one, 2).await;
    stage.faults().always(Op::Hear, Fault::Never);
    let start = Instant::now();
    let wait = two.count_down_latch(KEY).wait().timeout(WAIT);
    let waiting = tokio::spawn(wait.into_future());
    sleep(stage.part(30)).await;
    stage.wipe().await;
    let error = refused(waiting.await.unwrap());
    stage.assert_took(start, WAIT);
    assert!(error.is_busy(), "{error}");
    assert_eq!(stage.faults().calls(Op::Hear), 1);
    stage.faults().clear_all();
    latch.wait().await.unwrap();
}

async fn wait_dropped_at_any_point_leaves_nothing(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let slow = Duration::from_millis(5);
    for fault in [None, Some(Fault::DelayReply(slow)), Some(Fault::FailBefore)] {
        for polls in 0..100 {
            let latch = latch(&other, 1).await;
            if let Some(fault) = fault {
                stage.faults().next(Op::Adjust, fault);
                stage.faults().next(Op::Adjust, fault);
            }
            let end = async {
                sleep(10 * slow).await;
                latch.count_down().await.unwrap();
            };
            let waiting = drop_after(polls, latch_of(&client).wait().into_future());
            let (waited, _) = tokio::join!(waiting, end);
            stage.faults().clear(Op::Adjust);
            let idle = async || sizes(&client) == Sizes::default();
            stage.eventually("nothing left", slow, idle).await;
            if waited.is_some() {
                assert!(polls >= 2, "it never waited");
                break;
            }
            assert!(polls < 99, "not done after 100 polls");
        }
    }
}

fn latch_of(client: &Client) -> CountDownLatch {
    client.count_down_latch(KEY)
}

async fn changes_dropped_at_any_point_count_once_or_not_at_all(stage: &Stage) {
    let client = stage.faulty_client().await;
    let slow = Duration::from_millis(5);
    for fault in [Fault::DelayReply(slow), Fault::FailAfter, Fault::FailBefore] {
        for polls in 0..100 {
            let latch = latch(&client, 2).await;
            stage.faults().next(Op::Adjust, fault);
            let done = drop_after(polls, latch.count_down()).await.is_some();
            stage.faults().clear(Op::Adjust);
            sleep(2 * slow).await;
            let left = latch.count().await.unwrap();
            assert!(left == 1 || (left == 2 && !done), "{left} left");
            latch.delete().await.unwrap();
            if done {
                break;
            }
        }
    }
}

async fn counts_that_cannot_be_are_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.faulty_client().await;
    let latch = client.count_down_latch(KEY);
    for wanted in [0, i32::MAX as u32 + 1] {
        let error = refused(latch.try_set_count(wanted).await);
        let named = matches!(error, Error::InvalidCount { count, .. } if count == wanted);
        assert!(named && error.is_permanent(), "{error}");
    }
    let too_long = latch.wait().timeout(Duration::from_secs(400 * 24 * 3600));
    assert!(refused(too_long.await).is_permanent());
    assert!(refused(client.count_down_latch("").wait().await).is_permanent());
    assert_eq!(stage.faults().calls(Op::Adjust), 0);
    assert!(is_done_within(stage.lease(), latch.wait().into_future()).await);
    let without_limit = latch.wait().timeout(Duration::MAX);
    assert!(is_done_within(stage.lease(), without_limit.into_future()).await);
}

on_every_backend![
    count_is_set_once_counted_down_and_set_again,
    nobody_waits_for_a_latch_that_is_not_there,
    all_waiters_are_let_go_at_0_and_not_before,
    waiter_that_comes_while_the_count_ends_does_not_hang,
    deleted_latch_lets_its_waiters_go,
    change_that_meets_a_fault_counts_once,
    count_sent_again_leaves_the_next_latch_alone,
    wait_times_out_and_says_what_is_left,
    wait_that_nobody_answers_is_unavailable,
    wait_whose_last_read_was_answered_ends_with_the_count,
    wait_that_ends_during_the_first_read_tells_a_slow_answer_from_an_outage,
    waiter_that_misses_the_message_looks_again,
    waiters_of_a_latch_that_is_gone_without_a_0_are_told,
    wait_dropped_at_any_point_leaves_nothing,
    changes_dropped_at_any_point_count_once_or_not_at_all,
    counts_that_cannot_be_are_refused_before_anything_is_sent,
];
on_threads![waiter_that_comes_while_the_count_ends_does_not_hang];

// Where time is real, the look could come after the wait.
mod on_paused_time {
    use super::latch_that_is_gone_is_not_taken_for_opened_when_the_wait_ends;

    on_memory![latch_that_is_gone_is_not_taken_for_opened_when_the_wait_ends];
}

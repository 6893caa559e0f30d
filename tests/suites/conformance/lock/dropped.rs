//! A guard is dropped, and its client acquires the key again: without the server, or right behind the release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::Client;
use distlock_tests::faults::{Fault, Op};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::Stage;

const KEY: &str = "order:42";
const FENCED: &str = "report";

/// How many grants follow each other without a turn of other processes, the first one included.
const GRANTS_OF_A_RUN: usize = 160;
/// The same after a release that no other client heard, once the run has lasted for some milliseconds.
const GRANTS_OF_A_RUN_ALONE: usize = 513;

/// The attempts and the releases that were sent.
fn sent(stage: &Stage) -> [usize; 2] {
    [Op::Attempt, Op::Release].map(|op| stage.faults().calls(op))
}

/// Lets the client's task send the release of a dropped guard.
async fn release_is_sent(stage: &Stage, releases: usize) {
    let is_sent = async || stage.faults().calls(Op::Release) == releases;
    let soon = stage.part(10);
    stage.eventually("the release is sent", soon, is_sent).await;
}

/// A server that does not know the script of a release carries the release out when it is sent again, behind the attempt that
/// has followed it.
async fn knows_the_scripts(stage: &Stage) {
    for key in [KEY, FENCED] {
        stage.is_free(key).await;
    }
}

async fn hold_of_a_dropped_guard_is_taken_back_without_the_server(stage: &Stage) {
    let (client, run) = (stage.faulty_client().await, Instant::now());
    let lock = client.lock(KEY);
    let mut guard = lock.acquire().await.unwrap();
    let (owner, ended) = (guard.owner(), guard.lost());
    for _ in 0..10 {
        drop(guard);
        guard = lock.acquire().await.unwrap();
        assert!(guard.is_held());
        assert!(guard.owner() == owner || !stage.is_within_a_run(run));
    }
    // The first guard has ended, although the hold goes on.
    ended.await;
    let calls = sent(stage);
    assert!(calls == [1, 0] || !stage.is_within_a_run(run), "{calls:?}");
    sleep(2 * stage.lease()).await;
    assert!(guard.is_held(), "the watchdog renews it again");
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn guard_that_is_dropped_for_good_is_released_once(stage: &Stage) {
    let (client, run) = (stage.faulty_client().await, Instant::now());
    let lock = client.lock(KEY);
    for _ in 0..3 {
        drop(lock.acquire().await.unwrap());
    }
    stage.is_quiet_within(stage.part(10)).await;
    stage.is_free(KEY).await;
    let calls = sent(stage);
    assert!(calls == [1, 1] || !stage.is_within_a_run(run), "{calls:?}");
}

/// By the count alone, so only where time can be paused.
async fn dropped_hold_is_taken_back_only_so_often(stage: &Stage) {
    if !stage.is_paused() {
        return;
    }
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    for grants in [
        GRANTS_OF_A_RUN,
        GRANTS_OF_A_RUN_ALONE,
        GRANTS_OF_A_RUN_ALONE,
    ] {
        let first = lock.acquire().await.unwrap();
        // A run that nobody else waits for lasts for some milliseconds, however many grants it has.
        sleep(Duration::from_millis(5)).await;
        drop(first);
        for _ in 1..grants {
            drop(lock.acquire().await.unwrap());
        }
    }
    stage.is_quiet_within(stage.part(10)).await;
    stage.is_free(KEY).await;
    assert_eq!(sent(stage), [3, 3]);
}

async fn hold_that_is_kept_to_its_guard_is_not_taken_back(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let lease = stage.lease();
    knows_the_scripts(stage).await;
    for (first, second) in [(None, Some(lease)), (Some(lease), None)] {
        let of = |lease: Option<Duration>| match lease {
            Some(lease) => lock.acquire().lease(lease),
            None => lock.acquire(),
        };
        let guard = of(first).await.unwrap();
        let owner = guard.owner();
        drop(guard);
        let next = of(second).await.unwrap();
        assert_ne!(next.owner(), owner);
        next.release().await.unwrap();
    }
    let fenced = client.fenced_lock(FENCED);
    let guard = fenced.acquire().await.unwrap();
    let (owner, token) = (guard.owner(), guard.token());
    drop(guard);
    let next = fenced.acquire().await.unwrap();
    assert!(next.token() > token && next.owner() != owner);
    next.release().await.unwrap();
    // Each attempt was granted: none was executed before the release that it followed.
    assert_eq!(sent(stage), [6, 6]);
}

async fn attempt_follows_a_release_that_is_not_answered_yet(stage: &Stage) {
    knows_the_scripts(stage).await;
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    for (round, fixed) in [(1, false), (2, true)] {
        let guard = if fixed {
            lock.acquire().lease(stage.lease()).await.unwrap()
        } else {
            lock.acquire().await.unwrap()
        };
        let owner = guard.owner();
        let late = stage.part(50);
        stage.faults().next(Op::Release, Fault::DelayReply(late));
        drop(guard);
        if !fixed {
            // Otherwise it would be taken back.
            release_is_sent(stage, 2 * round - 1).await;
        }
        let start = Instant::now();
        let next = lock.acquire().await.unwrap();
        if stage.is_paused() {
            assert_eq!(start.elapsed(), Duration::ZERO);
        }
        assert_ne!(
            next.owner(),
            owner,
            "an owner is not used after its release"
        );
        sleep(2 * late).await;
        assert!(next.is_held());
        next.release().await.unwrap();
        assert_eq!(sent(stage), [2 * round, 2 * round]);
    }
}

/// To the millisecond, so only where time can be paused.
async fn attempt_waits_for_the_answer_over_another_connection_or_after_a_failure(stage: &Stage) {
    if !stage.is_paused() {
        return;
    }
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let late = Duration::from_millis(20);
    let guard = lock.acquire().await.unwrap();
    stage.faults().next(Op::Release, Fault::DelayReply(late));
    let start = Instant::now();
    drop(guard);
    release_is_sent(stage, 1).await;
    stage.faults().reconnect();
    let guard = lock.acquire().await.unwrap();
    stage.assert_took(start, late);

    // The release fails and is sent again after a pause. The attempt waits for that and is sent once.
    let [attempts, _] = sent(stage);
    stage.faults().next(Op::Release, Fault::FailBefore);
    let start = Instant::now();
    drop(guard);
    release_is_sent(stage, 2).await;
    yield_now().await;
    let guard = lock.acquire().await.unwrap();
    assert!(start.elapsed() > Duration::ZERO);
    assert_eq!(sent(stage)[0], attempts + 1);
    guard.release().await.unwrap();
}

async fn release_that_fails_does_not_let_the_attempt_behind_it_in_twice(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let observer = stage.client().await;
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Double] {
        stage.faults().next(Op::Release, fault);
        let first = lock.acquire().lease(stage.lease()).await.unwrap();
        let owner = first.owner();
        drop(first);
        let second = lock.acquire().await.unwrap();
        assert_ne!(second.owner(), owner);
        let holders = observer.lock(KEY).holders().await.unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].owner, second.owner().to_string());
        sleep(2 * stage.lease()).await;
        assert!(second.is_held());
        second.release().await.unwrap();
    }
}

async fn hold_that_its_client_frees_by_force_is_not_taken_back(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    for _ in 0..10 {
        let guard = lock.acquire().await.unwrap();
        let owner = guard.owner();
        drop(guard);
        lock.force_release().await.unwrap();
        let next = lock.acquire().await.unwrap();
        assert_ne!(next.owner(), owner);
        next.release().await.unwrap();
    }
}

async fn loss_before_a_hold_is_taken_back_is_told(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let first = lock.acquire().await.unwrap();
    other.lock(KEY).force_release().await.unwrap();
    let owner = first.owner();
    drop(first);
    let second = lock.acquire().await.unwrap();
    if second.owner() == owner {
        // The server is asked soon, as after any hand-over.
        let start = Instant::now();
        second.lost().await;
        assert!(start.elapsed() <= stage.part(3) + stage.slack());
        assert!(second.release().await.unwrap_err().is_lost());
    } else {
        second.release().await.unwrap();
    }
}

async fn client_that_is_dropped_with_its_guard_frees_the_key(stage: &Stage) {
    let client = stage.unlisted_client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    drop(client);
    drop(guard);
    let other = stage.client().await;
    let start = Instant::now();
    let next = other.lock(KEY).acquire().await.unwrap();
    assert!(start.elapsed() < stage.lease(), "freed by its lease");
    next.release().await.unwrap();
}

async fn client_that_drops_guards_all_the_time_lets_others_in(stage: &Stage) {
    let (busy, other) = (stage.client().await, stage.client().await);
    for lease in [None, Some(stage.lease())] {
        // Not a static: the test is played on several backends at once.
        let done = Arc::new(AtomicBool::new(false));
        let acquire = move |client: &Client| match lease {
            Some(lease) => client.lock(KEY).acquire().lease(lease),
            None => client.lock(KEY).acquire(),
        };
        let (client, is_done) = (busy.clone(), Arc::clone(&done));
        let busily = tokio::spawn(async move {
            let mut grants = 0_usize;
            while !is_done.load(Ordering::SeqCst) {
                let guard = acquire(&client).await.unwrap();
                grants += 1;
                sleep(Duration::from_millis(1)).await;
                drop(guard);
            }
            grants
        });
        for _ in 0..20 {
            let start = Instant::now();
            let guard = acquire(&other).await.unwrap();
            // A run, and the time of one more turn.
            let turn = Duration::from_millis(250);
            assert!(start.elapsed() <= turn + stage.slack(), "{lease:?}");
            sleep(Duration::from_millis(1)).await;
            guard.release().await.unwrap();
        }
        done.store(true, Ordering::SeqCst);
        assert!(busily.await.unwrap() > 0);
    }
}

on_every_backend![
    hold_of_a_dropped_guard_is_taken_back_without_the_server,
    guard_that_is_dropped_for_good_is_released_once,
    dropped_hold_is_taken_back_only_so_often,
    hold_that_is_kept_to_its_guard_is_not_taken_back,
    attempt_follows_a_release_that_is_not_answered_yet,
    attempt_waits_for_the_answer_over_another_connection_or_after_a_failure,
    release_that_fails_does_not_let_the_attempt_behind_it_in_twice,
    hold_that_its_client_frees_by_force_is_not_taken_back,
    loss_before_a_hold_is_taken_back_is_told,
    client_that_is_dropped_with_its_guard_frees_the_key,
    client_that_drops_guards_all_the_time_lets_others_in,
];

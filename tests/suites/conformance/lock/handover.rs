//! Hand-over between waiters of one client: in order, without the server, and bounded so that other clients get the key.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Guard};
use distlock_tests::faults::{Fault, Op};
use distlock_tests::size;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{HAND_OVER_TIME, Stage, drop_after, end, is_done_within};

const KEY: &str = "order:42";

/// Spawns an acquisition, and waits until it stands in its queue.
async fn queued(stage: &Stage, client: &Client, place: usize) -> tokio::task::JoinHandle<Guard> {
    let acquiring = client.lock(KEY).acquire().into_future();
    let task = tokio::spawn(async move { acquiring.await.unwrap() });
    stage.waiting(client, place).await;
    task
}

async fn local_waiters_are_served_in_their_order(stage: &Stage) {
    let client = stage.client().await;
    for (hold_for, waiters) in [(Duration::ZERO, 20), (stage.part(100), 20)] {
        let first = client.lock(KEY).acquire().await.unwrap();
        let served: &'static Mutex<Vec<usize>> = Box::leak(Box::default());
        let mut tasks = JoinSet::new();
        for n in 0..waiters {
            let acquiring = client.lock(KEY).acquire().into_future();
            tasks.spawn(async move {
                let guard = acquiring.await.unwrap();
                served.lock().unwrap().push(n);
                sleep(hold_for).await;
                guard.release().await.unwrap();
            });
            stage.waiting(&client, n + 1).await;
        }
        first.release().await.unwrap();
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let expected: Vec<usize> = (0..waiters).collect();
        assert_eq!(*served.lock().unwrap(), expected);
    }
}

async fn hold_passes_on_with_its_owner_and_without_the_server(stage: &Stage) {
    let (client, start) = (stage.faulty_client().await, Instant::now());
    let mut guard = client.lock(KEY).acquire().await.unwrap();
    let owner = guard.owner();
    for by_drop in [false, true, false] {
        let next = queued(stage, &client, 1).await;
        end(guard, by_drop).await;
        guard = next.await.unwrap();
        assert!(guard.owner() == owner || !stage.is_within_a_run(start));
        assert!(guard.is_held());
    }
    let calls = [Op::Attempt, Op::Release].map(|op| stage.faults().calls(op));
    assert!(
        calls == [1, 0] || !stage.is_within_a_run(start),
        "{calls:?}"
    );
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn view_kept_from_before_a_hand_over_says_ended(stage: &Stage) {
    let (client, run) = (stage.client().await, Instant::now());
    let first = client.lock(KEY).acquire().await.unwrap();
    let owner = first.owner();
    let lost = first.lost();
    let mut section = first.section();
    let watcher = tokio::spawn(first.lost());
    let next = queued(stage, &client, 1).await;
    assert!(!watcher.is_finished());
    let start = Instant::now();
    first.release().await.unwrap();
    let second = next.await.unwrap();
    assert!(second.owner() == owner || !stage.is_within_a_run(run));
    lost.await;
    watcher.await.unwrap();
    stage.assert_took(start, Duration::ZERO);
    assert!(!is_done_within(stage.part(10), second.lost()).await);
    // A section from before the hand-over lets nobody in.
    let lock = client.lock(KEY);
    let mut polled = std::pin::pin!(lock.try_acquire());
    let entered = std::future::poll_fn(|cx| section.poll_in(cx, |cx| polled.as_mut().poll(cx)));
    assert!(entered.await.unwrap().unwrap().is_none());
    second.release().await.unwrap();
}

async fn hold_that_was_handed_over_is_kept_and_its_loss_told(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let first = client.lock(KEY).acquire().await.unwrap();
    let next = queued(stage, &client, 1).await;
    first.release().await.unwrap();
    let second = next.await.unwrap();
    sleep(3 * stage.lease()).await;
    assert!(second.is_held());
    let start = Instant::now();
    other.lock(KEY).force_release().await.unwrap();
    second.lost().await;
    assert!(start.elapsed() <= stage.part(3) + stage.slack());
    assert!(second.release().await.unwrap_err().is_lost());
}

async fn loss_that_nobody_knows_at_a_hand_over_is_told_to_the_next_task(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let mut played = false;
    while !played {
        let run = Instant::now();
        let first = client.lock(KEY).acquire().await.unwrap();
        let owner = first.owner();
        let next = queued(stage, &client, 1).await;
        other.lock(KEY).force_release().await.unwrap();
        let released = first.release().await;
        // On a busy machine the run may be over before the release, which is a real one then.
        let was_handed_over = released.is_ok();
        assert!(was_handed_over || !stage.is_within_a_run(run));
        let second = next.await.unwrap();
        // There, the loss may also be found before the next task is polled: it asks the server then.
        if was_handed_over && second.owner() == owner {
            played = true;
            second.lost().await;
            assert!(second.release().await.unwrap_err().is_lost());
        } else {
            second.release().await.unwrap();
        }
    }
}

async fn release_that_hands_nothing_over_tells_a_loss_also_if_a_task_waits(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let plain = || client.lock(KEY).acquire();
    let fair = || client.fair_lock(KEY).acquire();
    for (first, next, places) in [
        (plain().lease(stage.lease()), plain(), 0),
        (plain(), plain().lease(stage.lease()), 0),
        (fair(), fair(), 1),
    ] {
        let first = first.await.unwrap();
        let next = tokio::spawn(next.into_future());
        // Waiters of a fair lock stand in the server's queue.
        match places {
            0 => stage.waiting(&client, 1).await,
            places => stage.has_places(KEY, places).await,
        }
        other.lock(KEY).force_release().await.unwrap();
        assert!(first.release().await.unwrap_err().is_lost());
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn count_is_one_again_after_a_hand_over(stage: &Stage) {
    let (client, observer) = (stage.client().await, stage.client().await);
    let run = Instant::now();
    let first = client.lock(KEY).acquire().await.unwrap();
    let again = first.reenter().unwrap();
    let lock = observer.lock(KEY);
    let two = async || lock.hold_count().await.unwrap() == 2;
    stage.eventually("count 2", stage.part(10), two).await;
    let next = queued(stage, &client, 1).await;
    first.release().await.unwrap();
    // The task that waits gets a turn, and the run of hand-overs is not over after it.
    sleep(HAND_OVER_TIME / 10).await;
    assert!(!next.is_finished(), "handed over while a guard lives");
    again.release().await.unwrap();
    let second = next.await.unwrap();
    assert!(second.owner().number() == 1 || !stage.is_within_a_run(run));
    let one = async || lock.hold_count().await.unwrap() == 1;
    stage.eventually("count 1", stage.part(10), one).await;
    assert!(second.is_held());
}

async fn hold_with_a_lease_of_its_own_is_not_handed_over(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let first = lock.acquire().lease(stage.lease()).await.unwrap();
    let owner = first.owner();
    let next = queued(stage, &client, 1).await;
    first.release().await.unwrap();
    let second = next.await.unwrap();
    assert_ne!(second.owner(), owner);
    sleep(2 * stage.lease()).await;
    assert!(second.is_held());
    second.release().await.unwrap();
    // A hold that had a nested guard with a lease is not handed over either.
    let first = lock.acquire().await.unwrap();
    let nested = first.scope(async { lock.acquire().lease(stage.lease()).await.unwrap() });
    nested.await.unwrap().release().await.unwrap();
    let owner = first.owner();
    let next = queued(stage, &client, 1).await;
    first.release().await.unwrap();
    assert_ne!(next.await.unwrap().owner(), owner);
}

async fn waiter_with_a_lease_of_its_own_gets_that_lease(stage: &Stage) {
    let client = stage.client().await;
    let lease = stage.part(3);
    let first = client.lock(KEY).acquire().await.unwrap();
    let owner = first.owner();
    let waiter = tokio::spawn(client.lock(KEY).acquire().lease(lease).into_future());
    stage.waiting(&client, 1).await;
    first.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap();
    let start = Instant::now();
    assert_ne!(second.owner(), owner);
    second.lost().await;
    stage.assert_took(start, lease);
    stage.is_free(KEY).await;
}

/// A run of hand-overs lasts for 50 ms.
const MOST_OF_A_RUN: Duration = Duration::from_millis(35);

async fn hold_in_the_slot_wins_when_the_deadline_comes_with_it(stage: &Stage) {
    let client = stage.client().await;
    let wait = Duration::from_millis(40);
    for second_in_line in [false, true] {
        let mut played = 0;
        while played < 20 {
            let started = Instant::now();
            let first = client.lock(KEY).acquire().await.unwrap();
            let ahead = if second_in_line {
                Some(queued(stage, &client, 1).await)
            } else {
                None
            };
            let mut acquiring = Box::pin(client.lock(KEY).acquire().wait(wait).into_future());
            let polled = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(acquiring.as_mut().poll(cx).is_pending())
            });
            assert!(polled.await);
            first.release().await.unwrap();
            if let Some(ahead) = ahead {
                ahead.await.unwrap().release().await.unwrap();
            }
            // On a busy machine the run of hand-overs is over by then, and the last release was a real one.
            if started.elapsed() > MOST_OF_A_RUN {
                continue;
            }
            played += 1;
            // When the waiter is polled next, it has both the hold and a deadline that has passed.
            if stage.is_paused() {
                tokio::time::advance(2 * wait).await;
            } else {
                std::thread::sleep(2 * wait);
            }
            let guard = acquiring.await.unwrap();
            guard.release().await.unwrap();
        }
    }
}

/// To the millisecond, so only where time can be paused.
async fn grant_that_meets_a_hold_in_the_slot_stays_and_that_one_is_ended(stage: &Stage) {
    if !stage.is_paused() {
        return;
    }
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let lease = stage.part(3);
    let gone = other.lock(KEY).acquire().lease(lease).await.unwrap();
    let start = Instant::now();
    let waiter = queued(stage, &client, 1).await;
    // The lease is over and the waiter asks again, slowly: an attempt that does not queue gets the lock before it.
    let slowly = Fault::Delay(Duration::from_millis(20));
    stage.faults().next(Op::Attempt, slowly);
    let asks = async || stage.faults().hits(Op::Attempt) == 1;
    stage.eventually("the waiter asks", 2 * lease, asks).await;
    assert!(start.elapsed() >= lease);
    let first = client.lock(KEY).try_acquire().await.unwrap().unwrap();
    // The server forgets the hold, and the client hands it to the waiter all the same.
    other.lock(KEY).force_release().await.unwrap();
    let owner = first.owner();
    first.release().await.unwrap();
    let second = waiter.await.unwrap();
    assert_ne!(second.owner(), owner, "the server's word counts");
    assert!(second.is_held());
    assert_eq!(sizes(&client).holds, 1, "the other is renewed for nobody");
    stage.faults().clear(Op::Attempt);
    sleep(stage.lease()).await;
    assert!(second.is_held());
    second.release().await.unwrap();
    drop(gone);
}

async fn waiter_dropped_with_a_hold_in_its_slot_passes_it_on(stage: &Stage) {
    let client = stage.faulty_client().await;
    for others in [0, 1, 2] {
        let run = Instant::now();
        let first = client.lock(KEY).acquire().await.unwrap();
        let owner = first.owner();
        let aborted = queued(stage, &client, 1).await;
        let mut behind = Vec::new();
        for n in 0..others {
            behind.push(queued(stage, &client, n + 2).await);
        }
        first.release().await.unwrap();
        aborted.abort();
        // If the acquisition ended before the abort, its guard is dropped here, and the hold goes to the next one.
        drop(aborted.await);
        for next in behind {
            let guard = next.await.unwrap();
            assert!(guard.owner() == owner || !stage.is_within_a_run(run));
            guard.release().await.unwrap();
        }
        stage.is_quiet_within(stage.part(10)).await;
        stage.is_free(KEY).await;
    }
}

async fn waiter_dropped_after_wake_passes_it_on(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for jitter in 0..60 {
        let held = other.lock(KEY).acquire().await.unwrap();
        let first = queued(stage, &client, 1).await;
        let second = queued(stage, &client, 2).await;
        // Longer than the first waiter trusts a holder of its own client: it listens by now.
        sleep(stage.part(20)).await;
        held.release().await.unwrap();
        for _ in 0..jitter % 6 {
            tokio::task::yield_now().await;
        }
        first.abort();
        let start = Instant::now();
        drop(first.await);
        let guard = second.await.unwrap();
        stage.assert_took(start, Duration::ZERO);
        guard.release().await.unwrap();
    }
}

async fn release_dropped_at_any_point_still_frees_or_hands_over(stage: &Stage) {
    let client = stage.faulty_client().await;
    for polls in 0..3 {
        for waiters in [0, 1] {
            stage
                .faults()
                .next(Op::Release, Fault::Delay(stage.part(50)));
            let first = client
                .lock(KEY)
                .acquire()
                .lease(stage.lease())
                .await
                .unwrap();
            let next = match waiters {
                0 => None,
                _ => Some(queued(stage, &client, 1).await),
            };
            drop_after(polls, first.release()).await;
            if let Some(next) = next {
                drop(next.await.unwrap());
            }
            stage.is_quiet_within(stage.part(5)).await;
            stage.is_free(KEY).await;
            stage.faults().clear(Op::Release);
        }
    }
}

/// How often each of two clients is granted the key while both want it all the time.
async fn grants_of_two(stage: &Stage, tasks_each: usize, stay: Duration) -> [usize; 2] {
    let clients = [stage.client().await, stage.client().await];
    let grants: &'static [AtomicUsize; 2] = Box::leak(Box::default());
    let inside: &'static AtomicBool = Box::leak(Box::default());
    let end = Instant::now() + stage.lease() / size(6, 1);
    let mut tasks = JoinSet::new();
    for n in 0..2 * tasks_each {
        let (lock, mine) = (clients[n % 2].lock(KEY), &grants[n % 2]);
        tasks.spawn(async move {
            while Instant::now() < end {
                let body = async {
                    assert!(!inside.swap(true, Ordering::SeqCst), "two inside at once");
                    sleep(stay).await;
                    inside.store(false, Ordering::SeqCst);
                    mine.fetch_add(1, Ordering::SeqCst);
                };
                lock.acquire().run(body).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    clients
        .iter()
        .for_each(|client| assert_eq!(sizes(client).waiters, 0));
    [&grants[0], &grants[1]].map(|grants| grants.load(Ordering::SeqCst))
}

async fn two_clients_in_a_crowd_each_get_their_turn(stage: &Stage) {
    for stay in [1, 10, 60].map(Duration::from_millis) {
        let grants = grants_of_two(stage, 8, stay).await;
        let least = grants.iter().sum::<usize>() / 5;
        assert!(
            grants.iter().all(|mine| *mine >= least),
            "{grants:?} at {stay:?}"
        );
    }
}

async fn two_clients_with_a_task_each_both_get_their_turn(stage: &Stage) {
    for stay in [1, 10, 60].map(Duration::from_millis) {
        let grants = grants_of_two(stage, 1, stay).await;
        let least = grants.iter().sum::<usize>() / 5;
        assert!(
            grants.iter().all(|mine| *mine >= least),
            "{grants:?} at {stay:?}"
        );
    }
}

on_every_backend![
    local_waiters_are_served_in_their_order,
    hold_passes_on_with_its_owner_and_without_the_server,
    view_kept_from_before_a_hand_over_says_ended,
    hold_that_was_handed_over_is_kept_and_its_loss_told,
    loss_that_nobody_knows_at_a_hand_over_is_told_to_the_next_task,
    release_that_hands_nothing_over_tells_a_loss_also_if_a_task_waits,
    count_is_one_again_after_a_hand_over,
    hold_with_a_lease_of_its_own_is_not_handed_over,
    waiter_with_a_lease_of_its_own_gets_that_lease,
    hold_in_the_slot_wins_when_the_deadline_comes_with_it,
    grant_that_meets_a_hold_in_the_slot_stays_and_that_one_is_ended,
    waiter_dropped_with_a_hold_in_its_slot_passes_it_on,
    waiter_dropped_after_wake_passes_it_on,
    release_dropped_at_any_point_still_frees_or_hands_over,
    two_clients_in_a_crowd_each_get_their_turn,
    two_clients_with_a_task_each_both_get_their_turn,
];

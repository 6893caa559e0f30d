//! Waiting until nobody holds a lock, without acquiring it.

mod ends;

use std::time::Duration;

use distlock::test_util::{Sizes, sizes};
use distlock::{Blocker, Client, Error, Loss, Mode, UntilFree};
use distlock_tests::faults::{Fault, Op};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, assert_lost_by, refused};

const KEY: &str = "report";

/// The wait of each kind of lock.
fn wait_of(client: &Client, mode: Mode) -> UntilFree {
    match mode {
        Mode::NonReentrant => client.non_reentrant_lock(KEY).until_free(),
        Mode::Spin => client.spin_lock(KEY).until_free(),
        Mode::Fenced => client.fenced_lock(KEY).until_free(),
        Mode::Fair => client.fair_lock(KEY).until_free(),
        Mode::NonReentrantFair => client.non_reentrant_fair_lock(KEY).until_free(),
        Mode::Read => client.rw_lock(KEY).read().until_free(),
        Mode::Write => client.rw_lock(KEY).write().until_free(),
        _ => client.lock(KEY).until_free(),
    }
}

const KINDS: [Mode; 8] = [
    Mode::Reentrant,
    Mode::NonReentrant,
    Mode::Spin,
    Mode::Fenced,
    Mode::Fair,
    Mode::NonReentrantFair,
    Mode::Read,
    Mode::Write,
];

fn spawned(wait: UntilFree) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(wait.into_future())
}

/// Waits until so many looks of a faulty client were made.
async fn looked(stage: &Stage, times: usize) {
    let looked = async || stage.faults().calls(Op::Inspect) >= times;
    stage.eventually("a look", stage.lease(), looked).await;
}

async fn nobody_waits_for_a_lock_that_is_free(stage: &Stage) {
    let client = stage.client().await;
    let start = Instant::now();
    for mode in KINDS {
        wait_of(&client, mode).await.unwrap();
        wait_of(&client, mode).wait(Duration::ZERO).await.unwrap();
    }
    stage.assert_took(start, Duration::ZERO);
    // Nothing was acquired.
    stage.is_free(KEY).await;
    assert_eq!(sizes(&client), Sizes::default());
}

async fn waiter_of_each_kind_goes_on_with_the_release_and_not_before(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    for mode in KINDS {
        let looks = stage.faults().calls(Op::Inspect);
        let locks = distlock::LockSource::from(holder.clone());
        let guard = locks.acquire(mode, [KEY]).await.unwrap();
        let waiting = spawned(wait_of(&client, mode));
        looked(stage, looks + 2).await;
        assert!(!waiting.is_finished(), "{mode:?}");
        let start = Instant::now();
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        // It is still free.
        let guard = locks
            .acquire(mode, [KEY])
            .wait(stage.slack())
            .await
            .unwrap();
        guard.release().await.unwrap();
    }
}

async fn waiters_of_all_kinds_with_the_same_data_are_one(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.fair_lock(KEY).acquire().await.unwrap();
    let kinds = KINDS
        .iter()
        .filter(|mode| !matches!(mode, Mode::Read | Mode::Write));
    let waiting: Vec<_> = kinds.map(|mode| spawned(wait_of(&client, *mode))).collect();
    looked(stage, 2).await;
    sleep(stage.part(20)).await;
    assert_eq!(stage.listened_channels().await, 1);
    guard.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

async fn thousand_waiters_of_a_client_are_one_waiter_for_the_server(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let (mut waiting, since) = (JoinSet::new(), Instant::now());
    for n in 0..1_000 {
        waiting.spawn(client.lock(KEY).until_free().into_future());
        if n % 100 == 0 {
            yield_now().await;
        }
    }
    looked(stage, 2).await;
    // Longer than a look takes if nothing is heard.
    sleep(stage.part(2)).await;
    assert_eq!(stage.listened_channels().await, 1);
    let looks = stage.faults().all_calls();
    // The first two, one for those that came during the first, and one that is due every four to five seconds.
    let due = 3 + since.elapsed().as_secs() / 3;
    assert!(looks as u64 <= due, "{looks} commands, {due} expected");
    let start = Instant::now();
    guard.release().await.unwrap();
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap().unwrap();
    }
    stage.assert_took(start, Duration::ZERO);
    let after = stage.faults().all_calls();
    assert!(after <= looks + 2, "{} commands for the end", after - looks);
}

async fn waits_of_no_time_that_come_together_share_a_look(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..100 {
        let wait = client.lock(KEY).until_free().wait(Duration::ZERO);
        waiting.spawn(wait.into_future());
    }
    while let Some(ended) = waiting.join_next().await {
        let error = refused(ended.unwrap());
        let Error::Timeout {
            waited,
            holder: Some(by),
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(
            (*waited, by.owner.clone()),
            (Duration::ZERO, Some(guard.owner().to_string()))
        );
    }
    assert!(
        stage.faults().all_calls() <= 4,
        "{}",
        stage.faults().all_calls()
    );
    guard.release().await.unwrap();
}

async fn wait_that_is_over_says_who_holds_the_lock_and_for_how_long(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    for mode in KINDS {
        let locks = distlock::LockSource::from(holder.clone());
        let guard = locks.acquire(mode, [KEY]).await.unwrap();
        let (start, wait) = (Instant::now(), stage.part(10));
        let error = refused(wait_of(&client, mode).wait(wait).await);
        stage.assert_took(start, wait);
        let Error::Timeout {
            key,
            blocker: Blocker::Owner(Some(left)),
            holder: by,
            ..
        } = &error
        else {
            panic!("{mode:?}: {error}");
        };
        assert_eq!(key, KEY);
        assert!(*left <= stage.lease(), "{mode:?}: {left:?}");
        let named = by.as_ref().and_then(|by| by.owner.clone());
        let expected = match mode {
            Mode::Read => None,
            _ => Some(guard.owner().to_string()),
        };
        assert_eq!(named, expected, "{mode:?}");
        guard.release().await.unwrap();
    }
    let client = stage
        .client_with(|builder| builder.default_wait(stage.part(10)))
        .await;
    let guard = holder.lock(KEY).acquire().await.unwrap();
    assert!(refused(client.lock(KEY).until_free().await).is_busy());
    guard.release().await.unwrap();
}

async fn wait_for_a_lock_that_was_released_and_stays_taken_names_nobody_as_an_acquisition(
    stage: &Stage,
) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let lock = client.lock(KEY);
    let held = holder.lock(KEY).acquire().hold_at_least(stage.lease());
    held.await.unwrap().release().await.unwrap();
    let wait = stage.part(10);
    let acquired = refused(lock.acquire().wait(wait).await);
    let free = refused(lock.until_free().wait(wait).await);
    for error in [acquired, free] {
        assert!(
            matches!(&error, Error::Timeout { holder: None, .. }),
            "{error}"
        );
    }
    assert!(lock.force_release().await.unwrap());
}

async fn read_write_lock_is_free_when_there_are_neither_readers_nor_a_writer(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let lock = holder.rw_lock(KEY);
    let readers = [
        lock.read().acquire().await.unwrap(),
        lock.read().acquire().await.unwrap(),
    ];
    let waiting = [Mode::Read, Mode::Write].map(|mode| spawned(wait_of(&client, mode)));
    for (n, reader) in readers.into_iter().enumerate() {
        sleep(stage.part(20)).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "{n}");
        reader.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

async fn waiter_goes_on_when_the_lease_of_a_crashed_holder_ends(stage: &Stage) {
    let (holder, client) = (stage.faulty_client().await, stage.client().await);
    for mode in [Mode::Reentrant, Mode::Fair, Mode::Write] {
        let start = Instant::now();
        let locks = distlock::LockSource::from(holder.clone());
        let guard = locks.acquire(mode, [KEY]).await.unwrap();
        // It is neither renewed nor released.
        stage.faults().always(Op::Renew, Fault::FailBefore);
        stage.faults().always(Op::Release, Fault::FailBefore);
        wait_of(&client, mode).await.unwrap();
        stage.assert_took(start, stage.lease());
        stage.faults().clear_all();
        drop(guard);
        stage.is_free_within(stage.lease(), KEY).await;
    }
}

async fn holder_that_renews_keeps_its_waiters_beyond_its_first_lease(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let waiting = spawned(client.lock(KEY).until_free());
    sleep(stage.lease() * 3 / 2).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn waiter_goes_on_after_a_release_by_force(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    for mode in [Mode::Reentrant, Mode::Fair, Mode::Write] {
        let looks = stage.faults().calls(Op::Inspect);
        let locks = distlock::LockSource::from(holder.clone());
        let guard = locks.acquire(mode, [KEY]).await.unwrap();
        let waiting = spawned(wait_of(&client, mode));
        looked(stage, looks + 2).await;
        let start = Instant::now();
        let freed = match mode {
            Mode::Fair => holder.fair_lock(KEY).force_release().await,
            Mode::Write => holder.rw_lock(KEY).write().force_release().await,
            _ => holder.lock(KEY).force_release().await,
        };
        assert!(freed.unwrap());
        waiting.await.unwrap().unwrap();
        stage.assert_took(start, Duration::ZERO);
        guard.lost().await;
        let error = refused(guard.release().await);
        assert_lost_by(&error, Loss::Gone);
    }
}

/// One process holds it, and the same process waits.
async fn waiter_of_the_holders_own_client_goes_on_with_the_release(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    let waiting = spawned(client.lock(KEY).until_free());
    sleep(stage.part(20)).await;
    assert!(!waiting.is_finished());
    let start = Instant::now();
    drop(guard);
    waiting.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
}

/// Another owner has the lock each time that the waiter looks.
async fn lock_that_others_take_in_turn_lets_its_waiter_go(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let client = stage.faulty_client().await;
    let first = one.fair_lock(KEY).acquire().await.unwrap();
    let waiting = spawned(client.fair_lock(KEY).until_free());
    looked(stage, 2).await;
    // It stands in the queue, and gets the lock with the release.
    let next = tokio::spawn(two.fair_lock(KEY).acquire().into_future());
    stage.has_places(KEY, 1).await;
    let start = Instant::now();
    first.release().await.unwrap();
    let second = next.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    // The lock is still held, as the next waiter is told.
    let error = refused(
        client
            .fair_lock(KEY)
            .until_free()
            .wait(stage.part(10))
            .await,
    );
    assert!(error.is_busy(), "{error}");
    second.release().await.unwrap();
}

/// The next writer has the lock when the waiter looks again.
async fn write_lock_that_others_take_in_turn_lets_its_waiter_go(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let client = stage.faulty_client().await;
    let first = one.rw_lock(KEY).write().acquire().await.unwrap();
    let wait = wait_of(&client, Mode::Write).wait(stage.lease());
    let waiting = spawned(wait);
    looked(stage, 2).await;
    let slow = Fault::Delay(stage.most_delay());
    stage.faults().next(Op::Look, slow);
    first.release().await.unwrap();
    let second = two.rw_lock(KEY).write().try_acquire().await.unwrap();
    waiting.await.unwrap().unwrap();
    second.expect("free").release().await.unwrap();
}

/// What was free before the wait began says nothing, even if the answer comes later.
async fn look_that_began_before_a_wait_does_not_end_it(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    stage
        .faults()
        .next(Op::Inspect, Fault::DelayReply(stage.most_delay()));
    let early = spawned(client.lock(KEY).until_free());
    looked(stage, 1).await;
    sleep(stage.part(60)).await;
    // The server has answered `free`, and the answer is on its way.
    assert!(!early.is_finished());
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let later = spawned(client.lock(KEY).until_free());
    early.await.unwrap().unwrap();
    sleep(stage.part(20)).await;
    assert!(!later.is_finished());
    guard.release().await.unwrap();
    later.await.unwrap().unwrap();
}

async fn waiter_in_its_own_scope_is_told_that_it_waits_for_itself(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let inside = lock.acquire().run(async { lock.until_free().await });
    let error = refused(inside.await.unwrap());
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
    let rw = client.rw_lock(KEY);
    let inside = rw
        .read()
        .acquire()
        .run(async { rw.write().until_free().await });
    let error = refused(inside.await.unwrap());
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
}

on_every_backend![
    nobody_waits_for_a_lock_that_is_free,
    waiter_of_each_kind_goes_on_with_the_release_and_not_before,
    waiters_of_all_kinds_with_the_same_data_are_one,
    thousand_waiters_of_a_client_are_one_waiter_for_the_server,
    waits_of_no_time_that_come_together_share_a_look,
    wait_that_is_over_says_who_holds_the_lock_and_for_how_long,
    wait_for_a_lock_that_was_released_and_stays_taken_names_nobody_as_an_acquisition,
    read_write_lock_is_free_when_there_are_neither_readers_nor_a_writer,
    waiter_goes_on_when_the_lease_of_a_crashed_holder_ends,
    holder_that_renews_keeps_its_waiters_beyond_its_first_lease,
    waiter_goes_on_after_a_release_by_force,
    waiter_of_the_holders_own_client_goes_on_with_the_release,
    lock_that_others_take_in_turn_lets_its_waiter_go,
    write_lock_that_others_take_in_turn_lets_its_waiter_go,
    look_that_began_before_a_wait_does_not_end_it,
    waiter_in_its_own_scope_is_told_that_it_waits_for_itself,
];

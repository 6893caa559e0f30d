//! Acquiring without a long wait: which acquisitions succeed, which fail, and with which error.

use std::time::Duration;

use distlock::{Blocker, Builder, Error};
use distlock_tests::faults::Op;
use tokio::time::Instant;

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

async fn free_lock_is_granted_and_release_frees_it(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock(KEY).acquire().await.unwrap();
    assert!(guard.is_held());
    assert_eq!((guard.key(), guard.owner().client_id()), (KEY, client.id()));
    stage.is_taken(KEY).await;
    guard.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn each_acquisition_has_an_owner_of_its_own(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let mut owners = Vec::new();
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        owners.push(guard.owner());
        guard.release().await.unwrap();
    }
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 3);
}

async fn held_lock_times_out_and_says_what_stood_in_the_way(stage: &Stage) {
    let (holder, waiter) = (stage.client().await, stage.client().await);
    let lease = stage.lease();
    let held = holder.lock(KEY).acquire().lease(lease).await.unwrap();
    let start = Instant::now();
    let wait = stage.part(6);
    let error = refused(waiter.lock(KEY).acquire().wait(wait).await);
    stage.assert_took(start, wait);
    let text = error.to_string();
    let Error::Timeout {
        key,
        waited,
        blocker: Blocker::Owner(Some(left)),
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(key, KEY);
    assert!(waited >= wait && waited <= wait + stage.slack());
    assert!(
        left <= lease - wait + stage.slack() && left + stage.slack() >= lease - wait,
        "{left:?}"
    );
    if stage.is_paused() {
        let expected =
            r#"timed out after 5s waiting for "order:42": its lease has 25s left unless renewed"#;
        assert_eq!(text, format!("{expected}; held by owner {}", held.owner()));
    }
}

async fn wait_zero_is_exactly_one_try(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let held = holder.lock(KEY).acquire().await.unwrap();
    let acquire = client.lock(KEY).acquire().wait(Duration::ZERO);
    let start = Instant::now();
    let error = refused(acquire.clone().await);
    stage.assert_took(start, Duration::ZERO);
    assert!(matches!(
        error,
        Error::Timeout {
            blocker: Blocker::Owner(Some(_)),
            ..
        }
    ));
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    held.release().await.unwrap();
    acquire.await.unwrap().release().await.unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), 2);
}

async fn try_acquire_is_one_try_and_none_while_held(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let lock = client.lock(KEY);
    let held = holder.lock(KEY).acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    held.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
    assert_eq!(stage.faults().calls(Op::Attempt), 2);
}

async fn two_guards_of_one_key_side_by_side_exclude_each_other(stage: &Stage) {
    let client = stage.client().await;
    let (lock, wait) = (client.lock(KEY), stage.part(10));
    let first = lock.acquire().await.unwrap();
    for other in [lock.clone(), client.lock(KEY), client.clone().lock(KEY)] {
        assert!(refused(other.acquire().wait(wait).await).is_busy());
        assert!(other.try_acquire().await.unwrap().is_none());
    }
    first.release().await.unwrap();
    let second = lock.acquire().wait(wait).await.unwrap();
    second.release().await.unwrap();
}

async fn two_clients_exclude_each_other_and_two_keys_do_not(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let first = one.lock("a").acquire().await.unwrap();
    assert!(refused(two.lock("a").acquire().wait(stage.part(10)).await).is_busy());
    let beside = one.lock("b").acquire().await.unwrap();
    assert!(two.lock("b").try_acquire().await.unwrap().is_none());
    drop((first, beside));
}

async fn clients_with_other_prefixes_do_not_meet(stage: &Stage) {
    let prefix = format!("{}shop:", stage.prefix());
    let shop = stage
        .client_with(|builder| builder.key_prefix(prefix))
        .await;
    let plain = stage.client().await;
    let guard = shop.lock(KEY).acquire().await.unwrap();
    assert_eq!(guard.key(), KEY);
    assert!(plain.lock(KEY).try_acquire().await.unwrap().is_some());
    let same = plain.lock(format!("shop:{KEY}"));
    assert!(same.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn default_wait_counts_where_an_acquisition_says_nothing(stage: &Stage) {
    let wait = stage.part(10);
    let client = stage
        .client_with(|builder| builder.default_wait(wait))
        .await;
    let _held = client.lock(KEY).acquire().await.unwrap();
    let start = Instant::now();
    assert!(refused(client.lock(KEY).acquire().await).is_busy());
    stage.assert_took(start, wait);
    assert!(refused(client.lock(KEY).acquire().wait(2 * wait).await).is_busy());
    stage.assert_took(start, 3 * wait);
}

async fn holders_count_and_lease_tell_what_is_held(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let (mine, theirs) = (one.lock(KEY), two.lock(KEY));
    for lock in [&mine, &theirs] {
        assert!(!lock.is_locked().await.unwrap());
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        assert_eq!(lock.remaining_lease().await.unwrap(), None);
        assert_eq!(lock.holders().await.unwrap(), []);
    }
    let guard = mine.acquire().lease(stage.lease()).await.unwrap();
    for lock in [&mine, &theirs] {
        assert!(lock.is_locked().await.unwrap());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        let left = lock.remaining_lease().await.unwrap().unwrap();
        assert!(left <= stage.lease() && left + stage.slack() >= stage.lease());
        let holders = lock.holders().await.unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].owner, guard.owner().to_string());
    }
    guard.release().await.unwrap();
    assert!(!theirs.is_locked().await.unwrap());
}

async fn force_release_frees_whoever_holds_and_tells_whether_anyone_did(stage: &Stage) {
    let (holder, other) = (stage.client().await, stage.client().await);
    let lock = other.lock(KEY);
    assert!(!lock.force_release().await.unwrap());
    let guard = holder.lock(KEY).acquire().await.unwrap();
    assert!(lock.force_release().await.unwrap());
    assert!(!lock.is_locked().await.unwrap());
    assert!(!lock.force_release().await.unwrap());
    assert!(refused(guard.release().await).is_lost());
}

async fn nothing_is_sent_before_the_first_poll(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    drop(lock.acquire());
    drop(lock.acquire().into_future());
    drop(lock.acquire().run(async {}));
    drop(lock.try_acquire());
    assert_eq!(stage.faults().calls(Op::Attempt), 0);
    assert_eq!(stage.faults().calls(Op::Release), 0);
}

async fn bad_input_is_refused_before_anything_is_sent(stage: &Stage) {
    let client = stage.faulty_client().await;
    let of_other_locks = [
        "{vic}:distlock_waiters",
        "{vic}:tagged:distlock_owners",
        "{vic}:rwlock_turn",
        "{vic}:6ba7b810-9dad-11d1-80b4-00c04fd430c8:7:request",
        "{vic}:6ba7b810-9dad-11d1-80b4-00c04fd430c8:7:rwlock_timeout:1",
    ];
    let of_other_locks = of_other_locks.map(str::to_owned);
    for key in [String::new(), "k".repeat(4097)]
        .into_iter()
        .chain(of_other_locks)
    {
        let lock = client.lock(key);
        let invalid = |error: Error| assert!(matches!(error, Error::InvalidKey { .. }), "{error}");
        invalid(refused(lock.acquire().await));
        invalid(refused(lock.try_acquire().await));
        invalid(refused(lock.acquire().run(async { panic!("ran") }).await));
        invalid(refused(lock.is_locked().await));
        invalid(refused(lock.holders().await));
        invalid(refused(lock.hold_count().await));
        invalid(refused(lock.remaining_lease().await));
        invalid(refused(lock.force_release().await));
    }
    let lock = client.lock(KEY);
    let just_too_long = Duration::from_secs(10 * 365 * 24 * 3600) + Duration::from_millis(1);
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos(999_999),
        just_too_long,
        Duration::MAX,
    ] {
        let error = refused(lock.acquire().lease(lease).await);
        assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        assert!(error.is_permanent());
    }
    let too_long = Duration::from_secs(366 * 24 * 3600);
    let error = refused(lock.acquire().wait(too_long).await);
    assert!(matches!(error, Error::InvalidWait { .. }), "{error}");
    for op in [Op::Attempt, Op::Release, Op::Inspect, Op::ForceRelease] {
        assert_eq!(stage.faults().calls(op), 0, "{op:?}");
    }
}

async fn shortest_and_longest_lease_and_wait_are_taken(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let longest = Duration::from_secs(10 * 365 * 24 * 3600);
    let guard = lock.acquire().lease(longest).await.unwrap();
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left <= longest && left + stage.slack() >= longest);
    let year = Duration::from_secs(365 * 24 * 3600);
    let again = lock.acquire().wait(year);
    guard.release().await.unwrap();
    again.await.unwrap().release().await.unwrap();
    if stage.is_paused() {
        let short = lock
            .acquire()
            .lease(Duration::from_millis(1))
            .await
            .unwrap();
        assert!(short.is_held());
    }
}

async fn longest_duration_lifts_the_limits_of_the_client(stage: &Stage) {
    let (short, long) = (stage.part(10), Duration::from_secs(30));
    let limited = |builder: Builder| builder.default_wait(short).max_hold(short);
    let client = stage
        .client_with(|builder| limited(builder).watchdog_timeout(long))
        .await;
    let lock = client.lock(KEY);
    let lasting = lock.acquire().max_hold(Duration::MAX).await.unwrap();
    let waiting = tokio::spawn(lock.acquire().wait(Duration::MAX).into_future());
    tokio::time::sleep(3 * short).await;
    assert!(lasting.is_held() && !waiting.is_finished());
    lasting.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

on_every_backend_and_in_every_run![
    free_lock_is_granted_and_release_frees_it,
    each_acquisition_has_an_owner_of_its_own,
    held_lock_times_out_and_says_what_stood_in_the_way,
    wait_zero_is_exactly_one_try,
    try_acquire_is_one_try_and_none_while_held,
    two_guards_of_one_key_side_by_side_exclude_each_other,
    two_clients_exclude_each_other_and_two_keys_do_not,
    clients_with_other_prefixes_do_not_meet,
    default_wait_counts_where_an_acquisition_says_nothing,
    holders_count_and_lease_tell_what_is_held,
    force_release_frees_whoever_holds_and_tells_whether_anyone_did,
    nothing_is_sent_before_the_first_poll,
    bad_input_is_refused_before_anything_is_sent,
    shortest_and_longest_lease_and_wait_are_taken,
    longest_duration_lifts_the_limits_of_the_client,
];

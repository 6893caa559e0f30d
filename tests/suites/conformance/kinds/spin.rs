//! The spin lock: waits by asking again, and subscribes to nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Error, MultiLock};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, refused};

const KEY: &str = "order:42";

on_every_backend![
    waiting_subscribes_to_nothing,
    pauses_grow_up_to_the_longest,
    pauses_are_not_shorter_than_a_millisecond,
    pauses_are_random_between_half_and_all_of_what_they_grow_to,
    multi_lock_waits_for_a_member_at_its_pauses,
    release_wakes_who_waits_by_messages,
    locks_of_other_kinds_keep_it_out,
    pauses_of_more_than_a_year_are_refused,
];

async fn pauses_of_more_than_a_year_are_refused(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.spin_lock(KEY).acquire().await.unwrap();
    let lock = client
        .spin_lock(KEY)
        .backoff(Duration::MAX, Duration::from_secs(1));
    let error = refused(lock.acquire().await);
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    assert_eq!(stage.faults().calls(Op::Attempt), 0);
    guard.release().await.unwrap();
}

async fn waiting_subscribes_to_nothing(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.spin_lock(KEY).acquire().await.unwrap();
    let wait = stage.part(5);
    assert!(refused(client.spin_lock(KEY).acquire().wait(wait).await).is_busy());
    assert_eq!(stage.faults().calls(Op::Subscribe), 0);
    assert_eq!(sizes(&client).channels, 0);
    guard.release().await.unwrap();
}

async fn pauses_grow_up_to_the_longest(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.spin_lock(KEY).acquire().await.unwrap();
    let (first, longest, wait) = (
        Duration::from_millis(2),
        Duration::from_millis(64),
        Duration::from_secs(1),
    );
    let lock = client.spin_lock(KEY).backoff(first, longest);
    assert!(refused(lock.acquire().wait(wait).await).is_busy());
    let asked = stage.faults().calls(Op::Attempt);
    // 2, 4, .. 64 ms and then 64 each, at least half of that: 20 to 38 times. A busy machine asks less often.
    assert!(asked <= 42, "asked {asked} times");
    assert!(!stage.is_paused() || asked >= 18, "asked {asked} times");
    guard.release().await.unwrap();
}

async fn pauses_are_not_shorter_than_a_millisecond(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.spin_lock(KEY).acquire().await.unwrap();
    // Without it, paused time would stand still between attempts without a pause.
    let way = Duration::from_millis(1);
    stage.faults().always(Op::Attempt, Fault::Delay(way));
    let lock = client
        .spin_lock(KEY)
        .backoff(Duration::ZERO, Duration::ZERO);
    let wait = Duration::from_millis(300);
    assert!(refused(lock.acquire().wait(wait).await).is_busy());
    let asked = stage.faults().calls(Op::Attempt);
    // A pause takes between half a millisecond and one. Without any, it would be asked 300 times.
    assert!(asked <= 210, "asked {asked} times");
    guard.release().await.unwrap();
}

async fn pauses_are_random_between_half_and_all_of_what_they_grow_to(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.spin_lock(KEY).acquire().await.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&asked);
    let note = move |_, _| tell.lock().unwrap().push(Instant::now());
    stage.faults().on_hit(note);
    // Told of, and nothing else.
    let none = Fault::Delay(Duration::ZERO);
    stage.faults().always(Op::Attempt, none);
    let (first, longest) = (Duration::from_millis(4), Duration::from_millis(64));
    let lock = client.spin_lock(KEY).backoff(first, longest);
    let wait = Duration::from_secs(2);
    assert!(refused(lock.acquire().wait(wait).await).is_busy());
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let (mut most, mut short) = (first, 0);
    // The last comes when the wait is over.
    for pair in asked[..asked.len() - 1].windows(2) {
        let pause = pair[1] - pair[0];
        assert!(pause >= most / 2, "{pause:?} of {most:?}");
        if stage.is_paused() {
            assert!(pause <= most + stage.slack(), "{pause:?} of {most:?}");
            short += u32::from(pause < most * 9 / 10);
        }
        most = (most * 2).min(longest);
    }
    assert_eq!(most, longest, "{} attempts", asked.len());
    // Four of five are.
    assert!(!stage.is_paused() || short > 10, "{short}");
    guard.release().await.unwrap();
}

async fn multi_lock_waits_for_a_member_at_its_pauses(stage: &Stage) {
    let (holder, client) = (stage.client().await, stage.faulty_client().await);
    let guard = holder.lock(KEY).acquire().await.unwrap();
    let pause = Duration::from_millis(500);
    let slow = client.spin_lock(KEY).backoff(pause, pause);
    let both = MultiLock::of([client.lock("stock:7").into(), slow.into()]);
    assert!(refused(both.acquire().wait(4 * pause).await).is_busy());
    let asked = stage.faults().calls(Op::Attempt);
    // Pauses of at least a quarter of a second; with the usual ones it would be more than twenty.
    assert!((2..=11).contains(&asked), "asked {asked} times");
    guard.release().await.unwrap();
}

async fn release_wakes_who_waits_by_messages(stage: &Stage) {
    let (spinning, listening) = (stage.client().await, stage.client().await);
    let guard = spinning.spin_lock(KEY).acquire().await.unwrap();
    let start = Instant::now();
    let releasing = async {
        sleep(stage.part(10)).await;
        guard.release().await.unwrap();
    };
    let waiting = async { listening.lock(KEY).acquire().await.unwrap().release().await };
    tokio::join!(releasing, waiting).1.unwrap();
    stage.assert_took(start, stage.part(10));
}

async fn locks_of_other_kinds_keep_it_out(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock(KEY).acquire().await.unwrap();
    assert!(two.spin_lock(KEY).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = one.spin_lock(KEY).acquire().await.unwrap();
    assert!(two.lock(KEY).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

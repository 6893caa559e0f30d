//! The places of a multi-lock in the queues of its keys: what it keeps when it waits for another key, for how long it
//! collects, and what it keeps from others meanwhile.
//!
//! In paused time alone: the promises are times, and orders of arrival.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Acquire, Builder, Client, Error, Guard};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Op};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::conformance::stage::{HAND_OVER_TIME, Stage, refused};

/// The names of those that were granted their keys, in this order, with the time since the start.
#[derive(Clone)]
struct Grants {
    start: Instant,
    names: Arc<Mutex<Vec<(&'static str, Duration)>>>,
}

impl Grants {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            names: Arc::default(),
        }
    }

    /// Enters as soon as it is granted, and stays inside for this long.
    fn enter(&self, name: &'static str, acquire: Acquire, section: Duration) -> JoinHandle<()> {
        let (grants, entering) = (self.clone(), acquire.into_future());
        tokio::spawn(async move {
            let guard = entering.await.unwrap();
            let granted = (name, grants.start.elapsed());
            grants.names.lock().unwrap().push(granted);
            sleep(section).await;
            guard.release().await.unwrap();
        })
    }

    fn of(&self, name: &str) -> Duration {
        let names = self.names.lock().unwrap();
        let granted = names.iter().find(|(granted, _)| *granted == name);
        granted.unwrap_or_else(|| panic!("{name}: {names:?}")).1
    }
}

/// Has a multi-lock of `a` and `b` wait for this long, first in line for `a`. Both keys are held by its own client. Then `a` is
/// handed over to the multi-lock, which collects. `b` is released later by `b_held`.
async fn collecting(
    stage: &Stage,
    client: &Client,
    waited: Duration,
    b_held: Duration,
) -> (Grants, Vec<JoinHandle<()>>) {
    let section = HAND_OVER_TIME / 2;
    let (a, b) = (client.lock("a"), client.lock("b"));
    let (first, b) = (a.acquire().await.unwrap(), b.acquire().await.unwrap());
    let grants = Grants::new();
    // Granted by the server just before, or the run of hand-overs would be over.
    let before = grants.enter("before", a.acquire(), section);
    stage.waiting(client, 1).await;
    let both = client.multi_lock(["a", "b"]).acquire();
    let both = grants.enter("both", both, Duration::from_millis(1));
    stage.waiting(client, 2).await;
    let released = grants.start + waited + b_held;
    let b = tokio::spawn(async move {
        sleep_until(released).await;
        b.release().await.unwrap();
    });
    sleep_until(grants.start + waited - section).await;
    first.release().await.unwrap();
    before.await.unwrap();
    (grants, vec![both, b])
}

async fn all_are_done(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

async fn place_is_kept_when_it_waits_for_another_of_its_keys(stage: &Stage) {
    let client = stage.client().await;
    let second = Duration::from_secs(1);
    let a = client.lock("a").acquire().await.unwrap();
    let b = client.lock("b").acquire().await.unwrap();
    let grants = Grants::new();
    let both = client.multi_lock(["a", "b"]).acquire();
    let mut tasks = vec![grants.enter("both", both, second)];
    stage.waiting(&client, 1).await;
    // It comes later than the multi-lock, which is in the queue of the other key until `a` is free.
    tasks.push(grants.enter("later", client.lock("b").acquire(), second));
    stage.waiting(&client, 2).await;
    sleep(second).await;
    a.release().await.unwrap();
    sleep(second).await;
    b.release().await.unwrap();
    all_are_done(tasks).await;
    assert!(grants.of("both") < grants.of("later"));
}

async fn what_it_collects_is_kept_from_later_ones_for_a_third_of_its_wait(stage: &Stage) {
    let ms = Duration::from_millis;
    let client = stage.client().await;
    // `b` comes in time, and the acquisition that needs only `a`, for longer, has to wait.
    let (grants, mut tasks) = collecting(stage, &client, ms(3_000), ms(900)).await;
    tasks.push(grants.enter("a alone", client.lock("a").acquire(), ms(20_000)));
    all_are_done(tasks).await;
    let (both, alone) = (grants.of("both"), grants.of("a alone"));
    assert!(
        both >= ms(3_900) && both <= ms(3_900) + stage.slack(),
        "{both:?}"
    );
    assert!(alone > both);
}

async fn it_lets_others_pass_when_it_has_collected_for_a_third_of_its_wait(stage: &Stage) {
    let ms = Duration::from_millis;
    let client = stage.client().await;
    // `b` does not come in time.
    let (grants, mut tasks) = collecting(stage, &client, ms(3_000), ms(5_000)).await;
    tasks.push(grants.enter("a alone", client.lock("a").acquire(), ms(1)));
    all_are_done(tasks).await;
    let alone = grants.of("a alone");
    assert!(
        alone >= ms(4_000) && alone <= ms(4_000) + stage.slack(),
        "{alone:?}"
    );
    assert!(grants.of("both") >= ms(8_000));
}

async fn offer_goes_back_to_the_server_soon_if_another_key_is_missing(stage: &Stage) {
    let ms = Duration::from_millis;
    let (client, other) = (stage.client().await, stage.client().await);
    let lock = other.lock("a");
    let theirs = tokio::spawn(async move {
        // Just before the multi-lock collects.
        sleep(ms(2_990)).await;
        let guard = lock.acquire().await.unwrap();
        let granted = Instant::now();
        guard.release().await.unwrap();
        granted
    });
    let (grants, tasks) = collecting(stage, &client, ms(3_000), ms(900)).await;
    let granted = theirs.await.unwrap() - grants.start;
    let latest = ms(3_000) + HAND_OVER_TIME + stage.slack();
    assert!(granted <= latest, "{granted:?}");
    all_are_done(tasks).await;
    assert!(grants.of("both") >= ms(3_900));
}

/// Each of its keys is freed in the server, although the hold of `a` alone could be handed over.
async fn holds_that_were_granted_together_are_not_handed_over(stage: &Stage) {
    let client = stage.faulty_client().await;
    let both = client.multi_lock(["a", "b"]).acquire().await.unwrap();
    let next = tokio::spawn(client.lock("a").acquire().into_future());
    stage.waiting(&client, 1).await;
    let attempts = stage.faults().calls(Op::Attempt);
    both.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), attempts + 1);
    next.release().await.unwrap();
}

/// It waits behind a hold of its own client, so it asks the server nothing until that hold ends.
async fn silence_that_begins_with_the_release_before_it_is_noticed_as_by_one_key(stage: &Stage) {
    let patience = stage.lease() * 2 / 3;
    for unreleased in [Fault::Never, Fault::FailBefore] {
        let client = impatient(stage, patience).await;
        let a = client.lock("a").acquire().await.unwrap();
        let both = client.multi_lock(["a", "b"]).acquire().into_future();
        let both = tokio::spawn(both);
        stage.waiting(&client, 1).await;
        sleep(Duration::from_secs(1)).await;
        for op in [Op::Attempt, Op::Renew] {
            stage.faults().always(op, Fault::Never);
        }
        stage.faults().always(Op::Release, unreleased);
        let silent = Instant::now();
        drop(a);
        let error = refused(both.await.unwrap());
        let took = silent.elapsed();
        assert!(error.is_unavailable(), "{error}");
        assert!(took >= patience, "{took:?}");
        assert!(took <= patience + stage.lease() / 6, "{took:?}");
        stage.faults().clear_all();
        stage.is_quiet_within(stage.lease()).await;
    }
}

/// A client that meets the stage's faults, and gives an acquisition up if the server has not answered for this long.
async fn impatient(stage: &Stage, patience: Duration) -> Client {
    let set = |builder: Builder| builder.faults(stage.faults()).unavailable_after(patience);
    stage.client_with(set).await
}

/// The server answers nothing from now on. Returns for how long the multi-lock waits after that, whose keys are released.
async fn silent_until_given_up(
    stage: &Stage,
    both: JoinHandle<Result<Guard, Error>>,
    held: impl IntoIterator<Item = Guard>,
) -> Duration {
    for op in [Op::Attempt, Op::Renew, Op::Release] {
        stage.faults().always(op, Fault::Never);
    }
    let silent = Instant::now();
    held.into_iter().for_each(drop);
    let error = refused(both.await.unwrap());
    assert!(error.is_unavailable(), "{error}");
    stage.faults().clear_all();
    silent.elapsed()
}

async fn silence_that_begins_while_it_collects_is_noticed_soon(stage: &Stage) {
    let patience = stage.lease() * 2 / 3;
    let client = impatient(stage, patience).await;
    let a = client.lock("a").acquire().await.unwrap();
    let b = client.lock("b").acquire().lease(40 * stage.lease());
    let b = b.await.unwrap();
    let both = client.multi_lock(["a", "b"]).acquire().into_future();
    let both = tokio::spawn(both);
    stage.waiting(&client, 1).await;
    // So it may collect for a third of this time.
    sleep(Duration::from_secs(600)).await;
    a.release().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let took = silent_until_given_up(stage, both, [b]).await;
    assert!(took >= patience, "{took:?}");
    assert!(took <= patience + stage.lease() / 6, "{took:?}");
    stage.is_quiet_within(stage.lease()).await;
}

async fn silence_that_begins_while_it_rests_is_noticed_soon(stage: &Stage) {
    let patience = stage.lease() * 2 / 3;
    let client = impatient(stage, patience).await;
    let (held, both) = resting(stage, &client, Duration::from_secs(600), |both| {
        tokio::spawn(both.into_future())
    })
    .await;
    let took = silent_until_given_up(stage, both, held).await;
    assert!(took >= patience, "{took:?}");
    assert!(took <= patience + stage.lease() / 6, "{took:?}");
    stage.is_quiet_within(stage.lease()).await;
}

/// The answer takes longer than a waiter for one key would wait before it asked the server itself.
async fn release_that_is_answered_late_is_waited_for_by_one_that_collects(stage: &Stage) {
    let client = stage.faulty_client().await;
    let a = client.lock("a").acquire().await.unwrap();
    let b = client.lock("b").acquire().await.unwrap();
    let grants = Grants::new();
    let second = Duration::from_secs(1);
    let both = client.multi_lock(["a", "b"]).acquire();
    let both = grants.enter("both", both, second);
    stage.waiting(&client, 1).await;
    sleep(600 * second).await;
    a.release().await.unwrap();
    let later = grants.enter("later", client.lock("a").acquire(), second);
    sleep(HAND_OVER_TIME).await;
    stage
        .faults()
        .next(Op::Release, Fault::DelayReply(4 * HAND_OVER_TIME));
    b.release().await.unwrap();
    all_are_done(vec![both, later]).await;
    assert!(grants.of("both") < grants.of("later"));
}

/// Each answer takes less time than a release may take, and both together take more.
async fn releases_that_are_answered_late_one_after_the_other_are_waited_for(stage: &Stage) {
    let second = Duration::from_secs(1);
    let longest = 2 * second;
    let set = |builder: Builder| builder.faults(stage.faults()).response_timeout(longest);
    let client = stage.client_with(set).await;
    let [a, b, c] = ["a", "b", "c"].map(|key| client.lock(key).acquire().into_future());
    let (a, b, c) = (a.await.unwrap(), b.await.unwrap(), c.await.unwrap());
    let grants = Grants::new();
    let all = client.multi_lock(["a", "b", "c"]).acquire();
    let all = grants.enter("all", all, second);
    stage.waiting(&client, 1).await;
    sleep(600 * second).await;
    a.release().await.unwrap();
    let later = grants.enter("later", client.lock("a").acquire(), second);
    sleep(HAND_OVER_TIME).await;
    stage
        .faults()
        .always(Op::Release, Fault::DelayReply(longest * 3 / 4));
    let b = tokio::spawn(b.release());
    sleep(longest / 2).await;
    let c = tokio::spawn(c.release());
    b.await.unwrap().unwrap();
    c.await.unwrap().unwrap();
    stage.faults().clear(Op::Release);
    all_are_done(vec![all, later]).await;
    assert!(grants.of("all") < grants.of("later"));
}

/// Has a multi-lock of `a` and `b` collect in vain so often that it rests, each time after it has waited for so long. Returns
/// the guards that hold both keys.
async fn resting<T>(
    stage: &Stage,
    client: &Client,
    waited: Duration,
    enter: impl FnOnce(Acquire) -> JoinHandle<T>,
) -> ([Guard; 2], JoinHandle<T>) {
    let locks = [client.lock("a"), client.lock("b")];
    let acquire = |at: usize| locks[at].acquire().lease(100 * stage.lease());
    let mut held = [
        Some(acquire(0).await.unwrap()),
        Some(acquire(1).await.unwrap()),
    ];
    let both = enter(client.multi_lock(["a", "b"]).acquire());
    stage.waiting(client, 1).await;
    for at in [0, 1, 0, 1] {
        sleep(waited).await;
        held[at].take().unwrap().release().await.unwrap();
        let freed = Instant::now();
        held[at] = Some(acquire(at).await.unwrap());
        // It was kept from this one for as long as the multi-lock collected.
        assert!(freed.elapsed() >= waited / 3, "{:?}", freed.elapsed());
    }
    (held.map(Option::unwrap), both)
}

async fn rest_ends_when_both_keys_are_free(stage: &Stage) {
    let client = stage.client().await;
    let grants = Grants::new();
    let waited = Duration::from_secs(600);
    let ([a, b], both) = resting(stage, &client, waited, |both| {
        grants.enter("both", both, Duration::from_millis(1))
    })
    .await;
    // One of them alone does not end it.
    a.release().await.unwrap();
    sleep(stage.lease() / 10).await;
    assert!(!both.is_finished());
    let a = client.lock("a").try_acquire().await.unwrap().unwrap();
    b.release().await.unwrap();
    sleep(stage.lease() / 10).await;
    assert!(!both.is_finished());
    let freed = grants.start.elapsed();
    a.release().await.unwrap();
    both.await.unwrap();
    let took = grants.of("both") - freed;
    assert!(took <= stage.slack(), "{took:?}");
}

async fn all_pass_one_that_rests_and_it_comes_back_after_three_leases(stage: &Stage) {
    let client = stage.client().await;
    let grants = Grants::new();
    let (second, waited) = (Duration::from_secs(1), Duration::from_secs(600));
    let ([a, b], both) = resting(stage, &client, waited, |both| {
        grants.enter("both", both, Duration::from_millis(1))
    })
    .await;
    let rested = Instant::now();
    let early = grants.enter(
        "early",
        client.lock("a").acquire(),
        3 * stage.lease() + second,
    );
    stage.waiting(&client, 2).await;
    a.release().await.unwrap();
    let released = grants.start.elapsed();
    sleep_until(rested + 3 * stage.lease() - second).await;
    let passed = grants.of("early") - released;
    assert!(passed <= stage.slack(), "{passed:?}");
    // The rest is over before this one can have the key.
    let late = grants.enter("late", client.lock("a").acquire(), second);
    early.await.unwrap();
    sleep(second).await;
    b.release().await.unwrap();
    all_are_done(vec![both, late]).await;
    assert!(grants.of("both") < grants.of("late"));
}

on_memory![
    rest_ends_when_both_keys_are_free,
    all_pass_one_that_rests_and_it_comes_back_after_three_leases,
    holds_that_were_granted_together_are_not_handed_over,
    silence_that_begins_with_the_release_before_it_is_noticed_as_by_one_key,
    silence_that_begins_while_it_collects_is_noticed_soon,
    silence_that_begins_while_it_rests_is_noticed_soon,
    release_that_is_answered_late_is_waited_for_by_one_that_collects,
    releases_that_are_answered_late_one_after_the_other_are_waited_for,
    place_is_kept_when_it_waits_for_another_of_its_keys,
    what_it_collects_is_kept_from_later_ones_for_a_third_of_its_wait,
    it_lets_others_pass_when_it_has_collected_for_a_third_of_its_wait,
    offer_goes_back_to_the_server_soon_if_another_key_is_missing,
];

in_several_slots![
    rest_ends_when_both_keys_are_free,
    all_pass_one_that_rests_and_it_comes_back_after_three_leases,
    place_is_kept_when_it_waits_for_another_of_its_keys,
    what_it_collects_is_kept_from_later_ones_for_a_third_of_its_wait,
    it_lets_others_pass_when_it_has_collected_for_a_third_of_its_wait,
    offer_goes_back_to_the_server_soon_if_another_key_is_missing,
];

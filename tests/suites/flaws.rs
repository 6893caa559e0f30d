//! Every flaw of a backend breaks the simplest scenario that it concerns, and the scenario passes without it. The chaos
//! tests look for these flaws in random histories and rely on this.
//!
//! The scenarios run in memory on paused time, so that each has one outcome.

use std::pin::Pin;
use std::time::Duration;

use distlock::test_util::Verbs;
use distlock::{Client, Error, Guard, MemoryServer, Quorum};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::flaws::Flaw;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// A server, faults, and perhaps a flaw.
struct Stage {
    server: MemoryServer,
    faults: Faults,
    flaw: Option<Flaw>,
}

impl Stage {
    /// The client that meets the faults and has the flaw.
    fn client(&self) -> Client {
        self.flawed(&self.server)
    }

    /// The same on another server.
    fn flawed(&self, server: &MemoryServer) -> Client {
        let builder = Client::builder()
            .watchdog_timeout(LEASE)
            .faults(&self.faults);
        let builder = match self.flaw {
            Some(flaw) => builder.flaw(flaw),
            None => builder,
        };
        builder.in_memory(server).unwrap()
    }

    /// A client without either.
    fn other(&self) -> Client {
        let builder = Client::builder().watchdog_timeout(LEASE);
        builder.in_memory(&self.server).unwrap()
    }

    /// Can nobody else have the key now?
    async fn is_taken(&self) -> bool {
        let tried = self.other().lock(KEY).try_acquire().await.unwrap();
        tried.is_none()
    }
}

async fn hold(client: &Client) -> Guard {
    hold_of(client, KEY).await
}

async fn hold_of(client: &Client, key: &str) -> Guard {
    client.lock(key).try_acquire().await.unwrap().unwrap()
}

type Waiting = JoinHandle<Result<Guard, Error>>;

/// An acquisition that waits; after a moment it stands in line and has subscribed.
async fn waiting(client: &Client) -> Waiting {
    let waiting = tokio::spawn(client.lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    waiting
}

async fn gets_in_within(limit: Duration, waiting: Waiting) -> bool {
    timeout(limit, waiting).await.is_ok()
}

/// What plays it is compiled once, whatever the type of its future.
type Scenario = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = bool> + 'a>>;

/// The scenario is as it should be without the flaw, and is not with it.
fn shows(flaw: Flaw, scenario: Scenario) {
    for flaw in [None, Some(flaw)] {
        let right = plays(flaw, scenario);
        assert_eq!(right, flaw.is_none(), "with {flaw:?}");
    }
}

/// Does the scenario go as it should?
fn plays(flaw: Option<Flaw>, scenario: Scenario) -> bool {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let stage = Stage {
        server: MemoryServer::new(),
        faults: Faults::new(),
        flaw,
    };
    runtime.block_on(scenario(&stage))
}

/// A test for each line: what should be, and the flaw that makes it otherwise.
macro_rules! scenarios {
    ($($flaw:ident: $scenario:ident,)*) => {
        mod scenario {
            use distlock_tests::flaws::Flaw;
            $(#[test] fn $scenario() { super::shows(Flaw::$flaw, |stage| Box::pin(super::$scenario(stage))); })*
        }
        const SHOWN: &[Flaw] = &[$(Flaw::$flaw),*];
    };
}

scenarios! {
    ReleaseWithoutOwnerTest: late_release_leaves_the_next_owner_alone,
    RenewWithoutOwnerTest: hold_that_another_has_taken_is_found_lost,
    NoTryAfterSubscribe: release_just_after_subscribing_is_heard,
    LeaseCutShort: grant_answered_late_ends_before_another_gets_in,
    LeaseCutShort: renewal_answered_late_ends_before_another_gets_in,
    DeltaInsteadOfCount: attempt_sent_twice_is_freed_by_one_release,
    NoCleanUp: attempt_that_timed_out_is_ended,
    RenewalNotRetried: renewal_that_failed_once_is_tried_again,
    UnsubscribeRace: waiter_just_after_another_gave_up_hears,
    ReentryByKey: two_tasks_of_a_client_exclude_each_other,
    TtlForgotten: hold_that_nobody_releases_ends_with_its_lease,
    NoTryAfterReconnect: waiter_tries_when_its_subscription_stands_again,
    ChangeCountsAgain: count_sent_twice_counts_once,
    RequestForgotten: change_whose_answer_was_lost_is_made_once,
    EndForgotten: attempt_that_comes_after_the_release_takes_no_permit,
    PermitsGivenAgain: permit_whose_release_is_sent_twice_is_one_permit,
    RefusalTakenForGrant: minority_does_not_grant,
    ReaderBesideWriter: reader_waits_for_the_writer,
    PlaceNotKept: waiter_that_came_first_is_first,
    TokenFromMemory: token_of_another_client_is_exceeded,
    HandOverNotConfirmed: hold_handed_over_after_its_loss_is_told_soon,
    HandOverNotConfirmed: waiter_that_hears_of_a_loss_has_it_told_soon,
    HandOverNotConfirmed: holder_is_told_soon_when_its_own_client_is_granted_the_key,
    ReconnectUntold: hold_that_a_restart_took_away_is_told_soon,
    LookSeesNothing: waiter_gets_a_key_that_was_deleted_without_a_message,
    LookSeesNothing: waiter_gets_a_key_whose_lease_was_cut_short_without_a_message,
    ReleaseNotRepeated: hold_that_comes_back_after_its_release_is_ended,
    HoldersUnseen: hold_outlives_each_server_that_forgets_it_in_turn,
    SeveralKeysByTries: waiter_for_two_hot_keys_gets_both,
    UnpolledKeepsPlace: waiter_behind_one_that_is_not_polled_gets_in,
    DoubtEndsWithLease: attempt_that_a_hung_server_carries_out_is_ended,
    AnswerOfAnother: attempt_beside_a_granted_one_is_refused_by_the_holder,
    BatchCutInTheMiddle: keys_acquired_at_once_are_all_taken,
    BatchCutInTheMiddle: keys_released_at_once_are_all_free,
}

/// Scenarios that no flaw of a backend breaks: the client alone could be wrong there.
macro_rules! flawless {
    ($($scenario:ident,)*) => {
        mod flawless {
            $(#[test] fn $scenario() { assert!(super::plays(None, |stage| Box::pin(super::$scenario(stage)))); })*
        }
    };
}

flawless! {
    waiter_dropped_after_wake_passes_it_on,
    hold_after_a_lost_one_of_its_key_is_kept,
    waiter_after_a_fixed_lease_gets_one_that_is_kept,
    hold_handed_over_stays_in_the_server,
}

#[test]
fn every_flaw_is_shown() {
    for flaw in Flaw::ALL {
        assert!(SHOWN.contains(&flaw), "{flaw:?} has no scenario");
    }
}

async fn late_release_leaves_the_next_owner_alone(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let first = hold(&client).await;
    other.lock(KEY).force_release().await.unwrap();
    let _second = hold(&other).await;
    let _lost = first.release().await;
    stage.is_taken().await
}

async fn attempt_beside_a_granted_one_is_refused_by_the_holder(stage: &Stage) -> bool {
    let client = stage.client();
    let _held = hold(&stage.other()).await;
    let free = client.lock("order:43").try_acquire();
    let taken = client.lock(KEY).try_acquire();
    let (free, taken) = tokio::join!(free.into_future(), taken.into_future());
    free.unwrap().is_some() && taken.unwrap().is_none()
}

async fn keys_acquired_at_once_are_all_taken(stage: &Stage) -> bool {
    let client = stage.client();
    stage.faults.next(Op::Attempt, Fault::Delay(MOMENT));
    let (_first, _second) = tokio::join!(hold_of(&client, "order:43"), hold(&client));
    stage.is_taken().await
}

async fn keys_released_at_once_are_all_free(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold_of(&client, "order:43").await;
    let second = hold(&client).await;
    stage.faults.next(Op::Release, Fault::Delay(MOMENT));
    let (first, second) = tokio::join!(first.release(), second.release());
    first.unwrap();
    second.unwrap();
    !stage.is_taken().await
}

async fn hold_that_another_has_taken_is_found_lost(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let first = hold(&client).await;
    other.lock(KEY).force_release().await.unwrap();
    let _second = hold(&other).await;
    sleep(LEASE * 2).await;
    !first.is_held()
}

async fn release_just_after_subscribing_is_heard(stage: &Stage) -> bool {
    let held = hold(&stage.other()).await;
    let waiting = waiting(&stage.client()).await;
    held.release().await.unwrap();
    gets_in_within(SECOND, waiting).await
}

async fn grant_answered_late_ends_before_another_gets_in(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::DelayReply(SECOND));
    let acquiring = stage.client().lock(KEY).acquire().lease(3 * SECOND);
    let first = acquiring.await.unwrap();
    let _second = stage.other().lock(KEY).acquire().await.unwrap();
    !first.is_held()
}

async fn renewal_answered_late_ends_before_another_gets_in(stage: &Stage) -> bool {
    stage.faults.next(Op::Renew, Fault::DelayReply(SECOND));
    stage.faults.always(Op::Renew, Fault::FailBefore);
    let first = hold(&stage.client()).await;
    let _second = stage.other().lock(KEY).acquire().await.unwrap();
    !first.is_held()
}

async fn attempt_sent_twice_is_freed_by_one_release(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::Double);
    hold(&stage.client()).await.release().await.unwrap();
    !stage.is_taken().await
}

async fn waiter_dropped_after_wake_passes_it_on(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&stage.other()).await;
    let (first, second) = (waiting(&client).await, waiting(&client).await);
    held.release().await.unwrap();
    first.abort();
    gets_in_within(SECOND, second).await
}

async fn hold_after_a_lost_one_of_its_key_is_kept(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold(&client).await;
    stage.other().lock(KEY).force_release().await.unwrap();
    let second = hold(&client).await;
    drop(first);
    sleep(2 * LEASE).await;
    second.is_held()
}

async fn attempt_that_timed_out_is_ended(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::DelayReply(SECOND));
    let acquiring = stage.client().lock(KEY).acquire().wait(SECOND / 2);
    acquiring.await.unwrap_err();
    sleep(MOMENT).await;
    !stage.is_taken().await
}

async fn renewal_that_failed_once_is_tried_again(stage: &Stage) -> bool {
    stage.faults.next(Op::Renew, Fault::FailBefore);
    let held = hold(&stage.client()).await;
    sleep(2 * LEASE).await;
    held.is_held()
}

async fn waiter_just_after_another_gave_up_hears(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&stage.other()).await;
    let gave_up = client.lock(KEY).acquire().wait(SECOND).await;
    assert!(gave_up.unwrap_err().is_busy());
    let waiting = waiting(&client).await;
    sleep(SECOND).await;
    held.release().await.unwrap();
    gets_in_within(SECOND, waiting).await
}

async fn two_tasks_of_a_client_exclude_each_other(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    let inside = gets_in_within(SECOND, waiting(&client).await).await;
    held.release().await.unwrap();
    !inside
}

async fn hold_that_nobody_releases_ends_with_its_lease(stage: &Stage) -> bool {
    stage.faults.always(Op::Release, Fault::FailBefore);
    let acquiring = stage.client().lock(KEY).acquire().lease(SECOND);
    drop(acquiring.await.unwrap());
    gets_in_within(2 * LEASE, waiting(&stage.other()).await).await
}

async fn waiter_tries_when_its_subscription_stands_again(stage: &Stage) -> bool {
    let held = hold(&stage.other()).await;
    let waiting = waiting(&stage.client()).await;
    assert_eq!(stage.faults.mute(), 1);
    sleep(MOMENT).await;
    held.release().await.unwrap();
    stage.faults.unmute();
    gets_in_within(SECOND, waiting).await
}

async fn waiter_after_a_fixed_lease_gets_one_that_is_kept(stage: &Stage) -> bool {
    let client = stage.client();
    let acquiring = client.lock(KEY).acquire().lease(SECOND);
    let first = acquiring.await.unwrap();
    let waiting = waiting(&client).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    sleep(2 * SECOND).await;
    second.is_held()
}

async fn hold_handed_over_stays_in_the_server(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold(&client).await;
    let waiting = waiting(&client).await;
    first.release().await.unwrap();
    let _second = waiting.await.unwrap().unwrap();
    sleep(MOMENT).await;
    stage.is_taken().await
}

async fn hold_handed_over_after_its_loss_is_told_soon(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let first = hold(&client).await;
    let waiting = waiting(&client).await;
    other.lock(KEY).force_release().await.unwrap();
    let _inside = hold(&other).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    timeout(SECOND, second.lost()).await.is_ok()
}

/// Nothing is handed over here: the message alone shows that something happened.
async fn waiter_that_hears_of_a_loss_has_it_told_soon(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let held = hold(&client).await;
    let _waiting = waiting(&client).await;
    // The waiter expects a hand-over at first. Then it listens.
    sleep(SECOND).await;
    other.lock(KEY).force_release().await.unwrap();
    let _inside = hold(&other).await;
    timeout(SECOND, held.lost()).await.is_ok()
}

async fn holder_is_told_soon_when_its_own_client_is_granted_the_key(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    stage.other().lock(KEY).force_release().await.unwrap();
    let _granted = hold(&client).await;
    timeout(SECOND, held.lost()).await.is_ok()
}

async fn hold_that_a_restart_took_away_is_told_soon(stage: &Stage) -> bool {
    let (client, fixed) = (stage.client(), "order:43");
    let held = hold(&client).await;
    let acquiring = client.lock(fixed).acquire().lease(2 * LEASE);
    let with_a_lease = acquiring.await.unwrap();
    sleep(MOMENT).await;
    distlock::test_util::wipe(&stage.server);
    stage.faults.reconnect();
    sleep(MOMENT).await;
    !held.is_held() && !with_a_lease.is_held()
}

async fn attempt_that_a_hung_server_carries_out_is_ended(stage: &Stage) -> bool {
    let (client, hangs) = (stage.client(), LEASE + 2 * SECOND);
    stage.faults.next(Op::Attempt, Fault::Late(hangs));
    stage.faults.always(Op::Release, Fault::Never);
    let once = client.lock(KEY).acquire().wait(Duration::ZERO);
    assert!(once.await.unwrap_err().is_unavailable());
    sleep(hangs - MOMENT).await;
    assert!(!stage.is_taken().await, "carried out too early");
    sleep(2 * MOMENT).await;
    assert!(stage.is_taken().await, "never carried out");
    stage.faults.clear(Op::Release);
    stage.faults.reconnect();
    sleep(SECOND).await;
    !stage.is_taken().await
}

async fn hold_that_comes_back_after_its_release_is_ended(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    let owner = held.owner().number();
    held.release().await.unwrap();
    sleep(MOMENT).await;
    // A replica takes over that has not heard of the release.
    let replica = Verbs::new(&stage.other(), client.id());
    replica.attempt(KEY, owner, LEASE).await.unwrap();
    assert!(stage.is_taken().await);
    stage.faults.reconnect();
    sleep(MOMENT).await;
    !stage.is_taken().await
}

async fn waiter_gets_a_key_that_was_deleted_without_a_message(stage: &Stage) -> bool {
    let (other, key) = (stage.other(), "order:43");
    let _held = other.lock(key).acquire().lease(10 * LEASE).await.unwrap();
    let waiting = tokio::spawn(stage.client().lock(key).acquire().into_future());
    sleep(SECOND).await;
    stage.faults.silence(key);
    assert!(other.lock(key).force_release().await.unwrap());
    gets_in_within(LEASE, waiting).await
}

async fn waiter_gets_a_key_whose_lease_was_cut_short_without_a_message(stage: &Stage) -> bool {
    let other = stage.other();
    let verbs = Verbs::new(&other, other.id());
    verbs.attempt(KEY, 1, 10 * LEASE).await.unwrap();
    let waiting = waiting(&stage.client()).await;
    sleep(SECOND).await;
    stage.faults.silence(KEY);
    other.lock(KEY).force_release().await.unwrap();
    verbs.attempt(KEY, 1, LEASE / 2).await.unwrap();
    gets_in_within(LEASE, waiting).await
}

async fn hold_outlives_each_server_that_forgets_it_in_turn(stage: &Stage) -> bool {
    let servers: Vec<_> = (0..3).map(|_| MemoryServer::new()).collect();
    let clients: Vec<Client> = servers.iter().map(|server| stage.flawed(server)).collect();
    let held = Quorum::new(clients.clone()).lock(KEY).acquire().await;
    let held = held.unwrap();
    for client in &clients {
        assert!(client.lock(KEY).force_release().await.unwrap());
        sleep(LEASE).await;
    }
    held.is_held()
}

async fn waiter_for_two_hot_keys_gets_both(stage: &Stage) -> bool {
    let client = stage.client();
    let mut singles = JoinSet::new();
    for key in ["a", "a", "a", "b", "b", "b"] {
        let acquire = client.lock(key).acquire();
        singles.spawn(async move {
            loop {
                acquire.clone().run(sleep(SECOND / 1_000)).await.unwrap();
            }
        });
    }
    sleep(SECOND).await;
    let lock = client.multi_lock(["a", "b"]);
    let once = || lock.acquire().wait(Duration::ZERO).into_future();
    let both = match stage.flaw {
        Some(Flaw::SeveralKeysByTries) => Flaw::by_tries(once, Some(SECOND)).await,
        _ => lock.acquire().wait(SECOND).await,
    };
    both.is_ok()
}

async fn waiter_behind_one_that_is_not_polled_gets_in(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    let acquiring = client.lock(KEY).acquire().into_future();
    let mut unpolled = Flaw::around_waiter(stage.flaw, acquiring);
    assert!(timeout(MOMENT, &mut unpolled).await.is_err());
    let next = waiting(&client).await;
    held.release().await.unwrap();
    gets_in_within(3 * SECOND, next).await
}

async fn count_sent_twice_counts_once(stage: &Stage) -> bool {
    let latch = stage.client().count_down_latch(KEY);
    latch.try_set_count(3).await.unwrap();
    stage.faults.next(Op::Adjust, Fault::FailAfter);
    latch.count_down().await.unwrap() == 2
}

async fn change_whose_answer_was_lost_is_made_once(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    stage.faults.next(Op::Adjust, Fault::FailAfter);
    semaphore.add_permits(2).await.unwrap() == 2
}

async fn attempt_that_comes_after_the_release_takes_no_permit(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    semaphore.try_set_permits(1).await.unwrap();
    stage.faults.next(Op::Attempt, Fault::Late(SECOND));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    sleep(2 * SECOND).await;
    semaphore.available_permits().await.unwrap() == 1
}

async fn permit_whose_release_is_sent_twice_is_one_permit(stage: &Stage) -> bool {
    let semaphore = stage.client().semaphore(KEY);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.try_acquire().await.unwrap().unwrap();
    stage.faults.next(Op::Release, Fault::FailAfter);
    permit.release().await.unwrap();
    semaphore.available_permits().await.unwrap() == 1
}

async fn minority_does_not_grant(stage: &Stage) -> bool {
    let servers = [(); 3].map(|()| MemoryServer::new());
    let mut held = Vec::new();
    for server in &servers[..2] {
        let other = Client::builder().in_memory(server).unwrap();
        held.push(hold(&other).await);
    }
    let lock = Quorum::new(servers.iter().map(|server| stage.flawed(server))).lock(KEY);
    lock.try_acquire().await.unwrap().is_none()
}

async fn reader_waits_for_the_writer(stage: &Stage) -> bool {
    let client = stage.client();
    let writing = stage.other().rw_lock(KEY).write().acquire().await;
    let _writing = writing.unwrap();
    client
        .rw_lock(KEY)
        .read()
        .try_acquire()
        .await
        .unwrap()
        .is_none()
}

async fn waiter_that_came_first_is_first(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let held = other.fair_lock(KEY).acquire().await.unwrap();
    let first = tokio::spawn(client.fair_lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    let second = tokio::spawn(other.fair_lock(KEY).acquire().into_future());
    sleep(MOMENT).await;
    held.release().await.unwrap();
    sleep(MOMENT).await;
    first.is_finished() && !second.is_finished()
}

async fn token_of_another_client_is_exceeded(stage: &Stage) -> bool {
    let before = stage.other().fenced_lock(KEY).acquire().await.unwrap();
    let highest = before.token();
    before.release().await.unwrap();
    let after = stage.client().fenced_lock(KEY).acquire().await.unwrap();
    after.token() > highest
}

//! Attempts and releases that are repeated, late, or answered wrongly.

use std::time::Duration;

use distlock::test_util::Verbs;
use distlock::{Client, MemoryServer, Quorum};
use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use super::stage::{KEY, LEASE, MOMENT, SECOND, Stage, gets_in_within, hold, hold_of, waiting};

pub(super) async fn late_release_leaves_the_next_owner_alone(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let first = hold(&client).await;
    other.lock(KEY).force_release().await.unwrap();
    let _second = hold(&other).await;
    let _lost = first.release().await;
    stage.is_taken().await
}

pub(super) async fn attempt_beside_a_granted_one_is_refused_by_the_holder(stage: &Stage) -> bool {
    let client = stage.client();
    let _held = hold(&stage.other()).await;
    let free = client.lock("order:43").try_acquire();
    let taken = client.lock(KEY).try_acquire();
    let (free, taken) = tokio::join!(free.into_future(), taken.into_future());
    free.unwrap().is_some() && taken.unwrap().is_none()
}

pub(super) async fn keys_acquired_at_once_are_all_taken(stage: &Stage) -> bool {
    let client = stage.client();
    stage.faults.next(Op::Attempt, Fault::Delay(MOMENT));
    let (_first, _second) = tokio::join!(hold_of(&client, "order:43"), hold(&client));
    stage.is_taken().await
}

pub(super) async fn keys_released_at_once_are_all_free(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold_of(&client, "order:43").await;
    let second = hold(&client).await;
    stage.faults.next(Op::Release, Fault::Delay(MOMENT));
    let (first, second) = tokio::join!(first.release(), second.release());
    first.unwrap();
    second.unwrap();
    !stage.is_taken().await
}

pub(super) async fn attempt_sent_twice_is_freed_by_one_release(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::Double);
    hold(&stage.client()).await.release().await.unwrap();
    !stage.is_taken().await
}

pub(super) async fn attempt_that_timed_out_is_ended(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::DelayReply(SECOND));
    let acquiring = stage.client().lock(KEY).acquire().wait(SECOND / 2);
    acquiring.await.unwrap_err();
    sleep(MOMENT).await;
    !stage.is_taken().await
}

pub(super) async fn two_tasks_of_a_client_exclude_each_other(stage: &Stage) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    let inside = gets_in_within(SECOND, waiting(&client).await).await;
    held.release().await.unwrap();
    !inside
}

pub(super) async fn attempt_that_a_hung_server_carries_out_is_ended(stage: &Stage) -> bool {
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

pub(super) async fn hold_that_comes_back_after_its_release_is_ended(stage: &Stage) -> bool {
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

pub(super) async fn minority_does_not_grant(stage: &Stage) -> bool {
    let servers = [(); 3].map(|()| MemoryServer::new());
    let mut held = Vec::new();
    for server in &servers[..2] {
        let other = Client::builder().in_memory(server).unwrap();
        held.push(hold(&other).await);
    }
    let lock = Quorum::new(servers.iter().map(|server| stage.flawed(server))).lock(KEY);
    lock.try_acquire().await.unwrap().is_none()
}

pub(super) async fn token_of_another_client_is_exceeded(stage: &Stage) -> bool {
    let before = stage.other().fenced_lock(KEY).acquire().await.unwrap();
    let highest = before.token();
    before.release().await.unwrap();
    let after = stage.client().fenced_lock(KEY).acquire().await.unwrap();
    after.token() > highest
}

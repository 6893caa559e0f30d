//! Leases that end, and losses that must be told.

use distlock::{Client, MemoryServer, Quorum};
use distlock_tests::faults::{Fault, Op};
use tokio::time::{sleep, timeout};

use super::stage::{KEY, LEASE, MOMENT, SECOND, Stage, gets_in_within, hold, waiting};

pub(super) async fn hold_that_another_has_taken_is_found_lost(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let first = hold(&client).await;
    other.lock(KEY).force_release().await.unwrap();
    let _second = hold(&other).await;
    sleep(LEASE * 2).await;
    !first.is_held()
}

pub(super) async fn grant_answered_late_ends_before_another_gets_in(stage: &Stage) -> bool {
    stage.faults.next(Op::Attempt, Fault::DelayReply(SECOND));
    let acquiring = stage.client().lock(KEY).acquire().lease(3 * SECOND);
    let first = acquiring.await.unwrap();
    let _second = stage.other().lock(KEY).acquire().await.unwrap();
    !first.is_held()
}

pub(super) async fn renewal_answered_late_ends_before_another_gets_in(stage: &Stage) -> bool {
    stage.faults.next(Op::Renew, Fault::DelayReply(SECOND));
    stage.faults.always(Op::Renew, Fault::FailBefore);
    let first = hold(&stage.client()).await;
    let _second = stage.other().lock(KEY).acquire().await.unwrap();
    !first.is_held()
}

pub(super) async fn hold_after_a_lost_one_of_its_key_is_kept(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold(&client).await;
    stage.other().lock(KEY).force_release().await.unwrap();
    let second = hold(&client).await;
    drop(first);
    sleep(2 * LEASE).await;
    second.is_held()
}

pub(super) async fn renewal_that_failed_once_is_tried_again(stage: &Stage) -> bool {
    stage.faults.next(Op::Renew, Fault::FailBefore);
    let held = hold(&stage.client()).await;
    sleep(2 * LEASE).await;
    held.is_held()
}

pub(super) async fn hold_that_nobody_releases_ends_with_its_lease(stage: &Stage) -> bool {
    stage.faults.always(Op::Release, Fault::FailBefore);
    let acquiring = stage.client().lock(KEY).acquire().lease(SECOND);
    drop(acquiring.await.unwrap());
    gets_in_within(2 * LEASE, waiting(&stage.other()).await).await
}

pub(super) async fn hold_handed_over_stays_in_the_server(stage: &Stage) -> bool {
    let client = stage.client();
    let first = hold(&client).await;
    let waiting = waiting(&client).await;
    first.release().await.unwrap();
    let _second = waiting.await.unwrap().unwrap();
    sleep(MOMENT).await;
    stage.is_taken().await
}

pub(super) async fn hold_handed_over_after_its_loss_is_told_soon(stage: &Stage) -> bool {
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
pub(super) async fn waiter_that_hears_of_a_loss_has_it_told_soon(stage: &Stage) -> bool {
    let (client, other) = (stage.client(), stage.other());
    let held = hold(&client).await;
    let _waiting = waiting(&client).await;
    // The waiter expects a hand-over at first. Then it listens.
    sleep(SECOND).await;
    other.lock(KEY).force_release().await.unwrap();
    let _inside = hold(&other).await;
    timeout(SECOND, held.lost()).await.is_ok()
}

pub(super) async fn holder_is_told_soon_when_its_own_client_is_granted_the_key(
    stage: &Stage,
) -> bool {
    let client = stage.client();
    let held = hold(&client).await;
    stage.other().lock(KEY).force_release().await.unwrap();
    let _granted = hold(&client).await;
    timeout(SECOND, held.lost()).await.is_ok()
}

pub(super) async fn hold_that_a_restart_took_away_is_told_soon(stage: &Stage) -> bool {
    let (client, fixed) = (stage.client(), "order:43");
    let held = hold(&client).await;
    let acquiring = client.lock(fixed).acquire().lease(2 * LEASE);
    let with_a_lease = acquiring.await.unwrap();
    sleep(MOMENT).await;
    stage.server.forget_all();
    stage.faults.reconnect();
    sleep(MOMENT).await;
    !held.is_held() && !with_a_lease.is_held()
}

pub(super) async fn hold_outlives_each_server_that_forgets_it_in_turn(stage: &Stage) -> bool {
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

pub(super) async fn extended_lease_keeps_others_out(stage: &Stage) -> bool {
    let acquiring = stage.client().lock(KEY).acquire().lease(2 * SECOND);
    let held = acquiring.await.unwrap();
    held.extend(4 * SECOND).await.unwrap();
    sleep(3 * SECOND).await;
    held.is_held() && stage.is_taken().await
}

pub(super) async fn detached_hold_is_attached_once(stage: &Stage) -> bool {
    let client = stage.client();
    let detached = hold(&client).await.detach().unwrap();
    let attached = stage.other().attach(&detached).await.unwrap();
    let again = client.attach(&detached).await;
    again.is_err() && attached.is_held()
}

pub(super) async fn hold_ends_before_its_lease_by_the_margin(stage: &Stage) -> bool {
    let client = stage.client_with_margin(SECOND);
    let held = client.lock(KEY).acquire().lease(3 * SECOND).await.unwrap();
    sleep(2 * SECOND + MOMENT).await;
    !held.is_held() && stage.is_taken().await
}

//! A key that is freed by force from the holders that somebody has seen, and from nobody else.

use std::time::Duration;

use distlock::test_util::{Answer, Kind, Verbs};
use distlock::{Client, Error, ForceRelease, KeyReport, Primitive};
use tokio::time::Instant;
use uuid::Uuid;

use crate::conformance::stage::Stage;

on_every_backend! {
    lock_is_freed_from_the_holder_that_was_seen,
    holder_that_came_after_the_look_keeps_the_lock_and_is_named,
    own_hold_that_was_freed_is_not_handed_over_to_the_next_waiter,
    lock_that_was_released_after_the_look_was_free,
    lock_that_was_taken_and_released_after_a_look_at_nothing_was_free,
    owner_that_has_another_token_than_was_seen_keeps_the_lock,
    fair_lock_is_freed_from_the_holder_that_was_seen_and_the_first_waiter_gets_it,
    waiter_of_a_fair_lock_that_came_after_the_look_gets_it_at_once,
    readers_that_were_seen_lose_the_lock_also_if_one_of_them_has_left,
    reader_or_writer_that_came_after_the_look_keeps_the_lock,
    writer_that_was_seen_loses_the_lock,
    semaphore_is_deleted_only_with_the_number_and_the_owners_that_were_seen,
    expirable_semaphore_is_deleted_only_with_the_permits_that_were_seen,
    expirable_semaphore_of_which_nobody_has_a_permit_is_deleted_with_the_number_that_was_seen,
    latch_is_deleted_only_with_the_count_that_was_seen,
    key_that_is_another_primitive_by_now_stays,
}

async fn seen(client: &Client) -> KeyReport {
    client.inspect("k").await.unwrap()
}

/// Frees the holders that were seen, and returns the outcome.
async fn force(client: &Client, seen: &KeyReport) -> ForceRelease {
    client.force_release(seen).await.unwrap()
}

/// Nothing is freed. Returns what the key is now.
async fn is_refused(client: &Client, seen: &KeyReport) -> KeyReport {
    match force(client, seen).await {
        ForceRelease::Changed(now) => *now,
        other => panic!("{other:?}"),
    }
}

async fn lock_is_freed_from_the_holder_that_was_seen(stage: &Stage) {
    let client = stage.client().await;
    let _plain = client.lock("k").acquire().await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    assert_eq!(force(&client, &shown).await, ForceRelease::WasFree);
    let _fenced = client.fenced_lock("k").acquire().await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(shown.primitive, Primitive::FencedLock);
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    assert!(!seen(&client).await.is_held());
}

async fn holder_that_came_after_the_look_keeps_the_lock_and_is_named(stage: &Stage) {
    let client = stage.client().await;
    let next = stage.client_with(|builder| builder.name("next")).await;
    let free = seen(&client).await;
    let first = client.lock("k").acquire().await.unwrap();
    let shown = seen(&client).await;
    first.release().await.unwrap();
    let guard = next.lock("k").acquire().await.unwrap();
    for shown in [shown, free] {
        let now = is_refused(&client, &shown).await;
        assert_eq!(now.holders[0].owner, guard.owner().to_string());
        assert_eq!(now.holders[0].client.as_ref().unwrap().name, "next");
    }
    guard.release().await.unwrap();
}

/// The server has nothing of the hold any more, which the next waiter of the same client would otherwise take over.
async fn own_hold_that_was_freed_is_not_handed_over_to_the_next_waiter(stage: &Stage) {
    let client = stage.client().await;
    let held = client.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(client.lock("k").acquire().into_future());
    let waits = async || !client.snapshot().waits.is_empty();
    stage.eventually("it waits", stage.lease(), waits).await;
    let (shown, freed) = (seen(&client).await, held.owner());
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    drop(held);
    let next = waiter.await.unwrap().unwrap();
    assert_ne!(next.owner(), freed);
    let now = seen(&client).await;
    assert_eq!(now.holders[0].owner, next.owner().to_string());
    next.release().await.unwrap();
}

async fn lock_that_was_released_after_the_look_was_free(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let shown = seen(&client).await;
    guard.release().await.unwrap();
    assert_eq!(force(&client, &shown).await, ForceRelease::WasFree);
    let free = seen(&client).await;
    assert_eq!(force(&client, &free).await, ForceRelease::WasFree);
}

/// Also if the server keeps the token of the last grant.
async fn lock_that_was_taken_and_released_after_a_look_at_nothing_was_free(stage: &Stage) {
    let client = stage.client().await;
    let nothing = seen(&client).await;
    assert_eq!(nothing.primitive, Primitive::Nothing);
    let guard = client.fenced_lock("k").acquire().await.unwrap();
    let now = is_refused(&client, &nothing).await;
    assert_eq!(now.holders[0].owner, guard.owner().to_string());
    guard.release().await.unwrap();
    assert_eq!(force(&client, &nothing).await, ForceRelease::WasFree);
}

/// As a thread of Redisson, which is the same owner each time that it locks.
async fn owner_that_has_another_token_than_was_seen_keeps_the_lock(stage: &Stage) {
    let client = stage.client().await;
    let verbs = Verbs::new(&client, Uuid::new_v4()).of_kind(Kind::Fenced);
    let acquire = async || {
        let answer = verbs.attempt_above("k", 1, stage.lease(), 0).await;
        assert!(matches!(answer, Ok(Answer::Token(Some(_)))), "{answer:?}");
    };
    acquire().await;
    let shown = seen(&client).await;
    verbs.release("k", 1).await.unwrap();
    assert_eq!(force(&client, &shown).await, ForceRelease::WasFree);
    acquire().await;
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.holders[0].owner, shown.holders[0].owner);
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
}

async fn fair_lock_is_freed_from_the_holder_that_was_seen_and_the_first_waiter_gets_it(
    stage: &Stage,
) {
    let (one, two) = (stage.client().await, stage.client().await);
    let first = one.fair_lock("k").acquire().await.unwrap();
    let (lock, other) = (two.fair_lock("k"), stage.client().await.fair_lock("k"));
    let mut waiting = Box::pin(async move { lock.acquire().await });
    let is_queued = async |many| {
        stage
            .eventually("the place in the queue", stage.slack(), || async {
                one.inspect("k").await.unwrap().waiter_total == many
            })
            .await;
    };
    tokio::select! {
        _ = &mut waiting => panic!("the lock is held"),
        () = is_queued(1) => {}
    }
    let shown = seen(&one).await;
    assert_eq!(shown.primitive, Primitive::FairLock);
    assert_eq!(force(&one, &shown).await, ForceRelease::Freed);
    let second = waiting.await.unwrap();
    drop(first);

    // The one that waited holds it now, and was not seen as a holder.
    let mut waiting = Box::pin(async move { other.acquire().await });
    tokio::select! {
        _ = &mut waiting => panic!("the lock is held"),
        () = is_queued(1) => {}
    }
    let now = is_refused(&one, &shown).await;
    assert_eq!(now.holders[0].owner, second.owner().to_string());
    second.release().await.unwrap();
    drop(waiting);
}

/// Without waiters it looked like any other lock.
async fn waiter_of_a_fair_lock_that_came_after_the_look_gets_it_at_once(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let held = one.fair_lock("k").acquire().await.unwrap();
    let shown = seen(&one).await;
    assert_eq!(shown.primitive, Primitive::Lock);
    let waiting = tokio::spawn(two.fair_lock("k").acquire().into_future());
    stage.has_places("k", 1).await;
    let start = Instant::now();
    assert_eq!(force(&one, &shown).await, ForceRelease::Freed);
    let guard = waiting.await.unwrap().unwrap();
    stage.assert_took(start, Duration::ZERO);
    guard.release().await.unwrap();
    drop(held);
}

async fn readers_that_were_seen_lose_the_lock_also_if_one_of_them_has_left(stage: &Stage) {
    let client = stage.client().await;
    let read = client.rw_lock("k").read();
    let (one, _two) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    let shown = seen(&client).await;
    one.release().await.unwrap();
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    assert!(!seen(&client).await.is_held());
}

async fn reader_or_writer_that_came_after_the_look_keeps_the_lock(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.rw_lock("k");
    let first = lock.read().acquire().await.unwrap();
    let shown = seen(&client).await;
    let later = lock.read().acquire().await.unwrap();
    assert_eq!(is_refused(&client, &shown).await.holder_total, 2);
    first.release().await.unwrap();
    later.release().await.unwrap();
    let writer = lock.write().acquire().await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.primitive, Primitive::WriteLock);
    assert!(
        now.holders[0]
            .owner
            .starts_with(&writer.owner().to_string())
    );
    writer.release().await.unwrap();
}

async fn writer_that_was_seen_loses_the_lock(stage: &Stage) {
    let client = stage.client().await;
    let _writer = client.rw_lock("k").write().acquire().await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    let again = client.rw_lock("k").write().acquire().await.unwrap();
    again.release().await.unwrap();
}

async fn semaphore_is_deleted_only_with_the_number_and_the_owners_that_were_seen(stage: &Stage) {
    let client = stage.client().await;
    let semaphore = client.semaphore("k");
    semaphore.try_set_permits(3).await.unwrap();
    let one = semaphore.acquire().await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(shown.primitive, Primitive::Semaphore);
    // Another owner has the permit, and the number is the same.
    one.release().await.unwrap();
    let two = semaphore.acquire().await.unwrap();
    assert_eq!(is_refused(&client, &shown).await.holder_total, 1);
    // The owner is the same, and the number is another one.
    let shown = seen(&client).await;
    semaphore.add_permits(1).await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.permits.unwrap().free, 3);
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
    assert_eq!(force(&client, &now).await, ForceRelease::WasFree);
    assert!(matches!(two.release().await, Err(Error::Lost { .. })));
}

async fn expirable_semaphore_is_deleted_only_with_the_permits_that_were_seen(stage: &Stage) {
    let client = stage.client().await;
    let semaphore = client.expirable_semaphore("k");
    semaphore.try_set_permits(3).await.unwrap();
    let one = semaphore.acquire().await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(shown.primitive, Primitive::ExpirableSemaphore);
    let two = semaphore.acquire().await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.holder_total, 2);
    one.release().await.unwrap();
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
    assert_eq!(force(&client, &now).await, ForceRelease::WasFree);
    drop(two);
}

async fn expirable_semaphore_of_which_nobody_has_a_permit_is_deleted_with_the_number_that_was_seen(
    stage: &Stage,
) {
    let client = stage.client().await;
    let seats = client.expirable_semaphore("k");
    seats.try_set_permits(3).await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(shown.primitive, Primitive::Number);
    seats.add_permits(1).await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.count, Some(4));
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
    assert_eq!(force(&client, &now).await, ForceRelease::WasFree);

    // One that is waited for is shown as a semaphore.
    seats.try_set_permits(0).await.unwrap();
    let mut waiting = Box::pin(async { seats.acquire().await });
    let is_waited_for = stage.eventually("the waiter", stage.slack(), || async {
        seen(&client).await.primitive == Primitive::Semaphore
    });
    tokio::select! {
        _ = &mut waiting => panic!("there is no permit"),
        () = is_waited_for => {}
    }
    let shown = seen(&client).await;
    assert_eq!(force(&client, &shown).await, ForceRelease::Freed);
    drop(waiting);
}

async fn latch_is_deleted_only_with_the_count_that_was_seen(stage: &Stage) {
    let client = stage.client().await;
    let latch = client.count_down_latch("k");
    latch.try_set_count(3).await.unwrap();
    let shown = seen(&client).await;
    assert_eq!(shown.primitive, Primitive::Number);
    latch.count_down().await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.count, Some(2));
    let waiting = tokio::spawn(async move { latch.wait().await });
    stage
        .eventually("the waiter", stage.slack(), || async {
            seen(&client).await.primitive == Primitive::CountDownLatch
        })
        .await;
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
    waiting.await.unwrap().unwrap();
    assert_eq!(force(&client, &now).await, ForceRelease::WasFree);
}

async fn key_that_is_another_primitive_by_now_stays(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let shown = seen(&client).await;
    guard.release().await.unwrap();
    client.semaphore("k").try_set_permits(1).await.unwrap();
    let now = is_refused(&client, &shown).await;
    assert_eq!(now.primitive, Primitive::Number);
    assert_eq!(force(&client, &now).await, ForceRelease::Freed);
}

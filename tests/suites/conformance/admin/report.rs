//! What the report on a key says of each primitive.

use std::time::Duration;

use distlock::{Client, Error, KeyReport, Primitive};

use crate::conformance::stage::Stage;

on_every_backend! {
    free_key_is_reported_as_nothing,
    lock_is_reported_with_its_holder_its_lease_and_the_name_of_its_client,
    lock_that_stays_taken_after_its_release_is_reported_as_released,
    fenced_lock_is_reported_with_its_token,
    fair_lock_is_reported_with_its_queue_in_order,
    readers_and_the_writer_are_reported_with_their_mode,
    semaphore_is_reported_with_free_and_taken_permits,
    expirable_semaphore_is_reported_with_its_permits_and_their_leases,
    latch_is_reported_with_its_count_while_somebody_waits_and_is_a_number_before,
    waiting_process_is_counted_as_a_listener,
    report_is_serialized_with_times_in_milliseconds,
    ping_is_answered_and_the_client_is_connected,
}

async fn named(stage: &Stage, name: &str) -> Client {
    stage.client_with(|builder| builder.name(name)).await
}

/// The names of the clients that hold a key.
pub(super) fn holders(report: &KeyReport) -> Vec<&str> {
    let clients = report.holders.iter().map(|holder| holder.client.as_ref());
    clients
        .map(|client| client.map_or("unknown", |client| &client.name))
        .collect()
}

async fn free_key_is_reported_as_nothing(stage: &Stage) {
    let client = stage.client().await;
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.key.as_str(), report.primitive),
        ("k", Primitive::Nothing)
    );
    assert!(!report.is_held() && report.expires_in.is_none() && report.waiters.is_empty());
    assert_eq!(
        (report.listeners, report.missing_rights.len()),
        (Some(0), 0)
    );
    assert!(matches!(
        client.inspect("").await,
        Err(Error::InvalidKey { .. })
    ));
}

async fn lock_is_reported_with_its_holder_its_lease_and_the_name_of_its_client(stage: &Stage) {
    let (one, two) = (
        named(stage, "orders-1").await,
        named(stage, "orders-2").await,
    );
    let guard = one.lock("k").acquire().await.unwrap();
    for asked in [&one, &two] {
        let report = asked.inspect("k").await.unwrap();
        assert_eq!(report.primitive, Primitive::Lock);
        assert_eq!(holders(&report), ["orders-1"]);
        let [holder] = &report.holders[..] else {
            panic!("one holder: {report:?}");
        };
        assert_eq!(holder.owner, guard.owner().to_string());
        assert_eq!(holder.client_id(), Some(one.id()));
        assert_eq!(
            (holder.count, holder.is_released, report.holder_total),
            (1, false, 1)
        );
        let left = holder.lease_left.unwrap();
        assert!(left > Duration::ZERO && left <= stage.lease(), "{left:?}");
        assert_eq!(
            report.expires_in.map(|left| left <= stage.lease()),
            Some(true)
        );
        assert!(!holder.client.as_ref().unwrap().address.is_empty());
    }
    guard.release().await.unwrap();
    assert!(!two.inspect("k").await.unwrap().is_held());
}

async fn lock_that_stays_taken_after_its_release_is_reported_as_released(stage: &Stage) {
    let client = named(stage, "orders-1").await;
    let acquire = client.lock("k").acquire().hold_at_least(stage.lease() / 2);
    acquire.await.unwrap().release().await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(report.primitive, Primitive::Lock);
    assert!(report.holders[0].is_released && report.is_held());
    assert_eq!(holders(&report), ["orders-1"]);
}

async fn fenced_lock_is_reported_with_its_token(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.fenced_lock("k").acquire().await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(report.primitive, Primitive::FencedLock);
    assert_eq!(report.fencing_token, Some(guard.token()));
    assert_eq!(report.holders.len(), 1);
    guard.release().await.unwrap();
}

async fn fair_lock_is_reported_with_its_queue_in_order(stage: &Stage) {
    let clients = [
        named(stage, "orders-1").await,
        named(stage, "orders-2").await,
        named(stage, "orders-3").await,
    ];
    let guard = clients[0].fair_lock("k").acquire().await.unwrap();
    assert_eq!(
        clients[0].inspect("k").await.unwrap().primitive,
        Primitive::Lock
    );
    let mut waiters = Vec::new();
    for (before, client) in clients[1..].iter().enumerate() {
        waiters.push(tokio::spawn(client.fair_lock("k").acquire().into_future()));
        stage
            .eventually("a place in the queue", stage.lease(), async || {
                clients[0].inspect("k").await.unwrap().waiters.len() == before + 1
            })
            .await;
    }
    let report = clients[0].inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.waiter_total),
        (Primitive::FairLock, 2)
    );
    assert_eq!(holders(&report), ["orders-1"]);
    for (waiter, client) in report.waiters.iter().zip(&clients[1..]) {
        assert_eq!(waiter.client_id(), Some(client.id()));
        assert!(waiter.place_left > Duration::ZERO);
    }
    assert_eq!(report.waiters[1].client.as_ref().unwrap().name, "orders-3");
    assert_eq!(report.listeners, Some(2));
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn readers_and_the_writer_are_reported_with_their_mode(stage: &Stage) {
    let (one, two) = (
        named(stage, "orders-1").await,
        named(stage, "orders-2").await,
    );
    let reads = [
        one.rw_lock("k").read().acquire().await.unwrap(),
        two.rw_lock("k").read().acquire().await.unwrap(),
    ];
    let report = one.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::ReadLock, 2)
    );
    let mut names = holders(&report);
    names.sort_unstable();
    assert_eq!(names, ["orders-1", "orders-2"]);
    for holder in &report.holders {
        let left = holder.lease_left.unwrap();
        assert!(left > Duration::ZERO && left <= stage.lease(), "{left:?}");
    }
    for read in reads {
        read.release().await.unwrap();
    }
    let lock = one.rw_lock("k");
    let write = lock.write().acquire().await.unwrap();
    let report = two.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.holder_total),
        (Primitive::WriteLock, 1)
    );
    assert_eq!(report.holders[0].owner, format!("{}:write", write.owner()));
    assert_eq!(holders(&report), ["orders-1"]);
    write.release().await.unwrap();
}

async fn semaphore_is_reported_with_free_and_taken_permits(stage: &Stage) {
    let client = named(stage, "orders-1").await;
    let pool = client.semaphore("k");
    pool.try_set_permits(5).await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.count),
        (Primitive::Number, Some(5))
    );
    let permits = pool.acquire_many(2).await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.count),
        (Primitive::Semaphore, None)
    );
    let found = report.permits.unwrap();
    assert_eq!((found.free, found.taken), (3, 2));
    assert_eq!(
        (report.holders[0].count, report.holders[0].lease_left),
        (2, None)
    );
    assert_eq!(holders(&report), ["orders-1"]);
    permits.release().await.unwrap();
    pool.delete().await.unwrap();
}

async fn expirable_semaphore_is_reported_with_its_permits_and_their_leases(stage: &Stage) {
    let client = stage.client().await;
    let seats = client.expirable_semaphore("k");
    seats.try_set_permits(3).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    let leased = seats.acquire().lease(stage.lease() / 5).await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(report.primitive, Primitive::ExpirableSemaphore);
    let found = report.permits.unwrap();
    assert_eq!((found.free, found.taken, report.holder_total), (1, 2, 2));
    let mut ids = [permit.id().to_string(), leased.id().to_string()];
    ids.sort_unstable();
    for (holder, id) in report.holders.iter().zip(&ids) {
        assert_eq!((&holder.owner, holder.client_id()), (id, None));
        let left = holder.lease_left.unwrap();
        assert!(left > Duration::ZERO && left <= stage.lease(), "{left:?}");
    }
    // A permit whose lease is over counts as free, though no change has taken it back.
    stage
        .eventually("a lease that is over", stage.lease(), async || {
            let report = client.inspect("k").await.unwrap();
            let found = report.permits.unwrap();
            assert_eq!(
                (found.free, found.taken),
                (3 - found.taken as i64, report.holder_total)
            );
            found.free == 2 && report.holders.len() == 1
        })
        .await;
    permit.release().await.unwrap();
    let _ended = leased.release().await;
    seats.delete().await.unwrap();
}

async fn latch_is_reported_with_its_count_while_somebody_waits_and_is_a_number_before(
    stage: &Stage,
) {
    let client = stage.client().await;
    let latch = client.count_down_latch("k");
    latch.try_set_count(2).await.unwrap();
    let report = client.inspect("k").await.unwrap();
    assert_eq!(
        (report.primitive, report.count),
        (Primitive::Number, Some(2))
    );
    let waiter = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    stage
        .eventually("a listener of the latch", stage.lease(), async || {
            let report = client.inspect("k").await.unwrap();
            report.primitive == Primitive::CountDownLatch
                && report.count == Some(2)
                && report.listeners == Some(1)
        })
        .await;
    latch.count_down().await.unwrap();
    latch.count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
}

async fn waiting_process_is_counted_as_a_listener(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(two.lock("k").acquire().into_future());
    stage
        .eventually("a listener", stage.lease(), async || {
            one.inspect("k").await.unwrap().listeners == Some(1)
        })
        .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn report_is_serialized_with_times_in_milliseconds(stage: &Stage) {
    let client = named(stage, "orders-1").await;
    let guard = client.lock("k").acquire().await.unwrap();
    let report = client.inspect("k").await.unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["key"], "k");
    assert_eq!(json["primitive"], report.primitive.to_string());
    let holder = &json["holders"][0];
    assert_eq!(holder["owner"], guard.owner().to_string());
    assert_eq!(holder["client"]["name"], "orders-1");
    let left = report.holders[0].lease_left.unwrap();
    assert_eq!(
        u128::from(holder["lease_left_ms"].as_u64().unwrap()),
        left.as_millis()
    );
    assert!(json["expires_in_ms"].is_u64() && json["permits"].is_null());
    for primitive in [
        Primitive::Nothing,
        Primitive::CountDownLatch,
        Primitive::OtherData,
    ] {
        assert_eq!(
            serde_json::to_value(primitive).unwrap(),
            primitive.to_string()
        );
    }
    guard.release().await.unwrap();
}

async fn ping_is_answered_and_the_client_is_connected(stage: &Stage) {
    let client = stage.client().await;
    let took = client.ping().await.unwrap();
    assert!(took <= stage.lease(), "{took:?}");
    assert!(client.is_connected());
}

//! What a client says of its holds and waits, and of the lines of the user's code.

use std::convert::Infallible;
use std::panic::Location;
use std::time::Duration;

use distlock::{
    BlockedBy, Client, Error, Kind, Loss, MemoryServer, MultiLock, distributed_lock, with_client,
};
use distlock_tests::{RedisServer, eventually_eq};
use distlock_tower::{LockLayer, ServiceLockLayer};
use http::request::Parts;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

fn is_here(call_site: &Location<'_>, line: u32) {
    assert!(call_site.file().ends_with("snapshot.rs"), "{call_site}");
    assert_eq!(call_site.line(), line, "{call_site}");
}

#[tokio::test(start_paused = true)]
async fn holds_and_waits_are_shown_with_times_call_sites_and_what_they_wait_for() {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    let (client, other) = (client(), client());
    let lock = client.lock("own");
    let (held, line) = (lock.acquire().await.unwrap(), line!());
    let _again = held.reenter().unwrap();
    let _other = other.lock("other").acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let first = tokio::spawn(lock.acquire().into_future());
    tokio::task::yield_now().await;
    tokio::time::sleep(SECOND).await;
    let (second, second_line) = (lock.acquire().wait(10 * SECOND), line!());
    let second = tokio::spawn(second.into_future());
    let third = tokio::spawn(client.lock("other").acquire().into_future());
    tokio::time::sleep(SECOND).await;

    let snapshot = client.snapshot();
    let [hold] = snapshot.holds.as_slice() else {
        panic!("{snapshot:?}");
    };
    assert_eq!((hold.key.as_str(), hold.kind), ("own", Kind::Reentrant));
    assert_eq!((hold.owner, hold.count), (held.owner(), 2));
    assert_eq!(hold.held_for, 3 * SECOND);
    assert!(hold.lease_left.is_some_and(|left| left > 20 * SECOND));
    is_here(hold.call_site, line);

    let waits: Vec<_> = snapshot
        .waits
        .iter()
        .map(|wait| (wait.key.as_str(), wait.ahead))
        .collect();
    assert_eq!(waits[0], ("own", 0));
    assert!(
        waits.contains(&("own", 1)) && waits.contains(&("other", 0)),
        "{waits:?}"
    );
    let wait = snapshot.waits.iter().find(|wait| wait.ahead == 1).unwrap();
    assert_eq!((wait.waited, wait.wait_left), (SECOND, Some(9 * SECOND)));
    is_here(wait.call_site, second_line);
    assert!(
        matches!(wait.blocked_by, BlockedBy::OwnHold { owner, call_site, .. }
            if owner == held.owner() && call_site == hold.call_site)
    );
    let wait = snapshot
        .waits
        .iter()
        .find(|wait| wait.key == "other")
        .unwrap();
    assert!(
        matches!(wait.blocked_by, BlockedBy::OtherClient { lease_left, .. } if lease_left > 20 * SECOND),
        "{wait:?}"
    );
    assert_eq!(wait.wait_left, None);

    for waiting in [first, second, third] {
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    assert!(client.snapshot().waits.is_empty());
    drop((held, _again));
    assert!(client.snapshot().holds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn hold_that_is_handed_over_has_the_call_site_and_the_time_of_its_new_guard() {
    let client = Client::in_memory();
    let lock = client.lock("handed over");
    let held = lock.acquire().await.unwrap();
    let (next, line) = (lock.acquire(), line!());
    let next = tokio::spawn(next.into_future());
    tokio::time::sleep(SECOND).await;
    held.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    let snapshot = client.snapshot();
    is_here(snapshot.holds[0].call_site, line);
    assert_eq!(snapshot.holds[0].held_for, Duration::ZERO);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn waiter_that_is_not_polled_loses_its_place_in_the_snapshot_as_well() {
    let client = Client::in_memory();
    let lock = client.lock("unpolled");
    let _held = lock.acquire().await.unwrap();
    let mut idle = std::pin::pin!(lock.acquire().wait(3600 * SECOND).into_future());
    tokio::select! {
        biased;
        _ = &mut idle => panic!("it is held"),
        () = tokio::task::yield_now() => {}
    }
    let polled = tokio::spawn(lock.acquire().into_future());
    tokio::time::sleep(10 * SECOND).await;
    tokio::select! {
        biased;
        _ = &mut idle => panic!("it is held"),
        () = tokio::task::yield_now() => {}
    }
    let waits = client.snapshot().waits;
    let ahead: Vec<_> = waits
        .iter()
        .map(|wait| (wait.wait_left.is_some(), wait.ahead))
        .collect();
    assert_eq!(
        ahead,
        [(true, 1), (false, 0)],
        "it waits for longer, and behind the other one"
    );
    polled.abort();
}

#[tokio::test(start_paused = true)]
async fn acquisitions_that_wait_for_each_other_are_one_cycle() {
    let client = Client::in_memory();
    let outer = client.lock("a").acquire().await.unwrap();
    let other = client.lock("b").acquire().await.unwrap();
    let (inner, line) = (client.lock("b").acquire().wait(10 * SECOND), line!());
    let one = outer.scope(async { inner.await.err() });
    let two = other.scope(async { client.lock("a").acquire().wait(20 * SECOND).await.err() });
    // It waits as well, and for nobody who waits for it.
    let beside = client.lock("a").acquire().wait(20 * SECOND);
    let look = async {
        tokio::time::sleep(SECOND).await;
        let first = client.snapshot();
        tokio::time::sleep(10 * SECOND).await;
        (first, client.snapshot())
    };
    let (_, _, _, (stuck, later)) = tokio::join!(one, two, async { beside.await.err() }, look);
    assert_eq!(stuck.waits.len(), 3);
    let [cycle] = stuck.cycles.as_slice() else {
        panic!("{stuck:#?}");
    };
    let mut waits: Vec<_> = cycle
        .iter()
        .map(|wait| (wait.key.as_str(), wait.inside.join(",")))
        .collect();
    waits.sort();
    assert_eq!(waits, [("a", "b".to_owned()), ("b", "a".to_owned())]);
    let inner = cycle.iter().find(|wait| wait.key == "b").unwrap();
    is_here(inner.call_site, line);
    assert!(
        later.cycles.is_empty(),
        "the wait for b is over: {later:#?}"
    );
    assert_eq!(stuck.clone().matching("b").cycles.len(), 1);
    assert!(stuck.matching("c").cycles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn hold_of_a_multi_lock_of_several_kinds_is_found_by_another_kind_with_its_data() {
    let client = Client::in_memory();
    let mixed = [
        client.lock("a").into(),
        client.non_reentrant_lock("b").into(),
        client.spin_lock("c").into(),
    ];
    let held = MultiLock::of(mixed).acquire().await.unwrap();
    let waits = ["b", "c"].map(|key| tokio::spawn(client.lock(key).acquire().into_future()));
    tokio::time::sleep(SECOND).await;
    let seen = client.snapshot().waits;
    assert_eq!(seen.len(), 2, "{seen:#?}");
    for wait in &seen {
        let is_own = matches!(wait.blocked_by, BlockedBy::OwnHold { .. });
        assert!(is_own, "{wait:#?}");
    }
    held.release().await.unwrap();
    for waits in waits {
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn holds_that_were_lost_are_shown_the_newest_first() {
    let client = Client::in_memory();
    let (_lease, line) = (client.lock("lease").acquire().lease(SECOND).await, line!());
    let _forced = client.lock("forced").acquire().await;
    tokio::time::sleep(5 * SECOND).await;
    assert!(client.lock("forced").force_release().await.unwrap());
    tokio::time::sleep(20 * SECOND).await;
    let losses = client.snapshot().losses;
    let seen: Vec<_> = losses
        .iter()
        .map(|lost| (lost.key.as_str(), lost.kind, lost.loss))
        .collect();
    assert_eq!(
        seen,
        [
            ("forced", Kind::Reentrant, Loss::Gone),
            ("lease", Kind::Reentrant, Loss::Expired),
        ]
    );
    is_here(losses[1].call_site, line);
    assert_eq!(losses[1].ago.as_secs(), 24);
    assert_eq!(client.snapshot().matching("l*").losses.len(), 1);

    for number in 0..30 {
        let lost = client.lock(format!("k{number}")).acquire().lease(SECOND);
        std::mem::forget(lost.await.unwrap());
    }
    tokio::time::sleep(5 * SECOND).await;
    let losses = client.snapshot().losses;
    assert!(losses.len() == 20 && losses.iter().all(|lost| lost.key.starts_with('k')));
}

#[derive(Clone, Copy)]
struct Place(&'static Location<'static>);

const ATTRIBUTE_LINE: u32 = line!() + 1;
#[distributed_lock(key = "attribute")]
async fn annotated(client: &Client) -> Result<u32, Error> {
    Ok(client.snapshot().holds[0].call_site.line())
}

/// A layer that is said to be made where this function is called.
#[track_caller]
fn keyed(client: &Client, key: &'static str) -> LockLayer {
    LockLayer::new(client).key(move |_: &Parts| key)
}

#[track_caller]
fn of_services(client: &Client) -> ServiceLockLayer<()> {
    ServiceLockLayer::new(client, |(): &()| "service")
}

/// The line of the hold of a request under a layer.
async fn call_site_of(client: &Client, layer: LockLayer) -> &'static Location<'static> {
    let seen = client.clone();
    let handler = service_fn(move |_: Request<()>| {
        let mut answer = Response::new(String::new());
        answer
            .extensions_mut()
            .insert(Place(seen.snapshot().holds[0].call_site));
        async move { Ok::<_, Infallible>(answer) }
    });
    let answer = layer.layer(handler).oneshot(Request::new(())).await;
    answer.unwrap().extensions().get::<Place>().unwrap().0
}

async fn call_site_of_service(
    client: &Client,
    layer: ServiceLockLayer<()>,
) -> &'static Location<'static> {
    let seen = client.clone();
    let service = service_fn(move |(): ()| {
        let call_site = seen.snapshot().holds[0].call_site;
        async move { Ok::<_, Infallible>(call_site) }
    });
    layer.layer(service).oneshot(()).await.unwrap()
}

#[tokio::test]
async fn layers_of_one_closure_have_the_lines_that_give_them_their_keys() {
    let client = Client::in_memory();
    let lock = || LockLayer::new(client.clone());
    let (by_function, line) = (lock().key(|_: &Parts| "function"), line!());
    is_here(call_site_of(&client, by_function).await, line);
    let (by_template, line) = (lock().key_template("template:<method>"), line!());
    is_here(call_site_of(&client, by_template).await, line);
    let shared = LockLayer::new(client.clone()).key(|_: &Parts| "shared");
    let (told, line) = (Location::caller(), line!());
    is_here(call_site_of(&client, shared.called_from(told)).await, line);
    let (told, line) = (Location::caller(), line!());
    let service = of_services(&client).called_from(told);
    is_here(call_site_of_service(&client, service).await, line);
}

#[tokio::test]
async fn call_site_of_the_attribute_the_layers_and_the_tries_is_the_line_of_the_user() {
    let client = Client::in_memory();
    let line = with_client(&client, annotated(&client)).await.unwrap();
    assert!(
        (ATTRIBUTE_LINE..=ATTRIBUTE_LINE + 3).contains(&line),
        "{line}"
    );

    let (layer, line) = (keyed(&client, "layer"), line!());
    is_here(call_site_of(&client, layer).await, line);

    let (layer, line) = (of_services(&client), line!());
    is_here(call_site_of_service(&client, layer).await, line);

    let (tried, line) = (client.lock("try").try_acquire().await.unwrap(), line!());
    is_here(client.snapshot().holds[0].call_site, line);
    drop(tried);
    let permits = client.semaphore("permits");
    permits.try_set_permits(2).await.unwrap();
    let (permit, line) = (permits.try_acquire_many(2).await.unwrap(), line!());
    let hold = &client.snapshot().holds[0];
    is_here(hold.call_site, line);
    assert_eq!((hold.kind, hold.lease_left), (Kind::Semaphore, None));
    drop(permit);
}

#[tokio::test]
async fn snapshot_asks_no_server() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let held = client.lock("outage").acquire().await.unwrap();
    let waits = tokio::spawn(client.lock("outage").acquire().into_future());
    drop(server);
    let noticed = async || client.is_connected();
    eventually_eq(30 * SECOND, "connected", false, noticed).await;
    let seen = client.snapshot();
    assert_eq!(seen.holds[0].owner, held.owner());
    let is_own = matches!(seen.waits[0].blocked_by, BlockedBy::OwnHold { .. });
    assert!(is_own, "{seen:#?}");
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_serialized_with_milliseconds_and_call_sites() {
    let client = Client::in_memory();
    let lock = client.fenced_lock("k");
    let (held, line) = (lock.acquire().await.unwrap(), line!());
    let permits = client.semaphore("s");
    permits.try_set_permits(1).await.unwrap();
    let _permit = permits.acquire().await.unwrap();
    let waiting = tokio::spawn(lock.acquire().wait(10 * SECOND).into_future());
    tokio::time::sleep(SECOND).await;
    let json = serde_json::to_value(client.snapshot()).unwrap();
    let holds = json["holds"].as_array().unwrap();
    let hold = |key: &str| holds.iter().find(|hold| hold["key"] == key).unwrap();
    let fenced = hold("k");
    assert_eq!(fenced["kind"], "fenced_lock");
    assert_eq!(fenced["owner"], held.owner().to_string());
    assert_eq!(
        (&fenced["held_for_ms"], &fenced["count"]),
        (&1_000.into(), &1.into())
    );
    assert_eq!(fenced["lease_left_ms"], 29_000);
    assert!(hold("s")["lease_left_ms"].is_null());
    let call_site = fenced["call_site"].as_str().unwrap();
    assert!(
        call_site.contains(&format!("snapshot.rs:{line}:")),
        "{call_site}"
    );
    let wait = &json["waits"][0];
    assert_eq!((&wait["key"], &wait["ahead"]), (&"k".into(), &0.into()));
    assert_eq!(
        (&wait["waited_ms"], &wait["wait_left_ms"]),
        (&1_000.into(), &9_000.into())
    );
    let blocked_by = &wait["blocked_by"];
    assert_eq!(blocked_by["what"], "own_hold");
    assert_eq!(
        (&blocked_by["owner"], &blocked_by["call_site"]),
        (&fenced["owner"], &fenced["call_site"])
    );
    waiting.abort();
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn loss_in_a_snapshot_is_serialized_as_its_name() {
    let client = Client::in_memory();
    let lost = client.lock("k").acquire().lease(SECOND).await.unwrap();
    lost.lost().await;
    drop(lost);
    let json = serde_json::to_value(client.snapshot()).unwrap();
    assert_eq!(json["losses"][0]["key"], "k");
    assert_eq!(json["losses"][0]["loss"], "expired");
}

//! One key twice: as two kinds, by two clients of one server, or by two prefixes.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, Member, MemoryServer, MultiLock};
use tokio::time::{sleep, timeout};

use super::is_free;
use crate::conformance::stage::{Stage, refused};

on_every_backend_and_in_several_slots![
    one_key_as_two_kinds_is_refused,
    one_key_with_two_clients_of_one_server_is_refused,
    key_of_a_scope_with_another_client_of_its_server_is_refused,
    readers_of_one_key_with_two_clients_of_one_server_are_granted,
];

async fn one_key_as_two_kinds_is_refused(stage: &Stage) {
    let client = stage.client().await;
    let multi = MultiLock::of([client.lock("a").into(), client.fenced_lock("a").into()]);
    assert!(matches!(
        refused(multi.acquire().await),
        Error::Deadlock { .. }
    ));
}

/// With clients of two servers, whose numbers are random.
#[tokio::test(start_paused = true)]
async fn one_key_as_two_kinds_is_refused_also_if_another_client_wants_it() {
    let (one, two) = (Client::in_memory(), Client::in_memory());
    let all: [Vec<Member>; 3] = [
        vec![
            one.lock("a").into(),
            two.lock("a").into(),
            one.spin_lock("a").into(),
            two.spin_lock("a").into(),
        ],
        vec![
            one.lock("a").into(),
            two.lock("a").into(),
            one.fenced_lock("a").into(),
            two.fenced_lock("a").into(),
        ],
        vec![
            one.lock("a").into(),
            two.lock("a").into(),
            one.spin_lock("a").into(),
        ],
    ];
    for members in all {
        let multi = MultiLock::of(members);
        let error = refused(
            timeout(Duration::from_secs(90), multi.acquire().into_future())
                .await
                .expect("it ends"),
        );
        assert!(matches!(error, Error::Deadlock { .. }), "{error}");
    }
    // Of two servers it is no such mistake.
    let both = MultiLock::of([one.lock("a").into(), two.lock("a").into()]);
    both.acquire().await.unwrap().release().await.unwrap();
}

/// The multi-locks of one key with two clients, which exclude each other on one server.
fn of_two_clients(one: &Client, two: &Client, key: &str) -> Vec<MultiLock> {
    let of = |members: [Member; 2]| {
        let [first, second] = members;
        [
            MultiLock::of([first.clone(), second.clone()]),
            MultiLock::of([second, first]),
        ]
    };
    let all = [
        of([one.lock(key).into(), two.lock(key).into()]),
        of([one.lock(key).into(), two.fenced_lock(key).into()]),
        of([one.fair_lock(key).into(), two.fair_lock(key).into()]),
        of([
            one.spin_lock(key).into(),
            two.non_reentrant_lock(key).into(),
        ]),
        of([
            one.rw_lock(key).write().into(),
            two.rw_lock(key).write().into(),
        ]),
        of([
            one.rw_lock(key).write().into(),
            two.rw_lock(key).read().into(),
        ]),
        of([
            one.rw_lock(key).read().into(),
            two.rw_lock(key).write().into(),
        ]),
    ];
    all.into_iter().flatten().collect()
}

fn assert_one_server(error: &Error, key: &str) {
    let (found, reason) = match error {
        Error::Deadlock { key, reason, .. } => (key, reason),
        other => panic!("{other}"),
    };
    assert!(
        found == key && reason.contains("two clients of one server"),
        "{error}"
    );
}

async fn one_key_with_two_clients_of_one_server_is_refused(stage: &Stage) {
    let (one, two, other) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    for multi in of_two_clients(&one, &two, "a") {
        let refusal = timeout(stage.part(2), multi.acquire().into_future());
        let error = refused(refusal.await.expect("it waits for itself"));
        assert_one_server(&error, "a");
        // What it was granted goes back in the background.
        let a_is_free = async || is_free(&other, "a").await;
        stage
            .eventually("a is free", stage.lease(), a_is_free)
            .await;
        let tried = refused(multi.acquire().wait(Duration::ZERO).await);
        assert_one_server(&tried, "a");
        stage
            .eventually("a is free", stage.lease(), a_is_free)
            .await;
    }
    // Another one holds the key, so nothing is found out.
    let held = other.lock("a").acquire().await.unwrap();
    let multi = MultiLock::of([one.lock("a").into(), two.lock("a").into()]);
    assert!(multi.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(multi.acquire().into_future());
    stage
        .eventually("it waits", stage.lease(), async || {
            sizes(&one).waiters + sizes(&two).waiters == 1
        })
        .await;
    held.release().await.unwrap();
    assert_one_server(&refused(waiting.await.unwrap()), "a");
}

async fn key_of_a_scope_with_another_client_of_its_server_is_refused(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let body = async {
        let multi = MultiLock::of([
            one.lock("b").into(),
            two.lock("a").into(),
            one.lock("a").into(),
        ]);
        let refusal = timeout(stage.part(2), multi.acquire().into_future());
        let error = refused(refusal.await.expect("it waits for itself"));
        assert_one_server(&error, "a");
        // It was not shortened, and is entered as often as before.
        assert_eq!(one.lock("a").hold_count().await.unwrap(), 1);
        let left = one.lock("a").remaining_lease().await.unwrap();
        assert!(left > Some(stage.lease() / 2), "{left:?}");
    };
    one.lock("a").acquire().run(body).await.unwrap();
}

async fn readers_of_one_key_with_two_clients_of_one_server_are_granted(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let readers = [
        one.rw_lock("a").read().into(),
        two.rw_lock("a").read().into(),
    ];
    let guard = MultiLock::of(readers).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_key_of_two_servers_is_waited_for_on_each_of_them() {
    let (one, two) = (Client::in_memory(), Client::in_memory());
    for multi in of_two_clients(&one, &two, "a") {
        let guard = multi.acquire().await.unwrap();
        assert!(multi.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn(multi.acquire().into_future());
        sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_by_two_prefixes_with_two_clients_of_one_server_is_refused() {
    let server = MemoryServer::new();
    let client = |prefix| {
        let builder = Client::builder().key_prefix(prefix);
        builder.in_memory(&server).unwrap()
    };
    let (one, two) = (client("shop:"), client(""));
    let multi = MultiLock::of([one.lock("a").into(), two.lock("shop:a").into()]);
    let error = refused(multi.acquire().wait(Duration::ZERO).await);
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
    let multi = MultiLock::of([one.lock("b").into(), two.lock("b").into()]);
    multi.acquire().await.unwrap().release().await.unwrap();
}

//! The multi-lock: all or nothing, and no deadlock whatever the order.

mod gates;
mod positions;
mod share;

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, Member, MemoryServer, MultiLock};
use distlock_tests::LockKind;
use distlock_tests::faults::{Fault, Op};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::stage::{Stage, refused};

const KEYS: [&str; 3] = ["order:42", "stock:7", "item:9"];

async fn crowd_with_members_of_several_kinds_gets_on(stage: &Stage) {
    let mut tasks = JoinSet::new();
    for n in 0..4 {
        let client = stage.client().await;
        tasks.spawn(async move {
            let mut keys: [Member; 3] = [
                client.fair_lock("a").into(),
                client.lock("b").into(),
                client.fenced_lock("c").into(),
            ];
            keys.rotate_left(n % 3);
            let multi = MultiLock::of(keys);
            for _ in 0..5 {
                let guard = multi.acquire().await.unwrap();
                sleep(Duration::from_millis(3)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let start = Instant::now();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(start.elapsed() < stage.lease(), "{:?}", start.elapsed());
}

async fn member_that_does_not_answer_once_is_asked_again(stage: &Stage) {
    let client = stage.faulty_client().await;
    let multi = MultiLock::of([client.lock("a").into(), client.fenced_lock("b").into()]);
    stage.faults().pass(Op::Attempt);
    stage.faults().next(Op::Attempt, Fault::FailAfter);
    let guard = multi.acquire().wait(stage.lease()).await.unwrap();
    assert_eq!(stage.faults().hits(Op::Attempt), 1);
    guard.release().await.unwrap();
    stage.faults().pass(Op::Attempt);
    stage.faults().next(Op::Attempt, Fault::FailBefore);
    assert!(refused(multi.try_acquire().await).is_unavailable());
}

in_one_slot! {
    all_are_held_and_all_are_freed_by_one_command_each,
    members_of_several_kinds_are_taken_in_one_order_however_they_are_given,
}

on_every_backend_and_in_several_slots![
    member_that_does_not_answer_once_is_asked_again,
    crowd_with_members_of_several_kinds_gets_on,
    one_that_is_taken_keeps_all_free,
    keys_may_come_in_any_order_and_twice,
    opposite_orders_never_wait_for_each_other,
    random_subsets_go_on_for_ever,
    waits_for_the_one_key_that_is_taken,
    lost_with_any_of_its_keys,
    enters_again_what_the_scope_holds_and_takes_the_rest,
    members_of_other_kinds_and_clients,
    member_of_another_client_that_is_taken_is_waited_for,
    members_of_every_kind_are_held_and_freed_together,
    nothing_is_kept_while_a_member_of_another_kind_is_waited_for,
    no_key_and_bad_keys_are_refused,
    one_key_as_two_kinds_is_refused,
    one_key_with_two_clients_of_one_server_is_refused,
    key_of_a_scope_with_another_client_of_its_server_is_refused,
    readers_of_one_key_with_two_clients_of_one_server_are_granted,
    unheard_grant_leaves_no_key_taken,
];

async fn is_free(client: &Client, key: &str) -> bool {
    !client.lock(key).is_locked().await.unwrap()
}

async fn all_are_held_and_all_are_freed_by_one_command_each(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let guard = client.multi_lock(KEYS).acquire().await.unwrap();
    for key in KEYS {
        assert!(other.lock(key).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(
        guard.keys().collect::<Vec<_>>(),
        ["item:9", "order:42", "stock:7"]
    );
    guard.release().await.unwrap();
    for key in KEYS {
        assert!(is_free(&other, key).await);
    }
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    assert_eq!(stage.faults().calls(Op::Release), 1);
}

async fn one_that_is_taken_keeps_all_free(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for taken in KEYS {
        let held = other.lock(taken).acquire().await.unwrap();
        let multi = client.multi_lock(KEYS);
        assert!(multi.try_acquire().await.unwrap().is_none());
        let error = refused(multi.acquire().wait(stage.part(20)).await);
        assert!(
            matches!(&error, Error::Timeout { key, .. } if key == taken),
            "{error}"
        );
        for key in KEYS {
            assert_eq!(is_free(&other, key).await, key != taken);
        }
        held.release().await.unwrap();
    }
}

async fn keys_may_come_in_any_order_and_twice(stage: &Stage) {
    let client = stage.client().await;
    let keys = ["b", "a", "b", "c", "a"];
    let guard = client.multi_lock(keys).acquire().await.unwrap();
    assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(client.lock("b").hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    assert!(is_free(&client, "b").await);
}

async fn opposite_orders_never_wait_for_each_other(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let mut tasks = JoinSet::new();
    for n in 0..8_usize {
        let client = clients[n % 2].clone();
        tasks.spawn(async move {
            let keys = if n % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
            for _ in 0..20 {
                client
                    .multi_lock(keys)
                    .acquire()
                    .run(tokio::task::yield_now())
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn random_subsets_go_on_for_ever(stage: &Stage) {
    let clients = [stage.client().await, stage.client().await];
    let names: Vec<String> = (0..10).map(|n| format!("key:{n}")).collect();
    let inside = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut tasks = JoinSet::new();
    for n in 0..24_u64 {
        let (client, names) = (clients[n as usize % 2].clone(), names.clone());
        let inside = std::sync::Arc::clone(&inside);
        tasks.spawn(async move {
            let mut random = StdRng::seed_from_u64(n);
            for _ in 0..10 {
                let many = random.random_range(1..5);
                let keys: Vec<String> = names.sample(&mut random, many).cloned().collect();
                let guard = client.multi_lock(keys.clone()).acquire().await.unwrap();
                for key in &keys {
                    assert!(
                        inside.lock().unwrap().insert(key.clone()),
                        "{key} is held twice"
                    );
                }
                tokio::task::yield_now().await;
                for key in &keys {
                    inside.lock().unwrap().remove(key);
                }
                guard.release().await.unwrap();
            }
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    timeout(Duration::from_secs(60), all)
        .await
        .expect("it stands still");
}

async fn waits_for_the_one_key_that_is_taken(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let held = other.lock("stock:7").acquire().await.unwrap();
    let start = Instant::now();
    let releasing = async {
        sleep(stage.part(5)).await;
        // Nothing is kept while it waits.
        assert!(is_free(&other, "order:42").await);
        held.release().await.unwrap();
    };
    let waiting = async { client.multi_lock(KEYS).acquire().await.unwrap() };
    let ((), guard) = tokio::join!(releasing, waiting);
    stage.assert_took(start, stage.part(5));
    guard.release().await.unwrap();
}

async fn lost_with_any_of_its_keys(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let guard = client.multi_lock(KEYS).acquire().await.unwrap();
    other.lock("stock:7").force_release().await.unwrap();
    let cut = guard.scope(std::future::pending::<()>()).await;
    assert!(refused(cut).is_lost());
    assert!(!guard.is_held());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(is_free(&other, "order:42").await);
}

async fn enters_again_what_the_scope_holds_and_takes_the_rest(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let order = client.lock("order:42");
    let body = async {
        let guard = client.multi_lock(KEYS).acquire().await.unwrap();
        assert_eq!(order.hold_count().await.unwrap(), 2);
        let nested = guard.scope(
            client
                .multi_lock(["stock:7", "item:9"])
                .acquire()
                .into_future(),
        );
        nested.await.unwrap().unwrap().release().await.unwrap();
        guard.release().await.unwrap();
        assert!(is_free(&other, "stock:7").await && !is_free(&other, "order:42").await);
    };
    order.acquire().run(body).await.unwrap();
    assert!(is_free(&other, "order:42").await);
}

async fn members_of_other_kinds_and_clients(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let multi = || {
        MultiLock::of([
            two.fenced_lock("fenced").into(),
            one.lock("plain").into(),
            one.spin_lock("spin").into(),
            two.non_reentrant_lock("once").into(),
        ])
    };
    let guard = multi().acquire().await.unwrap();
    for key in ["fenced", "plain", "spin", "once"] {
        assert!(!is_free(&one, key).await, "{key}");
    }
    assert!(multi().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    for key in ["fenced", "plain", "spin", "once"] {
        assert!(is_free(&one, key).await, "{key}");
    }
}

async fn member_of_another_client_that_is_taken_is_waited_for(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let held = one.fenced_lock("b").acquire().await.unwrap();
    let multi = MultiLock::of([one.lock("a").into(), two.fenced_lock("b").into()]);
    let error = refused(multi.acquire().wait(stage.part(10)).await);
    assert!(error.is_busy(), "{error}");
    assert!(multi.try_acquire().await.unwrap().is_none());
    let releasing = async {
        sleep(stage.part(10)).await;
        held.release().await.unwrap();
    };
    let waiting = async { multi.acquire().await.unwrap() };
    let ((), guard) = tokio::join!(releasing, waiting);
    guard.release().await.unwrap();
}

async fn members_of_every_kind_are_held_and_freed_together(stage: &Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let multi = MultiLock::of([
        one.rw_lock("reading").read().into(),
        one.rw_lock("writing").write().into(),
        two.fair_lock("fair").into(),
        two.non_reentrant_fair_lock("fair once").into(),
        one.spin_lock("spin").into(),
        one.fenced_lock("fenced").into(),
        two.non_reentrant_lock("once").into(),
        two.lock("plain").into(),
    ]);
    let other = stage.client().await;
    // Others that want one of the keys alone; a key that is read, to write it.
    let alone = [
        LockKind::Write.lock(&other, "reading"),
        LockKind::Read.lock(&other, "writing"),
        LockKind::Fair.lock(&other, "fair"),
        LockKind::NonReentrantFair.lock(&other, "fair once"),
        LockKind::Spin.lock(&other, "spin"),
        LockKind::Fenced.lock(&other, "fenced"),
        LockKind::NonReentrant.lock(&other, "once"),
        LockKind::Reentrant.lock(&other, "plain"),
    ];
    let guard = multi.acquire().await.unwrap();
    assert_eq!(guard.keys().count(), alone.len());
    for lock in &alone {
        assert!(lock.try_acquire().await.unwrap().is_none(), "{lock:?}");
    }
    guard.release().await.unwrap();
    for lock in &alone {
        // What a try in vain had of others goes back in the background.
        let held = lock.acquire(Some(stage.part(4)), None).await.unwrap();
        assert!(multi.try_acquire().await.unwrap().is_none(), "{lock:?}");
        held.release().await.unwrap();
    }
    let guard = multi.acquire().wait(stage.part(4)).await.unwrap();
    guard.release().await.unwrap();
}

/// Wherever in the order of the keys it stands.
async fn nothing_is_kept_while_a_member_of_another_kind_is_waited_for(stage: &Stage) {
    let other = stage.client().await;
    for taken in ["a", "b", "c"] {
        let client = stage.client().await;
        let held = LockKind::Fenced.lock(&other, taken);
        let held = held.acquire(None, None).await.unwrap();
        let multi = MultiLock::of([
            client.lock("a").into(),
            client.fair_lock("b").into(),
            client.fenced_lock("c").into(),
        ]);
        let waiting = tokio::spawn(multi.acquire().into_future());
        // In memory only the server knows; Redis is listened to for a while after that, by clients before.
        let listens = async || {
            if stage.is_paused() {
                stage.listened_channels().await > 0
            } else {
                sizes(&client).channels > 0
            }
        };
        stage.eventually("it listens", stage.lease(), listens).await;
        let others_are_free = async || {
            let keys = ["a", "b", "c"].into_iter().filter(|key| *key != taken);
            for key in keys {
                if !is_free(&other, key).await {
                    return false;
                }
            }
            true
        };
        stage
            .eventually("the others are free", stage.part(10), others_are_free)
            .await;
        let end = Instant::now() + stage.part(10);
        while Instant::now() < end {
            assert!(others_are_free().await, "{taken} is waited for");
            sleep(Duration::from_millis(1)).await;
        }
        held.release().await.unwrap();
        let guard = timeout(stage.lease(), waiting).await.unwrap();
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

/// Otherwise two that want the same members could each have one of them whenever they try, and neither gets on.
async fn members_of_several_kinds_are_taken_in_one_order_however_they_are_given(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let members: [Member; 3] = [
        client.fair_lock("a").into(),
        client.fenced_lock("b").into(),
        client.rw_lock("c").write().into(),
    ];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        // The first one in the order of the keys is taken, so the others are not even tried.
        let held = other.lock("a").acquire().await.unwrap();
        let releases = stage.faults().calls(Op::Release);
        let multi = MultiLock::of(order.map(|at| members[at].clone()));
        let waiter = tokio::spawn(multi.acquire().into_future());
        stage.has_places("a", 1).await;
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        let releases = stage.faults().calls(Op::Release) - releases;
        assert_eq!(releases, 3, "one of each member: {order:?}");
    }
}

async fn no_key_and_bad_keys_are_refused(stage: &Stage) {
    let client = stage.client().await;
    let none: [&str; 0] = [];
    let error = refused(client.multi_lock(none).acquire().await);
    assert!(matches!(error, Error::NoKeys), "{error}");
    let error = refused(client.multi_lock(["a", ""]).acquire().await);
    assert!(matches!(error, Error::InvalidKey { .. }), "{error}");
}

async fn one_key_as_two_kinds_is_refused(stage: &Stage) {
    let client = stage.client().await;
    let multi = MultiLock::of([client.lock("a").into(), client.fenced_lock("a").into()]);
    assert!(matches!(
        refused(multi.acquire().await),
        Error::Deadlock { .. }
    ));
}

async fn unheard_grant_leaves_no_key_taken(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    stage.faults().always(Op::Attempt, Fault::FailAfter);
    let error = refused(client.multi_lock(KEYS).acquire().wait(stage.part(10)).await);
    assert!(error.is_unavailable(), "{error}");
    stage.faults().clear(Op::Attempt);
    let next = other.multi_lock(KEYS).acquire().wait(stage.part(2)).await;
    next.unwrap().release().await.unwrap();
    assert!(stage.faults().hits(Op::Attempt) > 0);
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

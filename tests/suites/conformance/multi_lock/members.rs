//! Members of several kinds and of several clients.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, Error, Member, MemoryServer, MultiLock};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::{Disturbed as _, LockKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::is_free;
use crate::conformance::stage::{Stage, refused};

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
    members_of_several_kinds_are_taken_in_one_order_however_they_are_given,
}

on_every_backend_and_in_several_slots![
    member_that_does_not_answer_once_is_asked_again,
    crowd_with_members_of_several_kinds_gets_on,
    members_of_other_kinds_and_clients,
    member_of_another_client_that_is_taken_is_waited_for,
    members_of_every_kind_are_held_and_freed_together,
    nothing_is_kept_while_a_member_of_another_kind_is_waited_for,
];

/// The first key is granted, and its lease is over when the other one is.
#[tokio::test(start_paused = true)]
async fn members_that_are_granted_too_late_to_be_held_together_are_unavailable() {
    const LEASE: Duration = Duration::from_secs(1);
    let faults = Faults::new();
    let client = || {
        let builder = Client::builder().unavailable_after(LEASE * 5);
        builder
            .faults(&faults)
            .in_memory(&MemoryServer::new())
            .unwrap()
    };
    let (one, two) = (client(), client());
    faults.always(Op::Attempt, Fault::DelayReply(LEASE * 3 / 5));
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    for wait in [Duration::ZERO, Duration::MAX] {
        let tried = multi.acquire().lease(LEASE).wait(wait).into_future();
        let tried = timeout(LEASE * 30, tried).await;
        let error = refused(tried.expect("it gives up"));
        assert!(error.is_unavailable(), "{error}");
        assert!(
            error
                .to_string()
                .contains("the lease of the first grant was over"),
            "{error}"
        );
    }
    faults.split_slots();
    for wait in [Duration::ZERO, Duration::MAX] {
        let several = one.multi_lock(["a", "b"]);
        let tried = several.acquire().lease(LEASE).wait(wait).into_future();
        let tried = timeout(LEASE * 30, tried).await;
        assert!(refused(tried.expect("it gives up")).is_unavailable());
    }
}

/// Each of them takes first what the other one takes last, because the servers have one name and the clients have random ids.
#[tokio::test(start_paused = true)]
async fn members_of_two_clients_that_are_taken_in_opposite_orders_do_not_refuse_each_other_for_ever()
 {
    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::DelayReply(Duration::from_millis(1)));
    let servers = [MemoryServer::new(), MemoryServer::new()];
    let clients = || {
        let client = |server| Client::builder().faults(&faults).in_memory(server).unwrap();
        servers.each_ref().map(client)
    };
    let one = loop {
        let clients = clients();
        if clients[0].id() < clients[1].id() {
            break clients;
        }
    };
    let other = loop {
        let clients = clients();
        if clients[0].id() > clients[1].id() {
            break clients;
        }
    };
    let acquire = async |clients: &[Client; 2]| {
        let multi = MultiLock::of(clients.each_ref().map(|client| client.lock("a").into()));
        multi.acquire().await.unwrap().release().await.unwrap();
    };
    let both = async { tokio::join!(acquire(&one), acquire(&other)) };
    timeout(Duration::from_secs(60), both)
        .await
        .expect("they refuse each other for ever");
}

/// The part that was granted had no guard, so it was not renewed. Another owner gets its hold: a waiter at once, or the next
/// acquisition before the release begins.
#[tokio::test(start_paused = true)]
async fn part_of_a_refused_acquisition_is_renewed_for_its_next_owner() {
    const LEASE: Duration = Duration::from_secs(30);
    for waits in [true, false] {
        let (server, faults) = (MemoryServer::new(), Faults::new());
        let builder = || Client::builder().watchdog_timeout(LEASE);
        let client = builder().faults(&faults).in_memory(&server).unwrap();
        let other = builder().in_memory(&server).unwrap();
        let _held = other.fenced_lock("b").acquire().await.unwrap();
        let multi = MultiLock::of([client.lock("a").into(), client.fenced_lock("b").into()]);
        faults.pass(Op::Attempt);
        // For less time than a waiter trusts the holder of its own client.
        faults.next(Op::Attempt, Fault::Delay(Duration::from_millis(10)));
        let tried = multi.try_acquire();
        let next = client.lock("a").acquire().into_future();
        // In one task, so that the releaser's task does not run before the next acquisition.
        let next = if waits {
            let waiter = async {
                while faults.hits(Op::Attempt) == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                next.await
            };
            let (tried, next) = tokio::join!(tried, waiter);
            assert!(tried.unwrap().is_none());
            next
        } else {
            assert!(tried.await.unwrap().is_none());
            next.await
        };
        let next = next.unwrap();
        // It has the same hold: the key was not asked for again.
        assert_eq!(faults.calls(Op::Attempt), 2);
        sleep(3 * LEASE).await;
        assert!(next.is_held(), "after a wait: {waits}");
        next.release().await.unwrap();
    }
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

/// The servers are asked one after the other.
#[tokio::test(start_paused = true)]
async fn silent_server_of_a_member_does_not_make_a_wait_longer() {
    const WAIT: Duration = Duration::from_secs(1);
    let faults = Faults::new();
    let builder = Client::builder().response_timeout(WAIT * 5);
    let silent = builder.faults(&faults).in_memory(&MemoryServer::new());
    let (one, two) = (Client::in_memory(), silent.unwrap());
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    faults.always(Op::Attempt, Fault::Never);
    let start = Instant::now();
    let error = refused(multi.acquire().wait(WAIT).await);
    assert_eq!(start.elapsed(), WAIT, "{error}");
    assert!(error.is_busy(), "{error}");
    // Nothing of it is left.
    let free = one.lock("a").acquire().wait(WAIT).await.unwrap();
    free.release().await.unwrap();
    // A single attempt waits for its answer.
    let start = Instant::now();
    assert!(refused(multi.try_acquire().await).is_unavailable());
    assert_eq!(start.elapsed(), WAIT * 5);
}

/// The servers are asked one after the other.
#[tokio::test(start_paused = true)]
async fn member_whose_client_is_closed_while_another_server_is_asked_is_given_back() {
    const LATE: Duration = Duration::from_secs(1);
    let faults = Faults::new();
    let slow = Client::builder().faults(&faults);
    let (one, two) = (
        Client::in_memory(),
        slow.in_memory(&MemoryServer::new()).unwrap(),
    );
    faults.next(Op::Attempt, Fault::DelayReply(LATE));
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    let acquiring = tokio::spawn(multi.acquire().into_future());
    sleep(LATE / 2).await;
    assert!(one.lock("a").is_locked().await.unwrap());
    let closed = one.close(Duration::ZERO).await;
    assert!(closed.is_err(), "it holds one key");
    let error = refused(acquiring.await.unwrap());
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    one.close(LATE).await.unwrap();
    two.close(LATE).await.unwrap();
    assert!(!one.lock("a").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn member_whose_client_is_closed_while_the_key_of_another_client_is_waited_for_ends_the_wait()
{
    const LATE: Duration = Duration::from_secs(1);
    let (one, two) = (Client::in_memory(), Client::in_memory());
    let held = two.lock("b").acquire().await.unwrap();
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    let acquiring = tokio::spawn(multi.acquire().into_future());
    sleep(LATE).await;
    one.close(LATE).await.unwrap();
    let ended = timeout(LATE, acquiring).await;
    let error = refused(ended.expect("it waits").unwrap());
    let is_of_closed = matches!(&error, Error::Closed { key, .. } if key == "a");
    assert!(is_of_closed, "{error}");
    held.release().await.unwrap();
    two.close(LATE).await.unwrap();
}

/// A client of a server of its own, and one of `server` with these faults. A multi-lock takes the keys of the first one first.
fn in_this_order(server: &MemoryServer, faults: &Faults) -> [Client; 2] {
    loop {
        let second = Client::builder().faults(faults);
        let second = second.in_memory(server).unwrap();
        let first = Client::in_memory();
        if first.id() < second.id() {
            return [first, second];
        }
    }
}

#[tokio::test(start_paused = true)]
async fn server_of_a_later_member_that_does_not_answer_is_no_reason_to_rest() {
    const AFTER: Duration = Duration::from_millis(2500);
    for recovers in [false, true] {
        let faults = Faults::new();
        faults.always(Op::Attempt, Fault::Never);
        let [one, two] = in_this_order(&MemoryServer::new(), &faults);
        let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
        let start = Instant::now();
        let acquiring = tokio::spawn(multi.acquire().into_future());
        sleep(AFTER).await;
        if recovers {
            faults.clear_all();
        }
        let acquired = acquiring.await.unwrap();
        let passed = start.elapsed();
        if recovers {
            acquired.unwrap().release().await.unwrap();
            assert!(passed < 2 * AFTER, "{passed:?}");
        } else {
            assert!(refused(acquired).is_unavailable());
            assert!(passed < 4 * AFTER, "{passed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_is_closed_during_a_rest_ends_the_acquisition() {
    const SLOW: Duration = Duration::from_millis(1500);
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let [one, two] = in_this_order(&server, &faults);
    let other = Client::builder().in_memory(&server).unwrap();
    let _held = other.lock("b").acquire().await.unwrap();
    faults.always(Op::Attempt, Fault::DelayReply(SLOW));
    let multi = MultiLock::of([one.lock("a").into(), two.lock("b").into()]);
    let acquiring = tokio::spawn(multi.acquire().into_future());
    sleep(SLOW + SLOW / 10).await;
    one.close(SLOW).await.unwrap();
    let ended = timeout(SLOW / 10, acquiring).await;
    let error = refused(ended.expect("it rests").unwrap());
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}

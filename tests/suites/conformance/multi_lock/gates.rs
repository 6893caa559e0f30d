//! A multi-lock inside a scope that has some of its keys: it keeps no gate of the scope closed while it waits.

use std::time::Duration;

use distlock::{Blocker, Client, Error, Guard, MultiLock, Quorum, inherit};
use distlock_tests::faults::{Fault, Op};
use futures_util::FutureExt;
use tokio::join;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::conformance::red_lock::{KEY, Servers};
use crate::conformance::rw::writing;
use crate::conformance::stage::{Stage, refused};

on_every_backend![
    branch_that_has_one_key_takes_the_other_before_a_multi_lock_of_both,
    branch_that_has_a_key_beside_the_scope_takes_the_scopes_key_before_a_multi_lock_of_both,
    scopes_key_is_entered_while_a_multi_lock_waits_for_another_process,
    multi_lock_waits_for_a_branch_and_gives_the_other_processs_key_back,
    multi_lock_without_a_wait_is_refused_by_a_branch_and_closes_no_gate,
    branches_with_multi_locks_of_all_pairs_get_on,
    multi_lock_with_a_read_beside_its_own_write_keeps_other_branches_out,
    multi_lock_whose_scope_has_closed_reads_beside_no_writer,
    multi_lock_enters_the_scope_that_is_left_if_it_has_all_keys,
];

/// Runs two branches, which have to get on within a lease.
async fn in_time<T>(stage: &Stage, branches: impl Future<Output = T>) -> T {
    let ended = timeout(stage.lease(), branches).await;
    ended.expect("one branch waits for the other")
}

async fn take(client: &Client, keys: &[&str]) {
    let multi = client.multi_lock(keys.iter().copied()).acquire();
    multi.await.unwrap().release().await.unwrap();
}

async fn branch_that_has_one_key_takes_the_other_before_a_multi_lock_of_both(stage: &Stage) {
    let client = stage.client().await;
    for (had, wanted) in [("a", "b"), ("b", "a")] {
        let (has_one, first_is_held) = oneshot::channel();
        let (waits, both_wait) = oneshot::channel();
        let one_by_one = async {
            let first = client.lock(had).acquire().await.unwrap();
            has_one.send(()).unwrap();
            both_wait.await.unwrap();
            let second = client.lock(wanted).acquire().await.unwrap();
            second.release().await.unwrap();
            first.release().await.unwrap();
        };
        let both = async {
            first_is_held.await.unwrap();
            let mut both = client.multi_lock(["a", "b"]).acquire().into_future();
            assert!((&mut both).now_or_never().is_none());
            waits.send(()).unwrap();
            both.await.unwrap().release().await.unwrap();
        };
        let body = in_time(stage, async { join!(one_by_one, both) });
        client
            .multi_lock(["a", "b"])
            .acquire()
            .run(body)
            .await
            .unwrap();
    }
}

async fn branch_that_has_a_key_beside_the_scope_takes_the_scopes_key_before_a_multi_lock_of_both(
    stage: &Stage,
) {
    let client = stage.client().await;
    for (scope, beside) in [("a", "b"), ("b", "a")] {
        let (has_one, first_is_held) = oneshot::channel();
        let one_by_one = async {
            let first = client.lock(beside).acquire().await.unwrap();
            has_one.send(()).unwrap();
            stage.waiting(&client, 1).await;
            let second = client.lock(scope).acquire().await.unwrap();
            second.release().await.unwrap();
            first.release().await.unwrap();
        };
        let both = async {
            first_is_held.await.unwrap();
            take(&client, &["a", "b"]).await;
        };
        let body = in_time(stage, async { join!(one_by_one, both) });
        client.lock(scope).acquire().run(body).await.unwrap();
    }
}

/// In a scope of `a`, a multi-lock of both keys waits for another process, which has `b`. Meanwhile another branch of the scope
/// does something with the client, the other client, and its guard.
async fn beside_a_multi_lock_that_waits_for_another_process(
    stage: &Stage,
    branch: impl AsyncFnOnce(Client, Client, Guard),
) {
    let (client, other) = (stage.client().await, stage.client().await);
    let held = other.lock("b").acquire().await.unwrap();
    let branch = async {
        stage.waiting(&client, 1).await;
        branch(client.clone(), other, held).await;
    };
    let body = in_time(stage, async { join!(take(&client, &["a", "b"]), branch) });
    client.lock("a").acquire().run(body).await.unwrap();
}

async fn scopes_key_is_entered_while_a_multi_lock_waits_for_another_process(stage: &Stage) {
    let enter = async |client: Client, _, held: Guard| {
        let wait = stage.part(2);
        let again = client.lock("a").acquire().wait(wait).await.unwrap();
        again.release().await.unwrap();
        held.release().await.unwrap();
    };
    beside_a_multi_lock_that_waits_for_another_process(stage, enter).await;
}

async fn multi_lock_waits_for_a_branch_and_gives_the_other_processs_key_back(stage: &Stage) {
    let enter = async |client: Client, other: Client, held: Guard| {
        let again = client.lock("a").acquire().await.unwrap();
        // The multi-lock is granted this key, and waits for the branch from then on.
        held.release().await.unwrap();
        stage.waiting(&client, 0).await;
        let wait = stage.part(2);
        let between = other.lock("b").acquire().wait(wait).await.unwrap();
        between.release().await.unwrap();
        again.release().await.unwrap();
    };
    beside_a_multi_lock_that_waits_for_another_process(stage, enter).await;
}

async fn multi_lock_without_a_wait_is_refused_by_a_branch_and_closes_no_gate(stage: &Stage) {
    let client = stage.client().await;
    let multi = client.multi_lock(["a", "b", "c"]);
    let body = async {
        let b = client.lock("b").acquire().await.unwrap();
        assert!(multi.try_acquire().await.unwrap().is_none());
        for wait in [Duration::ZERO, stage.part(20)] {
            let error = refused(multi.acquire().wait(wait).await);
            let is_sibling = matches!(
                &error,
                Error::Timeout { key, blocker: Blocker::Sibling, .. } if key == "b"
            );
            assert!(is_sibling, "{error}");
        }
        let a = client.lock("a").try_acquire().await.unwrap();
        a.unwrap().release().await.unwrap();
        assert!(!client.lock("c").is_locked().await.unwrap());
        b.release().await.unwrap();
        let all = multi.try_acquire().await.unwrap().unwrap();
        assert_eq!(client.lock("a").hold_count().await.unwrap(), 2);
        all.release().await.unwrap();
    };
    client
        .multi_lock(["a", "b"])
        .acquire()
        .run(body)
        .await
        .unwrap();
}

async fn branches_with_multi_locks_of_all_pairs_get_on(stage: &Stage) {
    let client = stage.client().await;
    let pairs = [
        ["a", "b"],
        ["b", "c"],
        ["c", "d"],
        ["d", "a"],
        ["c", "a"],
        ["d", "b"],
    ];
    let branches = async {
        let branch = async |pair: [&str; 2]| {
            for _ in 0..5 {
                let both = client.multi_lock(pair).acquire().await.unwrap();
                tokio::task::yield_now().await;
                both.release().await.unwrap();
            }
        };
        let [one, two, three, four, five, six] = pairs.map(branch);
        join!(one, two, three, four, five, six)
    };
    // Two of the keys belong to the scope, and the others do not.
    let body = in_time(stage, branches);
    client
        .multi_lock(["b", "c"])
        .acquire()
        .run(body)
        .await
        .unwrap();
}

async fn multi_lock_with_a_read_beside_its_own_write_keeps_other_branches_out(stage: &Stage) {
    let client = stage.client().await;
    let (rw, other) = (client.rw_lock("a"), client.lock("b"));
    let multi = MultiLock::of([rw.read().into(), other.into()]);
    let body = async {
        let both = multi.acquire().await.unwrap();
        let wait = stage.part(20);
        let error = refused(rw.write().acquire().wait(wait).await);
        assert!(
            matches!(
                &error,
                Error::Timeout {
                    blocker: Blocker::Sibling,
                    ..
                }
            ),
            "{error}"
        );
        both.release().await.unwrap();
        let again = rw.write().acquire().wait(wait).await.unwrap();
        again.release().await.unwrap();
    };
    rw.write().acquire().run(body).await.unwrap();
}

/// A read inside a write waits for another key until the scope of the write has closed. The writer then keeps the key, or another
/// task of the client takes it over.
async fn multi_lock_whose_scope_has_closed_reads_beside_no_writer(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    for is_handed_over in [false, true] {
        let rw = client.rw_lock("a");
        let multi = MultiLock::of([rw.read().into(), client.lock("b").into()]);
        let held = other.lock("b").acquire().await.unwrap();
        let mut writer = rw.write().acquire().await.unwrap();
        let mut both = None;
        let body = async {
            both = Some(tokio::spawn(inherit(multi.acquire().into_future())));
            stage.waiting(&client, 1).await;
        };
        writer.scope(body).await.unwrap();
        let both = both.unwrap();
        if is_handed_over {
            let next = writing(&rw);
            stage.waiting(&client, 2).await;
            writer.release().await.unwrap();
            writer = next.await.unwrap();
        }
        held.release().await.unwrap();
        sleep(stage.part(4)).await;
        assert!(writer.is_held() && !both.is_finished());
        writer.release().await.unwrap();
        let both = timeout(stage.lease(), both).await.expect("it still waits");
        both.unwrap().unwrap().release().await.unwrap();
    }
}

/// A read that began inside a write goes on inside a read.
async fn multi_lock_enters_the_scope_that_is_left_if_it_has_all_keys(stage: &Stage) {
    let client = stage.faulty_client().await;
    let rw = client.rw_lock("a");
    let multi = MultiLock::of([rw.read().into()]);
    let writer = rw.write().acquire().await.unwrap();
    let reader = writer.scope(rw.read().acquire().into_future());
    let reader = reader.await.unwrap().unwrap();
    let body = async {
        let attempted = stage.faults().calls(Op::Attempt);
        stage.faults().always(Op::Attempt, Fault::FailBefore);
        let mut again = None;
        let inside = async {
            again = Some(tokio::spawn(inherit(multi.acquire().into_future())));
            stage
                .eventually("an attempt", stage.part(3), async || {
                    stage.faults().calls(Op::Attempt) > attempted
                })
                .await;
        };
        writer.scope(inside).await.unwrap();
        writer.release().await.unwrap();
        stage.faults().clear(Op::Attempt);
        let again = timeout(stage.lease(), again.unwrap()).await;
        let again = again.expect("it still waits").unwrap().unwrap();
        assert_eq!(rw.read().hold_count().await.unwrap(), 2);
        again.release().await.unwrap();
    };
    reader.scope(body).await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn branch_that_has_the_key_on_one_server_takes_it_on_another_before_a_redlock() {
    let servers = Servers::new(3);
    let clients = servers.program().clients;
    let red_lock = Quorum::new(clients.clone()).lock(KEY);
    // Whichever of the gates the Redlock would pass first.
    for (had, wanted) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)] {
        let (has_one, first_is_held) = oneshot::channel();
        let (waits, whole_waits) = oneshot::channel();
        let one_by_one = async {
            let first = clients[had].lock(KEY).acquire().await.unwrap();
            has_one.send(()).unwrap();
            whole_waits.await.unwrap();
            let second = clients[wanted].lock(KEY).acquire().await.unwrap();
            second.release().await.unwrap();
            first.release().await.unwrap();
        };
        let whole = async {
            first_is_held.await.unwrap();
            let mut whole = red_lock.acquire().into_future();
            assert!((&mut whole).now_or_never().is_none());
            waits.send(()).unwrap();
            whole.await.unwrap().release().await.unwrap();
        };
        let branches = async { join!(one_by_one, whole) };
        let body = timeout(Duration::from_secs(30), branches);
        let ended = red_lock.acquire().run(body).await.unwrap();
        ended.expect("one branch waits for the other");
    }
    servers.are_empty().await;
}

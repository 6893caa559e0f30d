//! Entering a hold again: from inside its own critical section, by hand, and never beside it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock::{Lock, inherit};
use distlock_tests::faults::{Fault, Op};
use futures_util::future::lazy;
use tokio::sync::oneshot;

use crate::conformance::stage::{Stage, refused, server_shows};

const KEY: &str = "order:42";

async fn acquire_inside_its_scope_enters_again_by_any_handle(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner();
    let body = async {
        for same in [lock.clone(), client.lock(KEY), client.clone().lock(KEY)] {
            let again = same.acquire().await.unwrap();
            assert_eq!(again.owner(), owner);
            assert_eq!(same.hold_count().await.unwrap(), 2);
            again.release().await.unwrap();
            assert!(same.try_acquire().await.unwrap().is_some());
            let wait = Duration::ZERO;
            let nested = same.acquire().wait(wait).run(async { 7 }).await;
            assert_eq!(nested.unwrap(), 7);
        }
    };
    guard.scope(body).await.unwrap();
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.release().await.unwrap();
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
}

/// A function that locks and is recursive, as an annotated one may be.
fn nested(lock: &Lock, depth: u64) -> impl Future<Output = u64> + Send {
    let body = async move {
        let inner = match depth {
            0 => 0,
            _ => Box::pin(nested(lock, depth - 1)).await,
        };
        inner.max(lock.hold_count().await.unwrap())
    };
    async move { lock.acquire().run(body).await.unwrap() }
}

async fn nested_runs_enter_again_at_any_depth(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    assert_eq!(nested(&lock, 4).await, 5);
    assert_eq!(stage.faults().calls(Op::Attempt), 1);
    stage.is_free(KEY).await;
}

async fn reentry_needs_no_answer_of_the_server(stage: &Stage) {
    let client = stage.faulty_client().await;
    let lock = client.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    for op in [Op::Attempt, Op::Renew, Op::Release] {
        stage.faults().always(op, Fault::Never);
    }
    let body = async {
        let again = lock.acquire().await.unwrap();
        let third = again.reenter().unwrap();
        again.release().await.unwrap();
        third.release().await.unwrap();
    };
    guard.scope(body).await.unwrap();
    assert!(guard.is_held());
    for op in [Op::Attempt, Op::Renew, Op::Release] {
        stage.faults().clear(op);
    }
    guard.release().await.unwrap();
}

async fn server_is_told_of_the_count(stage: &Stage) {
    let (client, observer) = (stage.client().await, stage.client().await);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let mut more = Vec::new();
    for count in 2..5 {
        more.push(guard.reenter().unwrap());
        let what = format!("count {count}");
        let shown = async || server_shows(&observer, &guard, count).await;
        stage.eventually(&what, stage.part(10), shown).await;
    }
    drop(more);
    let shown = async || server_shows(&observer, &guard, 1).await;
    stage.eventually("count 1", stage.part(10), shown).await;
    assert_eq!(observer.lock(KEY).hold_count().await.unwrap(), 1);
}

async fn reentered_guards_may_go_in_any_order(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    for first_goes_first in [true, false] {
        let first = lock.acquire().await.unwrap();
        let second = first.reenter().unwrap();
        assert_eq!(second.owner(), first.owner());
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        let (goes, stays) = if first_goes_first {
            (first, second)
        } else {
            (second, first)
        };
        goes.release().await.unwrap();
        assert!(stays.is_held());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        stage.is_taken(KEY).await;
        stays.release().await.unwrap();
        stage.is_free(KEY).await;
    }
}

async fn scope_of_a_reentered_guard_is_inside_too(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let first = lock.acquire().await.unwrap();
    let second = first.reenter().unwrap();
    drop(first);
    let inside = second.scope(async { lock.try_acquire().await.unwrap().is_some() });
    assert!(inside.await.unwrap());
}

async fn nested_guard_taken_out_of_its_scope_keeps_the_key(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let outer = lock.acquire().await.unwrap();
    let inner = outer.scope(async { lock.acquire().await.unwrap() });
    let inner = inner.await.unwrap();
    outer.release().await.unwrap();
    assert!(inner.is_held());
    stage.is_taken(KEY).await;
    tokio::time::sleep(2 * stage.lease()).await;
    assert!(inner.is_held());
    let entered = inner.scope(async { lock.try_acquire().await.unwrap().is_some() });
    assert!(entered.await.unwrap());
    inner.release().await.unwrap();
    stage.is_free(KEY).await;
}

async fn another_client_inside_the_scope_is_another_owner(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (wait, theirs) = (stage.part(10), other.lock(KEY));
    let body = async {
        assert!(theirs.try_acquire().await.unwrap().is_none());
        assert!(refused(theirs.acquire().wait(wait).await).is_busy());
    };
    client.lock(KEY).acquire().run(body).await.unwrap();
}

async fn spawned_task_does_not_inherit(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let wait = stage.part(10);
    let (inside, ready) = (lock.clone(), lock.acquire().wait(wait));
    let body = async {
        let task = tokio::spawn(async move { inside.try_acquire().await.unwrap().is_some() });
        assert!(!task.await.unwrap());
        // The future is made here, inside, and polled there: it is the poll that counts.
        let task = tokio::spawn(ready.run(async {}));
        assert!(refused(task.await.unwrap()).is_busy());
    };
    lock.acquire().run(body).await.unwrap();
}

async fn inherit_carries_the_scope_into_a_task(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let inside = lock.clone();
    let body = async move {
        let deeper = inside.clone();
        let task = inherit(async move {
            let again = deeper.try_acquire().await.unwrap().unwrap();
            assert_eq!(deeper.hold_count().await.unwrap(), 2);
            // Inherited scopes are those around the call, in a task of a task too.
            let third = inherit(async move { deeper.try_acquire().await.unwrap().is_none() });
            assert!(tokio::spawn(third).await.unwrap(), "the gate lets one in");
            drop(again);
        });
        tokio::spawn(task).await.unwrap();
    };
    lock.acquire().run(body).await.unwrap();
}

async fn inherit_that_outlives_its_scope_acquires_like_any_other(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (end, ended) = oneshot::channel::<()>();
    let inside = lock.clone();
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner();
    let mut task = None;
    let body = async {
        task = Some(tokio::spawn(inherit(async move {
            ended.await.unwrap();
            assert!(inside.try_acquire().await.unwrap().is_none());
            let own = inside.acquire().await.unwrap();
            assert_ne!(own.owner(), owner);
            own.release().await.unwrap();
        })));
    };
    guard.scope(body).await.unwrap();
    let task = task.unwrap();
    end.send(()).unwrap();
    // The hold lives, but its scope is over.
    tokio::time::sleep(stage.part(10)).await;
    assert!(!task.is_finished());
    guard.release().await.unwrap();
    task.await.unwrap();
}

async fn scope_that_has_completed_admits_nothing_although_its_future_is_kept(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let inside = lock.clone();
    let enters = async move {
        ended.await.unwrap();
        inside.try_acquire().await.unwrap().is_some()
    };
    let body = lazy(|_| tokio::spawn(inherit(enters)));
    let mut scope = Box::pin(guard.scope(body));
    let task = (&mut scope).await.unwrap();
    end.send(()).unwrap();
    assert!(!task.await.unwrap(), "it has entered the hold");
    drop(scope);
    guard.release().await.unwrap();
}

async fn waiter_at_the_gate_goes_on_as_any_other_when_the_scope_ends(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let inside = lock.clone();
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner();
    let body = async {
        let sibling = lock.acquire().await.unwrap();
        let task = tokio::spawn(inherit(async move { inside.acquire().await.unwrap() }));
        tokio::time::sleep(stage.part(10)).await;
        (sibling, task)
    };
    let (sibling, task) = guard.scope(body).await.unwrap();
    guard.release().await.unwrap();
    tokio::time::sleep(stage.part(10)).await;
    assert!(!task.is_finished(), "the nested guard still holds");
    sibling.release().await.unwrap();
    let own = task.await.unwrap();
    assert_ne!(own.owner(), owner);
}

async fn future_polled_first_in_a_scope_enters_again_also_outside(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let mut acquiring = pin!(lock.acquire().into_future());
    let sibling = guard.scope(async {
        let sibling = lock.acquire().await.unwrap();
        let polled = poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx).is_pending()));
        assert!(polled.await);
        // Only a part of the body: the scope must not end, so it never completes.
        drop(sibling);
        let again = acquiring.await.unwrap();
        assert_eq!(again.owner(), guard.owner());
    });
    sibling.await.unwrap();
}

async fn code_in_a_drop_of_the_body_is_inside_too(stage: &Stage) {
    struct EntersInDrop<'a>(&'a Lock, &'a mut bool);
    impl Drop for EntersInDrop<'_> {
        fn drop(&mut self) {
            let mut cx = Context::from_waker(Waker::noop());
            let entered = pin!(self.0.try_acquire()).poll(&mut cx);
            *self.1 = matches!(entered, Poll::Ready(Ok(Some(_))));
        }
    }
    let lock = stage.client().await.lock(KEY);
    let (mut done, mut dropped, mut scoped) = (false, false, false);
    let run = lock.acquire().run(async {
        let _enters = EntersInDrop(&lock, &mut done);
    });
    run.await.unwrap();
    let run = lock.acquire().run(async {
        let _enters = EntersInDrop(&lock, &mut dropped);
        std::future::pending::<()>().await;
    });
    assert!(tokio::time::timeout(stage.part(10), run).await.is_err());
    let guard = lock.acquire().await.unwrap();
    let scope = guard.scope(async {
        let _enters = EntersInDrop(&lock, &mut scoped);
        std::future::pending::<()>().await;
    });
    assert!(tokio::time::timeout(stage.part(10), scope).await.is_err());
    assert_eq!((done, dropped, scoped), (true, true, true));
}

async fn section_enters_again_while_it_lives(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let mut section = guard.section();
    let mut body = pin!(async {
        let again = lock.acquire().await.unwrap();
        tokio::task::yield_now().await;
        again.owner()
    });
    let owner = poll_fn(|cx| section.poll_in(cx, |cx| body.as_mut().poll(cx)));
    assert_eq!(owner.await.unwrap(), guard.owner());
    let task = section.enter(|| {
        let lock = lock.clone();
        tokio::spawn(inherit(async move {
            lock.try_acquire().await.unwrap().is_some()
        }))
    });
    assert!(task.await.unwrap());
    drop(section);
    assert!(lock.try_acquire().await.unwrap().is_none());
}

on_every_backend![
    acquire_inside_its_scope_enters_again_by_any_handle,
    nested_runs_enter_again_at_any_depth,
    reentry_needs_no_answer_of_the_server,
    server_is_told_of_the_count,
    reentered_guards_may_go_in_any_order,
    scope_of_a_reentered_guard_is_inside_too,
    nested_guard_taken_out_of_its_scope_keeps_the_key,
    another_client_inside_the_scope_is_another_owner,
    spawned_task_does_not_inherit,
    inherit_carries_the_scope_into_a_task,
    inherit_that_outlives_its_scope_acquires_like_any_other,
    scope_that_has_completed_admits_nothing_although_its_future_is_kept,
    waiter_at_the_gate_goes_on_as_any_other_when_the_scope_ends,
    future_polled_first_in_a_scope_enters_again_also_outside,
    code_in_a_drop_of_the_body_is_inside_too,
    section_enters_again_while_it_lives,
];

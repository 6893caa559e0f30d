//! Branches of one scope: they exclude each other, wait like anybody, and never leave the gate shut.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Blocker, Error, Lock};
use tokio::time::{Instant, sleep};

use crate::conformance::stage::{Stage, drop_after, refused};

const KEY: &str = "order:42";

/// Panics when two are inside at once.
#[derive(Default)]
struct Inside(AtomicUsize);

impl Inside {
    async fn visit(&self, lock: &Lock, stay: Duration) {
        let body = async {
            assert_eq!(
                self.0.fetch_add(1, Ordering::SeqCst),
                0,
                "two inside at once"
            );
            sleep(stay).await;
            self.0.fetch_sub(1, Ordering::SeqCst);
        };
        lock.acquire().run(body).await.unwrap();
    }
}

#[track_caller]
fn assert_sibling(error: &Error) {
    let sibling = matches!(
        error,
        Error::Timeout {
            blocker: Blocker::Sibling,
            ..
        }
    );
    assert!(sibling, "{error}");
}

async fn siblings_in_a_scope_of_the_key_run_one_after_another(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (inside, stay) = (Inside::default(), stage.part(10));
    let start = Instant::now();
    let body = async {
        tokio::join!(inside.visit(&lock, stay), inside.visit(&lock, stay));
    };
    lock.acquire().run(body).await.unwrap();
    stage.assert_took(start, 2 * stay);
}

async fn siblings_in_a_scope_of_another_key_exclude_each_other(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock(KEY);
    let (inside, stay) = (Inside::default(), stage.part(10));
    let start = Instant::now();
    let body = async {
        tokio::join!(inside.visit(&lock, stay), inside.visit(&lock, stay));
    };
    client.lock("other").acquire().run(body).await.unwrap();
    assert!(start.elapsed() >= 2 * stay);
}

async fn scopes_of_one_guard_share_its_gate(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (inside, stay) = (Inside::default(), stage.part(10));
    let guard = lock.acquire().await.unwrap();
    let (one, two) = tokio::join!(
        guard.scope(inside.visit(&lock, stay)),
        guard.scope(inside.visit(&lock, stay))
    );
    one.and(two).unwrap();
    assert_eq!(lock.hold_count().await.unwrap(), 1);
}

async fn sibling_that_waits_too_long_is_told_who_was_inside(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (stay, wait) = (stage.part(5), stage.part(10));
    let body = async {
        let inside = Inside::default();
        let late = async {
            tokio::task::yield_now().await;
            assert!(lock.try_acquire().await.unwrap().is_none());
            assert_sibling(&refused(lock.acquire().wait(Duration::ZERO).await));
            let start = Instant::now();
            let error = refused(lock.acquire().wait(wait).await);
            stage.assert_took(start, wait);
            assert_sibling(&error);
        };
        tokio::join!(inside.visit(&lock, stay), late);
    };
    lock.acquire().run(body).await.unwrap();
}

async fn crossed_siblings_end_by_wait_and_the_other_goes_on(stage: &Stage) {
    let client = stage.client().await;
    let (a, b) = (client.lock("a"), client.lock("b"));
    let (short, long, start) = (stage.part(6), stage.part(3), Instant::now());
    let body = async {
        let a_then_b = async {
            let outer = a.acquire().await.unwrap();
            tokio::task::yield_now().await;
            let inner = outer.scope(b.acquire().wait(long).into_future()).await;
            inner.unwrap().unwrap().release().await.unwrap();
        };
        let b_then_a = async {
            let outer = b.acquire().await.unwrap();
            tokio::task::yield_now().await;
            let inner = outer.scope(a.acquire().wait(short).into_future()).await;
            assert_sibling(&refused(inner.unwrap()));
        };
        tokio::join!(a_then_b, b_then_a);
    };
    a.acquire().run(body).await.unwrap();
    stage.assert_took(start, short);
}

async fn reentered_nested_guard_keeps_siblings_out_when_the_first_has_gone(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let body = async {
        let nested = lock.acquire().await.unwrap();
        let again = nested.reenter().unwrap();
        nested.release().await.unwrap();
        assert_sibling(&refused(lock.acquire().wait(stage.part(10)).await));
        again.release().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_some());
    };
    lock.acquire().run(body).await.unwrap();
}

async fn sibling_dropped_at_any_point_leaves_the_gate_open(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let stay = stage.part(10);
    let body = async {
        for polls in 0..12 {
            let inside = Inside::default();
            let pair = async {
                tokio::join!(inside.visit(&lock, stay), inside.visit(&lock, stay));
                inside.visit(&lock, stay).await;
            };
            let done = drop_after(polls, pair).await.is_some();
            let next = lock.try_acquire().await.unwrap();
            assert!(next.is_some(), "shut after {polls} polls");
            assert_eq!(lock.hold_count().await.unwrap(), 2);
            // In real time other wake-ups may come in between.
            assert!(
                done == (polls > 4) || !stage.is_paused(),
                "{polls} polls, done: {done}"
            );
        }
    };
    lock.acquire().run(body).await.unwrap();
}

async fn nested_guard_brings_a_gate_of_its_own(stage: &Stage) {
    let lock = stage.client().await.lock(KEY);
    let (inside, stay) = (Inside::default(), stage.part(20));
    let branch = async || {
        let pair = async {
            tokio::join!(inside.visit(&lock, stay), inside.visit(&lock, stay));
        };
        lock.acquire().run(pair).await.unwrap();
    };
    let start = Instant::now();
    let body = async {
        tokio::join!(branch(), branch());
    };
    lock.acquire().run(body).await.unwrap();
    stage.assert_took(start, 4 * stay);
}

on_every_backend![
    siblings_in_a_scope_of_the_key_run_one_after_another,
    siblings_in_a_scope_of_another_key_exclude_each_other,
    scopes_of_one_guard_share_its_gate,
    sibling_that_waits_too_long_is_told_who_was_inside,
    crossed_siblings_end_by_wait_and_the_other_goes_on,
    reentered_nested_guard_keeps_siblings_out_when_the_first_has_gone,
    sibling_dropped_at_any_point_leaves_the_gate_open,
    nested_guard_brings_a_gate_of_its_own,
];

//! The non-reentrant lock: entering it again inside its own scope is an error at once.

use distlock::{Error, inherit};
use distlock_tests::lock_once;

use crate::conformance::stage::{Stage, is_done_within, refused};

const KEY: &str = "order:42";

on_every_backend![
    every_way_of_entering_again_is_an_error_at_once,
    other_kinds_of_lock_inside_its_scope_are_an_error_too,
    after_its_scope_it_is_acquired_like_any_other,
];

async fn every_way_of_entering_again_is_an_error_at_once(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.non_reentrant_lock(KEY);
    let guard = lock.acquire().await.unwrap();
    let body = async {
        let errors = [
            refused(lock.acquire().await),
            refused(lock.try_acquire().await),
            refused(client.non_reentrant_lock(KEY).acquire().run(async {}).await),
            refused(inherit(lock.acquire().into_future()).await),
            refused(guard.reenter()),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::Deadlock { key, .. } if key == KEY),
                "{error}"
            );
        }
    };
    assert!(is_done_within(stage.part(10) + stage.slack(), guard.scope(body)).await);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn other_kinds_of_lock_inside_its_scope_are_an_error_too(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.non_reentrant_lock(KEY).acquire().await.unwrap();
    let body = async {
        assert!(refused(client.lock(KEY).acquire().await).is_permanent());
        assert!(refused(client.spin_lock(KEY).acquire().await).is_permanent());
        assert!(refused(client.fenced_lock(KEY).acquire().await).is_permanent());
        // Another key is nobody's business.
        lock_once(&client, "stock:7").await;
    };
    guard.scope(body).await.unwrap();
    guard.release().await.unwrap();
}

async fn after_its_scope_it_is_acquired_like_any_other(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.non_reentrant_lock(KEY);
    for _ in 0..3 {
        lock.acquire().run(async {}).await.unwrap();
    }
    let guard = lock.acquire().await.unwrap();
    // Beside the scope it waits, as the tasks of others do.
    let wait = stage.part(20);
    assert!(refused(lock.acquire().wait(wait).await).is_busy());
    guard.release().await.unwrap();
}

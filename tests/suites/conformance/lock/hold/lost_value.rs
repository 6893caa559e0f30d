//! The value of a body that has ended before its hold turned out to be lost.

use std::cell::RefCell;
use std::fmt;

use distlock::{Client, Error, Loss, MultiLock};
use distlock_tests::LockKind;
use distlock_tests::faults::{Fault, Op};
use tokio::time::sleep;

use crate::conformance::stage::{Stage, assert_lost_by, refused};

const KEY: &str = "order:42";

/// The error of a body.
#[derive(Debug)]
enum Failed {
    Body,
    Handler,
    Lock(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// What a handler was called with.
#[derive(Default)]
struct Calls(RefCell<Vec<String>>);

impl Calls {
    fn note(&self, value: impl fmt::Debug, loss: &Error) {
        assert!(loss.body_completed(), "{loss}");
        let reason = match loss {
            Error::Lost { reason, .. } => *reason,
            other => panic!("no loss: {other}"),
        };
        self.0.borrow_mut().push(format!("{value:?} {reason:?}"));
    }

    fn taken(&self) -> Vec<String> {
        self.0.take()
    }
}

async fn force(client: &Client, key: &str) {
    client.lock(key).force_release().await.unwrap();
}

async fn value_of_a_body_that_ended_before_the_loss_is_what_the_function_makes_of_it(
    stage: &Stage,
) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, calls) = (client.lock(KEY), Calls::default());
    let body = async || {
        force(&other, KEY).await;
        7
    };
    let told = |value: u64, loss: Error| {
        calls.note(value, &loss);
        Ok(value + 1)
    };
    assert_eq!(lock.acquire().on_lost(told).run(body()).await.unwrap(), 8);
    let refused_too = |value: u64, loss: Error| {
        calls.note(value, &loss);
        Err::<u64, _>(loss)
    };
    let error = lock.acquire().on_lost(refused_too).run(body()).await;
    assert!(error.unwrap_err().is_lost());
    let failed = |value: u64, loss: Error| {
        calls.note(value, &loss);
        Err(Failed::Handler)
    };
    let body = async { Ok::<u64, Failed>(body().await) };
    let made = lock.acquire().on_lost(failed).try_run(body).await;
    assert!(matches!(made, Err(Failed::Handler)), "{made:?}");
    assert_eq!(calls.taken(), ["7 Gone", "7 Gone", "7 Gone"]);
}

async fn function_is_not_called_for_a_body_that_kept_its_lock_was_cut_or_never_ran(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (lock, calls) = (client.lock(KEY), Calls::default());
    let told = |value: (), loss: Error| {
        calls.note(value, &loss);
        Ok(())
    };
    lock.acquire().on_lost(told).run(async {}).await.unwrap();
    let short = lock.acquire().lease(stage.part(4)).on_lost(told);
    let cut = refused(short.run(sleep(2 * stage.lease())).await);
    assert_lost_by(&cut, Loss::Expired);
    assert!(!cut.body_completed());
    stage.is_free_within(stage.lease(), KEY).await;
    let held = other.lock(KEY).acquire().await.unwrap();
    let busy = lock.acquire().wait(stage.part(20)).on_lost(told);
    let busy = refused(busy.run(async { unreachable!("it is locked") }).await);
    assert!(busy.is_busy(), "{busy}");
    let failed = |value: (), loss: Error| {
        calls.note(value, &loss);
        Err(Failed::Handler)
    };
    let busy = lock.acquire().wait(stage.part(20)).on_lost(failed);
    let busy = busy.try_run(async { Err(Failed::Body) });
    assert!(matches!(busy.await, Err(Failed::Lock(error)) if error.is_busy()));
    held.release().await.unwrap();
    assert!(calls.taken().is_empty());
}

async fn error_of_the_body_stays_the_result_although_the_lock_was_lost(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let calls = Calls::default();
    let told = |value: u64, loss: Error| {
        calls.note(value, &loss);
        Ok(value)
    };
    let body = async {
        force(&other, KEY).await;
        Err::<u64, _>(Failed::Body)
    };
    let failed = client.lock(KEY).acquire().on_lost(told).try_run(body).await;
    assert!(matches!(failed, Err(Failed::Body)), "{failed:?}");
    assert!(calls.taken().is_empty());
}

async fn value_passes_if_only_the_answer_to_the_release_is_missing(stage: &Stage) {
    let client = stage.faulty_client().await;
    let calls = Calls::default();
    let told = |value: u64, loss: Error| {
        calls.note(value, &loss);
        Ok(0)
    };
    let body = async {
        stage.faults().always(Op::Release, Fault::FailAfter);
        7
    };
    let value = client.lock(KEY).acquire().on_lost(told).run(body).await;
    assert_eq!(value.unwrap(), 7);
    assert!(stage.faults().hits(Op::Release) > 0);
    stage.faults().clear_all();
    assert!(calls.taken().is_empty());
}

async fn value_of_a_multi_lock_that_lost_one_key_goes_to_the_function(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let calls = Calls::default();
    let locks = client.multi_lock(["order:1", "order:2"]);
    let told = |value: &'static str, loss: Error| {
        calls.note(value, &loss);
        Ok(value)
    };
    let body = async {
        force(&other, "order:2").await;
        "paid"
    };
    let made = locks.acquire().on_lost(told).run(body).await;
    assert_eq!(made.unwrap(), "paid");
    assert_eq!(calls.taken(), ["\"paid\" Gone"]);
}

async fn key_that_has_other_data_when_the_body_ends_is_a_loss(stage: &Stage) {
    let (client, other) = (stage.client().await, stage.client().await);
    let body = async {
        force(&other, KEY).await;
        let semaphore = other.semaphore(KEY);
        assert!(semaphore.try_set_permits(1).await.unwrap());
        7
    };
    let lost = refused(client.lock(KEY).acquire().run(body).await);
    assert!(lost.is_lost() && lost.body_completed(), "{lost}");
    // It is left as it is.
    let semaphore = other.semaphore(KEY);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    assert!(semaphore.delete().await.unwrap());
    for kind in [
        LockKind::NonReentrant,
        LockKind::Spin,
        LockKind::Fenced,
        LockKind::Fair,
        LockKind::NonReentrantFair,
        LockKind::Read,
        LockKind::Write,
    ] {
        let guard = kind.lock(&client, KEY).acquire(None, None).await.unwrap();
        assert!(kind.lock(&other, KEY).force_release().await.unwrap());
        assert!(semaphore.try_set_permits(1).await.unwrap());
        let lost = refused(guard.release().await);
        assert!(lost.is_lost(), "{kind:?}: {lost}");
        assert!(semaphore.delete().await.unwrap());
    }
}

async fn loss_of_one_key_is_told_although_the_release_of_another_one_fails(stage: &Stage) {
    let (client, other) = (stage.faulty_client().await, stage.client().await);
    let locks = MultiLock::of([
        client.lock("order:1").into(),
        other.fenced_lock("order:2").into(),
    ]);
    let body = async {
        stage.faults().next(Op::Release, Fault::Garbled);
        stage
            .client()
            .await
            .fenced_lock("order:2")
            .force_release()
            .await
            .unwrap();
        7
    };
    let lost = refused(locks.acquire().run(body).await);
    assert!(lost.is_lost() && lost.body_completed(), "{lost}");
    assert_eq!(stage.faults().hits(Op::Release), 1);
}

on_every_backend![
    value_of_a_body_that_ended_before_the_loss_is_what_the_function_makes_of_it,
    function_is_not_called_for_a_body_that_kept_its_lock_was_cut_or_never_ran,
    error_of_the_body_stays_the_result_although_the_lock_was_lost,
    value_passes_if_only_the_answer_to_the_release_is_missing,
    value_of_a_multi_lock_that_lost_one_key_goes_to_the_function,
    key_that_has_other_data_when_the_body_ends_is_a_loss,
    loss_of_one_key_is_told_although_the_release_of_another_one_fails,
];

//! What code inside a scope can ask about the holds around it.

use std::future::{IntoFuture, pending};

use distlock::{Client, Error, MultiLock, current, inherit, is_held};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use crate::conformance::stage::Stage;

async fn code_inside_a_scope_sees_its_holds_and_no_others(stage: &Stage) {
    let client = stage.client().await;
    let (outer, inner) = (client.lock("order"), client.fenced_lock("item"));
    assert!(!is_held("order") && current("order").is_none());
    let inside = outer.acquire().run(async {
        assert!(is_held("order") && !is_held("item"));
        let deeper = inner.acquire().run(async {
            assert!(is_held("order") && is_held("item"));
            assert!(current("order").unwrap().fencing_token().is_none());
            current("item").unwrap()
        });
        let hold = deeper.await.unwrap();
        assert!(is_held("order") && !is_held("item"));
        hold
    });
    let hold = inside.await.unwrap();
    assert!(hold.fencing_token().is_some() && hold.key() == "item");
    assert!(!hold.is_held());
    hold.lost().await;
}

async fn guard_without_a_scope_is_not_seen(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock("order").acquire().await.unwrap();
    assert!(!is_held("order"));
    guard
        .scope(async { assert!(is_held("order")) })
        .await
        .unwrap();
    guard.release().await.unwrap();
}

async fn try_scope_ends_with_the_error_of_its_body_or_of_the_loss(stage: &Stage) {
    let client = stage.client().await;
    let lock = client.lock("order");
    let guard = lock.acquire().await.unwrap();
    let entered: Result<bool, Error> = guard.try_scope(async { Ok(is_held("order")) }).await;
    assert!(entered.unwrap());
    let own = guard.try_scope(async { Err::<(), _>(Error::NoClient) });
    assert!(own.await.unwrap_err().is_permanent());
    assert!(guard.is_held());
    lock.force_release().await.unwrap();
    let cut = guard.try_scope(pending::<Result<(), Error>>()).await;
    assert!(cut.unwrap_err().is_lost());
}

async fn each_key_of_several_is_seen_under_its_name_without_the_prefix(stage: &Stage) {
    let prefix = format!("{}orders:", stage.prefix());
    let client = stage
        .client_with(|builder| builder.key_prefix(&prefix))
        .await;
    let both = client.multi_lock(["b", "a"]);
    both.acquire()
        .run(async {
            assert!(is_held("a") && is_held("b") && !is_held(&format!("{prefix}a")));
            assert_eq!(current("b").unwrap().key(), "b");
        })
        .await
        .unwrap();
}

async fn each_key_of_several_kinds_is_seen_with_its_own_token_and_owner(stage: &Stage) {
    let client = stage.client().await;
    let mixed = MultiLock::of([client.lock("a").into(), client.fenced_lock("b").into()]);
    let guard = mixed.acquire().await.unwrap();
    let [a, b] = ["a", "b"].map(|key| guard.section().enter(|| current(key)).unwrap());
    assert_eq!((a.key(), a.fencing_token()), ("a", None));
    assert!(b.key() == "b" && b.fencing_token().is_some());
    for hold in [a, b] {
        let holders = client.lock(hold.key()).holders().await.unwrap();
        assert_eq!(holders[0].owner, hold.owner().to_string());
    }
    guard.release().await.unwrap();
}

async fn lost_hold_is_seen_but_not_held(stage: &Stage) {
    let client = stage.client().await;
    let guard = client.lock("order").acquire().lease(stage.part(3)).await;
    let guard = guard.unwrap();
    let mut section = guard.section();
    let hold = section.enter(|| current("order")).unwrap();
    assert!(hold.is_held());
    hold.lost().await;
    assert!(!hold.is_held() && !section.enter(|| is_held("order")));
}

async fn lost_hold_inside_a_held_one_of_its_key_hides_nothing(stage: &Stage) {
    let lock = stage.client().await.lock("order");
    let outer = lock.acquire().await.unwrap();
    let mut around = outer.section();
    let nested = lock.acquire().lease(stage.part(3));
    let inner = outer.scope(nested.into_future()).await.unwrap().unwrap();
    let mut inside = around.enter(|| inner.section());
    let mut within = |ask: fn() -> bool| around.enter(|| inside.enter(ask));
    assert!(within(|| is_held("order")));
    inner.lost().await;
    assert!(outer.is_held() && within(|| is_held("order")));
    assert!(within(|| current("order").unwrap().is_held()));
    outer.release().await.unwrap();
    assert!(!within(|| is_held("order")));
    assert!(!within(|| current("order").unwrap().is_held()));
}

struct AsksInDrop(Option<oneshot::Sender<bool>>);

impl Drop for AsksInDrop {
    fn drop(&mut self) {
        let told = self.0.take().map(|tell| tell.send(is_held("order")));
        assert_eq!(told, Some(Ok(())));
    }
}

async fn body_dropped_for_its_loss_sees_the_outer_hold_of_another_client(stage: &Stage) {
    let elsewhere = Client::in_memory();
    let (outer, inner) = (stage.client().await.lock("order"), elsewhere.lock("order"));
    let (tell, told) = oneshot::channel();
    let body = async move {
        let _asks = AsksInDrop(Some(tell));
        pending::<()>().await;
    };
    let nested = inner.acquire().lease(stage.part(3)).run(body);
    let lost = outer.acquire().run(nested).await.unwrap();
    assert!(lost.unwrap_err().is_lost());
    assert!(told.await.unwrap());
}

async fn spawned_task_sees_what_it_inherits(stage: &Stage) {
    let client = stage.client().await;
    let seen = client.lock("order").acquire().run(async {
        let plain = tokio::spawn(async { is_held("order") });
        let inherited = tokio::spawn(inherit(async { is_held("order") }));
        (plain.await.unwrap(), inherited.await.unwrap())
    });
    assert_eq!(seen.await.unwrap(), (false, true));
}

async fn local_task_that_a_body_polls_sees_what_it_inherits(stage: &Stage) {
    let lock = stage.client().await.lock("order");
    let local = LocalSet::new();
    let again = lock.clone();
    let plain = local.spawn_local(async move {
        let entered = again.try_acquire().await.unwrap();
        is_held("order") || entered.is_some()
    });
    let seen = lock.acquire().run(local.run_until(async {
        let plain = plain.await.unwrap();
        let inherited = spawn_local(inherit(async { is_held("order") }));
        (plain, inherited.await.unwrap(), is_held("order"))
    }));
    assert_eq!(seen.await.unwrap(), (false, true, true));
}

on_every_backend! {
    code_inside_a_scope_sees_its_holds_and_no_others,
    try_scope_ends_with_the_error_of_its_body_or_of_the_loss,
    guard_without_a_scope_is_not_seen,
    each_key_of_several_is_seen_under_its_name_without_the_prefix,
    each_key_of_several_kinds_is_seen_with_its_own_token_and_owner,
    lost_hold_is_seen_but_not_held,
    lost_hold_inside_a_held_one_of_its_key_hides_nothing,
    body_dropped_for_its_loss_sees_the_outer_hold_of_another_client,
    spawned_task_sees_what_it_inherits,
    local_task_that_a_body_polls_sees_what_it_inherits,
}

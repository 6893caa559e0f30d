//! `Held` in the handler: a guard that is kept after the response, and views that keep nothing.

use std::convert::Infallible;
use std::future::pending;

use distlock::Client;
use distlock_tower::Held;
use http::{Request, Response};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use super::{Text, by_path, locked, text, to};
use crate::support::SEC;

#[tokio::test]
async fn kept_guard_outlives_the_response() {
    let client = Client::in_memory();
    let (send, mut kept) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        send.send((held.keep().unwrap(), held.clone())).unwrap();
        assert!(held.is_held() && held.keep().is_none());
        Ok::<_, Infallible>(text("done"))
    });
    assert_eq!(
        by_path(&client)
            .layer(handler)
            .oneshot(to("/k"))
            .await
            .unwrap()
            .status(),
        200
    );
    let (guard, held) = kept.recv().await.unwrap();
    assert!(guard.is_held() && held.is_held() && locked(&client, "k").await);
    assert_eq!(
        (guard.key(), held.key(), held.keys().collect()),
        ("k", "k", vec!["k"])
    );
    guard.release().await.unwrap();
    held.lost().await;
    assert!(!held.is_held() && !locked(&client, "k").await);
}

#[tokio::test]
async fn held_kept_by_the_handler_does_not_stop_the_release() {
    let client = Client::in_memory();
    let (send, mut kept) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        send.send(request.extensions().get::<Held>().cloned().unwrap())
            .unwrap();
        Ok::<_, Infallible>(text("done"))
    });
    let service = by_path(&client).layer(handler);
    service.clone().oneshot(to("/k")).await.unwrap();
    let held = kept.recv().await.unwrap();
    assert!(!locked(&client, "k").await);
    assert!(!held.is_held() && held.keep().is_none());
    held.lost().await;
    // It does not report the hold of the key's next holder.
    let _next = client.lock("k").acquire().await.unwrap();
    assert!(!held.is_held());
}

#[tokio::test(start_paused = true)]
async fn held_reports_the_loss_to_a_spawned_task() {
    let client = Client::in_memory();
    let (send, mut reports) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        let (held, send) = (
            request.extensions().get::<Held>().cloned().unwrap(),
            send.clone(),
        );
        tokio::spawn(async move {
            held.lost().await;
            send.send(held.is_held())
        });
        pending::<Result<Response<Text>, Infallible>>().await
    });
    let service = by_path(&client).lease(5 * SEC).layer(handler);
    assert_eq!(service.oneshot(to("/k")).await.unwrap().status(), 500);
    assert_eq!(reports.recv().await, Some(false));
}

//! The live stream.

use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{app, clients, get, text};

/// The next event of a stream; `None` at its end.
async fn next(body: &mut Body) -> Option<Value> {
    let frame = body.frame().await?.unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    assert!(text.lines().any(|line| line == "event: look"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    Some(serde_json::from_str(data.unwrap()).unwrap())
}

fn keys(event: &Value) -> Vec<&str> {
    let locks = event["locks"].as_array().unwrap();
    locks
        .iter()
        .map(|lock| lock["key"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn first_event_has_all_locks_and_later_ones_what_has_changed() {
    let (watcher, worker) = clients();
    let a = worker.lock("a").acquire().await.unwrap();
    let mut events = get(&app(&watcher), "/locks/api/events").await.into_body();
    let first = next(&mut events).await.unwrap();
    assert_eq!(
        (keys(&first), &first["is_whole"]),
        (vec!["a"], &json!(true))
    );

    let _b = worker.lock("b").acquire().await.unwrap();
    let second = next(&mut events).await.unwrap();
    assert_eq!(
        (keys(&second), &second["is_whole"]),
        (vec!["b"], &json!(false))
    );

    a.release().await.unwrap();
    let third = next(&mut events).await.unwrap();
    assert_eq!((keys(&third), &third["gone"]), (vec![], &json!(["a"])));
    let contention = third["contention"].as_array().unwrap();
    assert_eq!(
        contention.iter().map(|it| &it["held"]).collect::<Vec<_>>(),
        [1, 2, 1]
    );
}

#[tokio::test(start_paused = true)]
async fn all_watchers_together_look_once_in_two_seconds() {
    let app = app(&clients().0);
    let mut one = get(&app, "/locks/api/events").await.into_body();
    let mut two = get(&app, "/locks/api/events").await.into_body();
    let started = Instant::now();
    for look in 1..=3 {
        let (first, second) = tokio::join!(next(&mut one), next(&mut two));
        assert_eq!(
            (&first.unwrap()["look"], &second.unwrap()["look"]),
            (&json!(look), &json!(look))
        );
    }
    let took = started.elapsed();
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn watcher_that_goes_while_it_looks_leaves_the_look_to_the_next_one() {
    let app = app(&clients().0);
    let mut one = get(&app, "/locks/api/events").await.into_body();
    let mut two = get(&app, "/locks/api/events").await.into_body();
    next(&mut one).await.unwrap();
    next(&mut two).await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_secs(1), next(&mut one)).await;
    assert!(given_up.is_err());
    drop(one);
    assert_eq!(next(&mut two).await.unwrap()["look"], 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_while_nobody_watches() {
    let app = app(&clients().0);
    let mut events = get(&app, "/locks/api/events").await.into_body();
    next(&mut events).await.unwrap();
    // It has asked for the next look by now, and goes before that begins.
    let given_up = tokio::time::timeout(Duration::from_secs(1), next(&mut events)).await;
    assert!(given_up.is_err());
    drop(events);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut events = get(&app, "/locks/api/events").await.into_body();
    assert_eq!(next(&mut events).await.unwrap()["look"], 2);
}

#[tokio::test(start_paused = true)]
async fn stream_ends_after_five_seconds_so_that_a_server_can_shut_down() {
    let app = app(&clients().0);
    let mut events = get(&app, "/locks/api/events").await.into_body();
    let started = Instant::now();
    while next(&mut events).await.is_some() {}
    let took = started.elapsed();
    assert!(
        (Duration::from_secs(5)..Duration::from_millis(5_100)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn stream_ends_at_once_when_the_client_is_closed_and_the_next_one_says_so_and_ends() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("k").acquire().await.unwrap();
    let app = app(&watcher);
    let mut events = get(&app, "/locks/api/events").await.into_body();
    assert_eq!(next(&mut events).await.unwrap()["is_closed"], false);
    watcher.close(Duration::ZERO).await.unwrap();
    let started = Instant::now();
    assert_eq!(next(&mut events).await, None);
    // The page opens a stream again, and shows that the client is closed.
    let mut events = get(&app, "/locks/api/events").await.into_body();
    let seen = next(&mut events).await.unwrap();
    assert_eq!((keys(&seen), &seen["is_closed"]), (vec!["k"], &json!(true)));
    assert_eq!(next(&mut events).await, None);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn all_streams_end_at_once_when_the_server_shuts_down_and_later_ones_too() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let console =
        distlock_tower::console(clients().0).graceful_shutdown(async { drop(stopped.await) });
    let app = Router::new().nest_service("/locks", Router::from(console));
    let mut one = get(&app, "/locks/api/events").await.into_body();
    let mut two = get(&app, "/locks/api/events").await.into_body();
    next(&mut one).await.unwrap();
    next(&mut two).await.unwrap();
    drop(stop);
    let started = Instant::now();
    let ends = tokio::join!(next(&mut one), next(&mut two));
    assert_eq!(ends, (None, None));
    let mut late = get(&app, "/locks/api/events").await.into_body();
    while next(&mut late).await.is_some() {}
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn stream_that_nobody_reads_does_not_stop_the_look_that_it_began() {
    let app = app(&clients().0);
    let mut unread = get(&app, "/locks/api/events").await.into_body();
    let mut read = get(&app, "/locks/api/events").await.into_body();
    next(&mut unread).await.unwrap();
    next(&mut read).await.unwrap();
    // The first one asks for the next look, and is not asked again, as by a connection that takes no more bytes.
    let mut asks = std::pin::pin!(unread.frame());
    let is_pending =
        std::future::poll_fn(|context| Poll::Ready(asks.as_mut().poll(context).is_pending()));
    assert!(is_pending.await);
    let seen = tokio::time::timeout(Duration::from_secs(4), next(&mut read)).await;
    assert_eq!(seen.expect("a look").unwrap()["look"], 2);
}

#[tokio::test(start_paused = true)]
async fn one_stream_too_many_is_refused_until_another_one_has_ended() {
    let app = app(&clients().0);
    let mut open = Vec::new();
    for _ in 0..100 {
        let stream = get(&app, "/locks/api/events").await;
        assert_eq!(stream.status(), StatusCode::OK);
        open.push(stream);
    }
    let refused = get(&app, "/locks/api/events").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let refused = text(refused).await;
    assert!(refused.contains("100 pages are open"), "{refused}");
    assert_eq!(get(&app, "/locks/api/locks").await.status(), StatusCode::OK);
    open.pop();
    let next = get(&app, "/locks/api/events").await;
    assert_eq!(next.status(), StatusCode::OK);
}

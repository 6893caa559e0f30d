//! Locks that are freed by force, and the requests that are refused.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::{app, clients, get, json, text, until_next_look, want_every_event};

/// A console that may free locks. The header `x-user` says who sends a request.
pub(super) fn allowed(client: &Client) -> Router {
    want_every_event();
    let console = distlock_tower::console(client.clone())
        .allow_force_release()
        .hosts(["shop.example"])
        .user(|parts| parts.headers["x-user"].to_str().unwrap().to_owned());
    Router::new().nest("/locks", Router::from(console))
}

pub(super) async fn post(
    app: &Router,
    headers: &[(&str, &str)],
    body: &Value,
) -> (StatusCode, Value) {
    let mut request = Request::post("/locks/api/force-release")
        .header("content-type", "application/json")
        .header("x-user", "ann");
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "shop.example");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

pub(super) fn confirmed(key: &str) -> Value {
    json!({ "key": key, "confirmation": key })
}

#[tokio::test(start_paused = true)]
async fn typed_key_frees_the_lock_and_the_history_says_who_did_it() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let _guard = worker.lock("k").acquire().await.unwrap();
    json(&app, "/locks/api/locks").await;
    let (status, answer) = post(&app, &[], &confirmed("k")).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": true }))
    );
    assert!(!watcher.lock("k").is_locked().await.unwrap());
    until_next_look().await;
    let seen = json(&app, "/locks/api/locks/k").await;
    let past = &seen["past"][0];
    assert_eq!(
        (&past["end"], &past["by"]),
        (&json!("force_released"), &json!("ann"))
    );
    // The moment is known: it is before the look that missed the hold.
    assert_eq!(past["last_seen"], past["until"]);
    assert!(past["until"].as_u64() < seen["now"].as_u64(), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn key_that_nobody_had_looked_at_has_its_release_by_force_in_its_history() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let own = watcher.lock("own").acquire().await.unwrap();
    let theirs = worker.lock("theirs").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(7)).await;
    for (key, owner) in [("own", own.owner()), ("theirs", theirs.owner())] {
        let (status, answer) = post(&app, &[], &confirmed(key)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        for _ in 0..2 {
            let seen = json(&app, &format!("/locks/api/lock?key={key}")).await;
            let past = seen["past"].as_array().unwrap();
            assert_eq!(past.len(), 1, "{key}: {seen}");
            assert_eq!(past[0]["owner"], owner.to_string(), "{key}");
            assert_eq!(
                (&past[0]["end"], &past[0]["by"]),
                (&json!("force_released"), &json!("ann"))
            );
            // This process knows since when it held its own lock.
            assert_eq!(past[0]["is_exact"], key == "own", "{seen}");
            let held = past[0]["until"].as_u64().unwrap() - past[0]["since"].as_u64().unwrap();
            assert!(held >= if key == "own" { 7_000 } else { 0 }, "{held}");
            until_next_look().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_form_of_lock_is_freed() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let fair = worker.fair_lock("fair");
    let _guards = (
        fair.acquire().await.unwrap(),
        worker.fenced_lock("fenced").acquire().await.unwrap(),
        worker.rw_lock("read").read().acquire().await.unwrap(),
        worker.rw_lock("write").write().acquire().await.unwrap(),
    );
    for key in ["fair", "fenced", "read", "write"] {
        let (status, answer) = post(&app, &[], &confirmed(key)).await;
        assert_eq!(
            (status, answer),
            (StatusCode::OK, json!({ "released": true })),
            "{key}"
        );
        assert!(!watcher.inspect(key).await.unwrap().is_held(), "{key}");
    }
}

fn meant(key: &str, owners: &[&str]) -> Value {
    json!({ "key": key, "confirmation": key, "owners": owners })
}

#[tokio::test(start_paused = true)]
async fn holder_that_was_not_shown_keeps_the_lock_and_is_named() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let first = worker.lock("k").acquire().await.unwrap();
    let shown = first.owner().to_string();
    first.release().await.unwrap();
    let second = worker.lock("k").acquire().await.unwrap();
    let now = second.owner().to_string();
    for owners in [[shown.as_str()].as_slice(), &[]] {
        let (status, answer) = post(&app, &[], &meant("k", owners)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{answer}");
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains(&now) && text.contains("worker"), "{text}");
        assert!(watcher.lock("k").is_locked().await.unwrap());
    }
    let (status, answer) = post(&app, &[], &meant("k", &[&shown, &now])).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": true }))
    );
    assert!(second.release().await.unwrap_err().is_lost());
}

/// The console looks at the key before it frees it, and the server decides once more.
#[tokio::test(start_paused = true)]
async fn holder_that_came_after_the_console_had_looked_keeps_the_lock_and_is_named() {
    let (server, faults) = (MemoryServer::new(), Faults::new());
    let watcher = Client::builder().faults(&faults).in_memory(&server);
    let watcher = watcher.unwrap();
    let worker = Client::builder().name("worker").in_memory(&server).unwrap();
    let app = allowed(&watcher);
    let first = worker.lock("k").acquire().await.unwrap();
    let seen = first.owner().to_string();
    faults.next(Op::ForceRelease, Fault::Delay(Duration::from_secs(1)));
    let meant = meant("k", &[&seen]);
    let changes = async {
        sleep(Duration::from_millis(500)).await;
        first.release().await.unwrap();
        worker.lock("k").acquire().await.unwrap()
    };
    let ((status, answer), second) = tokio::join!(post(&app, &[], &meant), changes);
    assert_eq!(faults.hits(Op::ForceRelease), 1);
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    let why = answer["error"].as_str().unwrap();
    assert!(why.contains(&second.owner().to_string()), "{why}");
    assert!(second.is_held() && watcher.lock("k").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn reader_that_came_later_keeps_all_readers_and_one_that_has_left_does_not() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let lock = worker.rw_lock("k").read();
    let (one, two) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    let owners = [one.owner().to_string(), two.owner().to_string()];
    let (status, answer) = post(&app, &[], &meant("k", &[&owners[0]])).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains(&owners[1]));
    assert!(watcher.inspect("k").await.unwrap().is_held());

    two.release().await.unwrap();
    let (status, answer) = post(&app, &[], &meant("k", &[&owners[0], &owners[1]])).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": true }))
    );
    assert!(!watcher.inspect("k").await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn wrong_confirmation_frees_nothing() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("k").acquire().await.unwrap();
    let body = json!({ "key": "k", "confirmation": "K" });
    let (status, answer) = post(&allowed(&watcher), &[], &body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(watcher.lock("k").is_locked().await.unwrap());
    let (status, answer) = post(&allowed(&watcher), &[], &json!({ "key": "k" })).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(watcher.lock("k").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn console_that_only_reads_frees_nothing() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("k").acquire().await.unwrap();
    // By a host that may free locks, so that the permission alone is missing.
    let local = ("host", "localhost");
    let (status, answer) = post(&app(&watcher), &[local], &confirmed("k")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    let why = answer["error"].as_str().unwrap();
    assert!(why.contains("this console only reads"), "{why}");
    assert!(watcher.lock("k").is_locked().await.unwrap());
    let locks = json(&app(&watcher), "/locks/api/locks").await;
    assert_eq!(locks["may_force_release"], false);
}

#[tokio::test(start_paused = true)]
async fn key_outside_of_the_pattern_is_neither_shown_nor_freed() {
    let server = MemoryServer::new();
    let client = Client::builder().key_prefix("shop:");
    let client = client.in_memory(&server).unwrap();
    let _guard = client.multi_lock(["a:1", "b:1"]).acquire().await.unwrap();
    let console = distlock_tower::console(client.clone()).pattern("b:*");
    let console = console.allow_force_release().hosts(["shop.example"]);
    let app: Router = Router::new().nest("/locks", Router::from(console));

    let seen = get(&app, "/locks/api/locks/a:1").await;
    assert_eq!(seen.status(), StatusCode::NOT_FOUND);
    let seen = text(seen).await;
    assert!(seen.contains("a:1") && seen.contains("b:*"), "{seen}");
    let (status, answer) = post(&app, &[], &confirmed("a:1")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    assert!(client.lock("a:1").is_locked().await.unwrap());

    assert!(json(&app, "/locks/api/locks/b:1").await["lock"].is_object());
    let (status, answer) = post(&app, &[], &confirmed("b:1")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(!client.lock("b:1").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn get_request_frees_nothing() {
    let (watcher, _) = clients();
    let response = get(&allowed(&watcher), "/locks/api/force-release").await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn free_key_and_data_of_another_program_are_not_freed() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let (status, answer) = post(&app, &[], &confirmed("nothing")).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": false }))
    );

    let free = worker.fenced_lock("fenced").acquire().await.unwrap();
    free.release().await.unwrap();
    let (status, answer) = post(&app, &[], &confirmed("fenced")).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": false }))
    );
}

fn meant_number(key: &str, owners: &[&str], number: i64) -> Value {
    json!({ "key": key, "confirmation": key, "owners": owners, "number": number })
}

#[tokio::test(start_paused = true)]
async fn semaphore_is_deleted_with_the_number_that_was_shown_and_refused_with_another_one() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let (pool, jobs) = (worker.semaphore("pool"), worker.expirable_semaphore("jobs"));
    pool.try_set_permits(2).await.unwrap();
    jobs.try_set_permits(2).await.unwrap();
    let _permits = (pool.acquire().await.unwrap(), jobs.acquire().await.unwrap());
    for key in ["pool", "jobs"] {
        let shown = json(&app, &format!("/locks/api/locks/{key}")).await["lock"].clone();
        assert_eq!(shown["can_be_released"], true, "{shown}");
        assert_eq!(shown["permits"]["free"], 1, "{shown}");
        let owner = shown["holders"][0]["owner"].as_str().unwrap();
        let (status, answer) = post(&app, &[], &meant_number(key, &[owner], 2)).await;
        let text = answer["error"].as_str().unwrap();
        assert_eq!(status, StatusCode::CONFLICT, "{text}");
        assert!(text.contains("1 free permits by now"), "{text}");
        let (status, answer) = post(&app, &[], &meant_number(key, &[], 1)).await;
        let text = answer["error"].as_str().unwrap();
        assert_eq!(status, StatusCode::CONFLICT, "{text}");
        assert!(
            text.contains("another holder") && text.contains(owner),
            "{text}"
        );
        assert!(watcher.inspect(key).await.unwrap().is_held(), "{key}");

        let (status, answer) = post(&app, &[], &meant_number(key, &[owner], 1)).await;
        let freed = (StatusCode::OK, json!({ "released": true }));
        assert_eq!((status, answer), freed, "{key}");
        let now = watcher.inspect(key).await.unwrap().primitive;
        assert_eq!(now, distlock::Primitive::Nothing, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn latch_opens_with_the_count_that_was_shown_and_stays_with_another_one() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let latch = worker.count_down_latch("start");
    latch.try_set_count(3).await.unwrap();
    let waiting = tokio::spawn({
        let latch = worker.count_down_latch("start");
        async move { latch.wait().await }
    });
    let shown = json(&app, "/locks/api/locks/start").await["lock"].clone();
    assert_eq!(
        (&shown["can_be_released"], &shown["count"]),
        (&json!(true), &json!(3))
    );
    latch.count_down().await.unwrap();
    let (status, answer) = post(&app, &[], &meant_number("start", &[], 3)).await;
    let text = answer["error"].as_str().unwrap();
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(text.contains("is 2 by now"), "{text}");
    assert!(!waiting.is_finished());
    let (status, answer) = post(&app, &[], &meant_number("start", &[], 2)).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": true }))
    );
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn key_with_a_line_break_is_confirmed_as_it_is_shown() {
    let (watcher, worker) = clients();
    let app = allowed(&watcher);
    let _guard = worker.lock("a\nb").acquire().await.unwrap();
    let refused = json!({ "key": "a\nb", "confirmation": "a b" });
    let (status, answer) = post(&app, &[], &refused).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let confirmed = json!({ "key": "a\nb", "confirmation": r"a\nb" });
    let (status, answer) = post(&app, &[], &confirmed).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({ "released": true }))
    );
}

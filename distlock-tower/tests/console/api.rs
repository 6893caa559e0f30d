//! The locks as JSON.

use std::time::Duration;

use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use super::{app, clients, get, json, text, until_next_look};

#[tokio::test(start_paused = true)]
async fn lock_of_another_client_is_there_with_its_holder() {
    let (watcher, worker) = clients();
    let guard = worker.lock("order:42").acquire().await.unwrap();
    let locks = json(&app(&watcher), "/locks/api/locks").await;
    assert_eq!(locks["is_whole"], true);
    assert_eq!(locks["trouble"], json!(null));
    let lock = &locks["locks"][0];
    assert_eq!(lock["key"], "order:42");
    assert_eq!(lock["primitive"], "lock");
    let holder = &lock["holders"][0];
    assert_eq!(holder["owner"], guard.owner().to_string());
    assert_eq!(holder["client"]["name"], "worker");
    let left = holder["lease_ends"].as_u64().unwrap() - locks["now"].as_u64().unwrap();
    assert!((25_000..=30_000).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn key_has_its_waiters_and_after_its_release_its_history() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    json(&app, "/locks/api/locks").await;
    until_next_look().await;

    let guard = worker.fair_lock("a/b c").acquire().await.unwrap();
    let waits = tokio::spawn(watcher.fair_lock("a/b c").acquire().into_future());
    while json(&app, "/locks/api/locks/a%2Fb%20c").await["lock"]["waiting"] == 0
        || json(&app, "/locks/api/locks/a/b%20c").await["lock"]["waiters"][0].is_null()
    {
        until_next_look().await;
    }
    let seen = json(&app, "/locks/api/locks/a%2Fb%20c").await;
    assert_eq!(seen["lock"]["primitive"], "fair_lock");
    assert_eq!(seen["lock"]["waiters"][0]["client"]["name"], "watcher");

    guard.release().await.unwrap();
    let second = waits.await.unwrap().unwrap();
    until_next_look().await;
    let seen = json(&app, "/locks/api/locks/a%2Fb%20c").await;
    let past = &seen["past"][0];
    assert_eq!(past["client"]["name"], "worker");
    assert_eq!(past["end"], "released");
    assert!(
        past["last_seen"].as_u64() < past["until"].as_u64(),
        "{past}"
    );
    assert!(past["most_waiting"].as_u64() >= Some(1), "{past}");
    assert_eq!(
        seen["lock"]["holders"][0]["owner"],
        second.owner().to_string()
    );
}

#[tokio::test(start_paused = true)]
async fn key_that_no_path_can_have_is_found_by_the_query() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    for (key, query) in [
        (".", "."),
        ("..", ".."),
        ("a/b", "a%2Fb"),
        ("/", "/"),
        ("a+b c&d=1", "a%2Bb+c%26d%3D1"),
        ("%", "%25"),
    ] {
        let _guard = worker.lock(key).acquire().await.unwrap();
        until_next_look().await;
        let seen = json(&app, &format!("/locks/api/lock?key={query}")).await;
        assert_eq!(seen["key"], key);
        assert_eq!(seen["lock"]["primitive"], "lock", "{key}");
    }
    let response = get(&app, "/locks/api/lock").await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert!(
        answer["error"].as_str().unwrap().contains("key"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn key_is_found_below_a_path_with_captures() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("a/b").acquire().await.unwrap();
    let console = || Router::from(distlock_tower::console(watcher.clone()));
    let nested: Router = Router::new().nest("/{tenant}/{site}/locks", console());
    let service: Router = Router::new().nest_service("/{tenant}/{site}/locks", console());
    for app in [nested, service] {
        for path in ["api/locks/a%2Fb", "api/locks/a/b", "api/lock?key=a%2Fb"] {
            let seen = json(&app, &format!("/acme/north/locks/{path}")).await;
            assert_eq!(seen["key"], "a/b", "{path}");
            assert_eq!(seen["lock"]["primitive"], "lock", "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn free_key_has_no_lock_and_no_history() {
    let seen = json(&app(&clients().0), "/locks/api/locks/nothing").await;
    assert_eq!(seen["lock"], json!(null));
    assert_eq!(seen["past"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn two_requests_within_two_seconds_are_one_look() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let first = json(&app, "/locks/api/locks").await;
    let _guard = worker.lock("k").acquire().await.unwrap();
    let second = json(&app, "/locks/api/locks").await;
    assert_eq!((&first["look"], &second["look"]), (&json!(1), &json!(1)));
    until_next_look().await;
    let third = json(&app, "/locks/api/locks").await;
    assert_eq!(
        (&third["look"], &third["locks"][0]["key"]),
        (&json!(2), &json!("k"))
    );
}

#[tokio::test(start_paused = true)]
async fn look_stops_at_the_number_of_keys_and_says_so() {
    let (watcher, worker) = clients();
    let keys = ["a", "b", "c"];
    let _guard = worker.multi_lock(keys).acquire().await.unwrap();
    let console = distlock_tower::console(watcher.clone()).max_keys(2);
    let console = axum::Router::from(console);
    let locks = json(&console, "/api/locks").await;
    assert_eq!(locks["locks"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&locks["is_cut"], &locks["max_keys"]),
        (&json!(true), &json!(2))
    );
    // The page of a key that the look has not gone to.
    for key in keys {
        let seen = json(&console, &format!("/api/locks/{key}")).await;
        assert_eq!(
            seen["lock"]["holders"][0]["client"]["name"], "worker",
            "{key}"
        );
    }
    let console = distlock_tower::console(watcher).max_keys(3);
    let locks = json(&axum::Router::from(console), "/api/locks").await;
    assert_eq!(locks["is_cut"], false);
}

#[tokio::test(start_paused = true)]
async fn number_that_nobody_uses_is_listed_if_it_is_asked_for_and_has_its_page_in_any_case() {
    let (watcher, worker) = clients();
    let pool = worker.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    worker
        .count_down_latch("start")
        .try_set_count(2)
        .await
        .unwrap();
    let console = |all: bool| {
        let console = distlock_tower::console(watcher.clone());
        Router::from(match all {
            true => console.all_numbers(),
            false => console,
        })
    };
    let listed = async |app: &Router| {
        let locks = json(app, "/api/locks").await;
        let locks = locks["locks"].as_array().unwrap().clone();
        let keys = locks
            .iter()
            .map(|it| it["key"].as_str().unwrap().to_owned());
        keys.collect::<Vec<_>>()
    };
    let (some, all) = (console(false), console(true));
    assert_eq!(listed(&some).await, [""; 0]);
    assert_eq!(listed(&all).await, ["pool", "start"]);
    for app in [&some, &all] {
        let page = json(app, "/api/lock?key=pool").await;
        assert_eq!(
            (&page["lock"]["primitive"], &page["lock"]["count"]),
            (&json!("number"), &json!(3)),
            "{page}"
        );
    }
    let _permit = pool.acquire().await.unwrap();
    let waits = tokio::spawn(async move { worker.count_down_latch("start").wait().await });
    until_next_look().await;
    for app in [&some, &all] {
        assert_eq!(listed(app).await, ["pool", "start"]);
        let page = json(app, "/api/lock?key=pool").await;
        assert_eq!(page["lock"]["permits"]["free"], 2, "{page}");
    }
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn only_keys_that_match_the_pattern_are_there() {
    let (watcher, worker) = clients();
    let _guard = worker.multi_lock(["a:1", "b:1"]).acquire().await.unwrap();
    let console = distlock_tower::console(watcher).pattern("b:*");
    let locks = json(&axum::Router::from(console), "/api/locks").await;
    assert_eq!(locks["locks"].as_array().unwrap().len(), 1);
    assert_eq!(locks["locks"][0]["key"], "b:1");
    assert_eq!(locks["pattern"], "b:*");
}

#[tokio::test(start_paused = true)]
async fn pattern_that_matches_nothing_has_no_locks_and_no_trouble() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("a").acquire().await.unwrap();
    for pattern in ["nothing:*", "[", ""] {
        let console = distlock_tower::console(watcher.clone()).pattern(pattern);
        let seen = json(&axum::Router::from(console), "/api/locks").await;
        assert_eq!(
            (&seen["locks"], &seen["trouble"]),
            (&json!([]), &json!(null)),
            "{pattern}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn closed_client_is_said_and_the_locks_are_shown() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("k").acquire().await.unwrap();
    let app = app(&watcher);
    assert_eq!(json(&app, "/locks/api/locks").await["is_closed"], false);
    watcher.close(Duration::ZERO).await.unwrap();
    until_next_look().await;
    let locks = json(&app, "/locks/api/locks").await;
    assert_eq!(locks["is_closed"], true);
    assert_eq!(locks["locks"][0]["key"], "k");
}

#[tokio::test(start_paused = true)]
async fn server_prefix_environment_and_version_are_told() {
    let server = distlock::MemoryServer::new();
    let client = distlock::Client::builder().key_prefix("shop:");
    let console = distlock_tower::console(client.in_memory(&server).unwrap());
    let console = console.environment("production");
    let app = Router::new().nest("/locks", Router::from(console));
    let locks = json(&app, "/locks/api/locks").await;
    for (name, value) in [
        ("server", "memory"),
        ("prefix", "shop:"),
        ("environment", "production"),
        ("version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(locks[name], value, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_nobody_would_see_are_told_as_people_can_see_them() {
    let server = distlock::MemoryServer::new();
    let client = |name: &str| distlock::Client::builder().name(name);
    let watcher = client("watcher").in_memory(&server).unwrap();
    let worker = client("worker").in_memory(&server).unwrap();
    let app = app(&watcher);
    let key = "order:42\n ";
    let _guard = worker.lock(key).acquire().await.unwrap();
    let lock = &json(&app, "/locks/api/locks").await["locks"][0];
    assert_eq!(lock["key"], key);
    assert_eq!(lock["shown"], r"order:42\n\u{20}");
    let one = json(&app, "/locks/api/lock?key=order:42%0A%20").await;
    assert_eq!(one["shown"], r"order:42\n\u{20}");
}

#[tokio::test(start_paused = true)]
async fn those_who_listen_are_told_beside_those_who_wait() {
    let (watcher, worker) = clients();
    let app = app(&watcher);
    let _guard = worker.lock("k").acquire().await.unwrap();
    let waits: Vec<_> = (0..3)
        .map(|_| tokio::spawn(watcher.lock("k").acquire().into_future()))
        .collect();
    until(&app, |locks| locks["locks"][0]["listening"] == 1).await;
    let locks = json(&app, "/locks/api/locks").await;
    assert_eq!(locks["locks"][0]["waiting"], 3);
    let sample = locks["contention"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&sample["waiting"], &sample["listening"]),
        (&json!(3), &json!(1))
    );
    waits.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Looks again until something is seen.
async fn until(app: &Router, is_seen: impl Fn(&Value) -> bool) {
    for _ in 0..100 {
        if is_seen(&json(app, "/locks/api/locks").await) {
            return;
        }
        until_next_look().await;
    }
    panic!("not seen");
}

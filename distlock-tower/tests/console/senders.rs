//! Requests that may free a lock, and those that may not, by their host and their origin.

use axum::Router;
use http::StatusCode;
use serde_json::json;

use super::release::{allowed, confirmed, post};
use super::{clients, get};

#[tokio::test(start_paused = true)]
async fn request_from_another_origin_frees_nothing() {
    let (watcher, worker) = clients();
    let _guard = worker.lock("k").acquire().await.unwrap();
    for headers in [
        [("origin", "https://evil.example")].as_slice(),
        &[("origin", "null")],
        &[("origin", "https://shop.example:8443")],
        &[("origin", "https://shop.example.evil")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[
            ("sec-fetch-site", "cross-site"),
            ("origin", "https://shop.example"),
        ],
    ] {
        let (status, answer) = post(&allowed(&watcher), headers, &confirmed("k")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{headers:?}: {answer}");
        let text = answer["error"].as_str().unwrap();
        for (_, value) in headers {
            assert!(text.contains(value), "{headers:?}: {text}");
        }
        assert!(text.contains(r#"Host is "shop.example""#), "{text}");
        assert!(watcher.lock("k").is_locked().await.unwrap(), "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_of_the_page_or_of_a_program_that_is_no_browser_frees_the_lock() {
    let (watcher, worker) = clients();
    for headers in [
        [("origin", "https://shop.example")].as_slice(),
        &[("origin", "https://SHOP.example")],
        &[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://behind.a.proxy"),
        ],
        &[],
    ] {
        let guard = worker.lock("k").acquire().await.unwrap();
        let (status, answer) = post(&allowed(&watcher), headers, &confirmed("k")).await;
        assert_eq!(
            (status, answer),
            (StatusCode::OK, json!({ "released": true })),
            "{headers:?}"
        );
        // Not dropped: the next acquisition would take the hold back before the client has heard that it is lost.
        assert!(guard.release().await.unwrap_err().is_lost(), "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_a_trusted_origin_behind_a_proxy_frees_the_lock() {
    let (watcher, worker) = clients();
    let console = distlock_tower::console(watcher.clone()).allow_force_release();
    let console = console
        .hosts(["shop.example"])
        .trusted_origins(["https://Ops.example/"]);
    let app = Router::new().nest("/locks", Router::from(console));
    let _guard = worker.lock("k").acquire().await.unwrap();
    let other = [("origin", "https://ops.example:8443")];
    let (status, answer) = post(&app, &other, &confirmed("k")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    let trusted = [("origin", "https://ops.example")];
    let (status, answer) = post(&app, &trusted, &confirmed("k")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn request_that_calls_the_program_by_an_unknown_host_reads_and_frees_nothing() {
    let (watcher, worker) = clients();
    let console = distlock_tower::console(watcher.clone()).allow_force_release();
    let console = console.hosts(["ops.example", "locks.example:8443"]);
    let app = Router::new().nest("/locks", Router::from(console));
    for host in [
        "rebound.evil",
        "ops.example.evil:8080",
        "localhost.evil",
        "127.0.0.1.evil",
        "locks.example",
        "10.0.0.1:8080",
        "[2001:db8::1]:8080",
        "",
    ] {
        let _guard = worker.lock("k").acquire().await.unwrap();
        // The page of a rebound name has the same origin as its host.
        let headers = [("host", host), ("sec-fetch-site", "same-origin")];
        let (status, answer) = post(&app, &headers, &confirmed("k")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{host}: {answer}");
        let text = answer["error"].as_str().unwrap();
        let names_both = text.contains(&format!("{host:?}")) && text.contains("Console::hosts");
        assert!(names_both, "{text}");
        assert!(watcher.lock("k").is_locked().await.unwrap(), "{host}");
    }
    // The requests of `get` have no host.
    assert_eq!(get(&app, "/locks/api/locks").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn request_that_calls_the_program_by_a_known_host_frees_the_lock() {
    let (watcher, worker) = clients();
    let console = distlock_tower::console(watcher.clone()).allow_force_release();
    let console = console.hosts(["ops.example", "locks.example:8443"]);
    let app = Router::new().nest("/locks", Router::from(console));
    for host in [
        "localhost",
        "LOCALHOST:8080",
        "app.localhost:8080",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "Ops.example",
        "ops.example:8080",
        "locks.example:8443",
    ] {
        let guard = worker.lock("k").acquire().await.unwrap();
        let (status, answer) = post(&app, &[("host", host)], &confirmed("k")).await;
        assert_eq!(status, StatusCode::OK, "{host}: {answer}");
        assert!(guard.release().await.unwrap_err().is_lost(), "{host}");
    }
}

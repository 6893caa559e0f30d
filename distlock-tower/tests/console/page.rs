//! The page and its files: where they are, and their headers.

use axum::Router;
use distlock::Client;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::{app, clients, get, text};

const ALL: [&str; 12] = [
    "/locks",
    "/locks/",
    "/locks/console.js",
    "/locks/names.js",
    "/locks/tables.js",
    "/locks/list.js",
    "/locks/key.js",
    "/locks/own.js",
    "/locks/console.css",
    "/locks/icon.svg",
    "/locks/api/locks",
    "/locks/api/locks/k",
];

#[tokio::test]
async fn every_answer_forbids_frames_caches_and_what_the_page_does_not_have() {
    let app = app(&clients().0);
    for path in ALL {
        let response = get(&app, path).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn files_have_their_types() {
    let app = app(&clients().0);
    for (path, wanted) in [
        ("/locks", "text/html; charset=utf-8"),
        ("/locks/console.js", "text/javascript; charset=utf-8"),
        ("/locks/own.js", "text/javascript; charset=utf-8"),
        ("/locks/console.css", "text/css; charset=utf-8"),
        ("/locks/icon.svg", "image/svg+xml"),
        ("/locks/api/locks", "application/json"),
        ("/locks/api/events", "text/event-stream"),
    ] {
        let response = get(&app, path).await;
        assert_eq!(response.headers()[CONTENT_TYPE], wanted, "{path}");
    }
}

/// Where the files of the page at `path` are, as a browser resolves them.
async fn base(app: &Router, path: &str) -> String {
    let page = text(get(app, path).await).await;
    let (_, rest) = page.split_once("<base href=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn addresses_in_the_page_are_below_it_with_and_without_a_slash_at_the_end() {
    let app = app(&clients().0);
    assert_eq!(base(&app, "/locks").await, "./locks/");
    assert_eq!(base(&app, "/locks/").await, "./");

    let console = Router::from(distlock_tower::console(Client::in_memory()));
    assert_eq!(base(&console, "/").await, "./");
    let service: Router = Router::new().nest_service("/{tenant}/locks", console.clone());
    assert_eq!(base(&service, "/acme/locks").await, "./locks/");
    assert_eq!(base(&service, "/acme/locks/").await, "./");
    let nested: Router = Router::new().nest("/{tenant}/locks", console);
    assert_eq!(base(&nested, "/acme/locks").await, "./locks/");
}

/// The documentation says `nest_service` because of this. axum passes no request for `/locks/` to a router that is nested at
/// `/locks`: it joins the prefix and the path `/` to `/locks`.
#[tokio::test]
async fn nest_of_axum_has_no_address_with_a_slash_at_the_end_whatever_is_nested() {
    let anything = Router::new()
        .route("/", axum::routing::get("root"))
        .route("/{*rest}", axum::routing::get("below"))
        .fallback("otherwise");
    let app: Router = Router::new().nest("/locks", anything);
    assert_eq!(get(&app, "/locks").await.status(), StatusCode::OK);
    assert_eq!(get(&app, "/locks/").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn address_of_the_page_cannot_add_html_to_it() {
    let console = Router::from(distlock_tower::console(Client::in_memory()));
    let app: Router = Router::new().nest("/of/{tenant}", console);
    let page = text(get(&app, "/of/a'&b").await).await;
    assert!(page.contains("<base href=\"./a&#39;&amp;b/\">"), "{page}");
}

#[tokio::test]
async fn page_names_no_other_host() {
    let app = app(&clients().0);
    for path in &ALL[..10] {
        let text = text(get(&app, path).await).await;
        // The names of XML are no addresses.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("//") || !text.contains("://"), "{path}");
        assert!(!text.contains("innerHTML"), "{path}");
    }
}

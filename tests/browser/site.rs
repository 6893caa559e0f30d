//! A program with a console, on a Redis that the test has for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{OriginalUri, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Redirect, Response};
use distlock::Client;
use distlock_tests::RedisServer;
use distlock_tower::Console;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// A program that serves a console at `/admin/locks`.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) proxy: Arc<Proxy>,
    serves: JoinHandle<()>,
}

/// What stands in front of the console.
#[derive(Debug, Default)]
pub(crate) struct Proxy {
    /// Whether it answers for the program, with a page.
    pub(crate) is_alone: AtomicBool,
    /// Whether it leads to a login.
    pub(crate) wants_login: AtomicBool,
    /// How many streams of events were opened.
    pub(crate) streams: AtomicUsize,
}

impl Proxy {
    async fn pass(&self, request: Request, next: Next) -> Response {
        let path = request.uri().path();
        if path.ends_with("/api/events") {
            self.streams.fetch_add(1, Ordering::SeqCst);
        }
        if !path.contains("/api/") {
            return next.run(request).await;
        }
        if self.is_alone.load(Ordering::SeqCst) {
            let page = Html("<h1>Bad Gateway</h1>");
            return (StatusCode::BAD_GATEWAY, page).into_response();
        }
        if self.wants_login.load(Ordering::SeqCst) {
            return Redirect::to("/login").into_response();
        }
        next.run(request).await
    }
}

impl Site {
    /// With a console that may free locks.
    pub(crate) async fn start() -> (RedisServer, Self) {
        Self::of(|console| {
            let console = console.allow_force_release();
            console.user(|_| String::from("somebody"))
        })
        .await
    }

    pub(crate) async fn of(settings: impl FnOnce(Console) -> Console) -> (RedisServer, Self) {
        let server = RedisServer::start().await;
        let client = client(&server, "watcher").await;
        let site = Self::serve(client, settings).await;
        (server, site)
    }

    /// Behind a proxy that takes `/ops/locks` away from the address.
    pub(crate) async fn stripped() -> (RedisServer, Self) {
        let server = RedisServer::start().await;
        let client = client(&server, "watcher").await;
        let console = Router::from(distlock_tower::console(client.clone()));
        let strip = move |mut request: Request| {
            let console = console.clone();
            async move {
                let uri = request.uri().to_string();
                let Some(rest) = uri.strip_prefix("/ops/locks") else {
                    return StatusCode::NOT_FOUND.into_response();
                };
                *request.uri_mut() = format!("/{}", rest.trim_start_matches('/'))
                    .parse()
                    .unwrap();
                // The program behind a proxy does not see the address that the proxy has.
                request.extensions_mut().remove::<OriginalUri>();
                let Ok(answer) = console.oneshot(request).await;
                answer
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ops/locks", listener.local_addr().unwrap());
        let app: Router = Router::new().fallback(strip);
        let serves = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let site = Self {
            url,
            client,
            proxy: Arc::default(),
            serves,
        };
        (server, site)
    }

    pub(crate) async fn serve(client: Client, settings: impl FnOnce(Console) -> Console) -> Self {
        let console = settings(distlock_tower::console(client.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/admin/locks", listener.local_addr().unwrap());
        let app: Router = Router::new().nest_service("/admin/locks", Router::from(console));
        let proxy = Arc::new(Proxy::default());
        let app = app.layer(from_fn({
            let proxy = Arc::clone(&proxy);
            move |request: Request, next: Next| {
                let proxy = Arc::clone(&proxy);
                async move { proxy.pass(request, next).await }
            }
        }));
        let serves = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            client,
            proxy,
            serves,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

pub(crate) async fn client(server: &RedisServer, name: &str) -> Client {
    let builder = Client::builder().name(name);
    builder.connect(&server.url()).await.unwrap()
}

/// Puts locks into the server, as clients write them: `order:00000` and so on.
pub(crate) async fn many_locks(server: &RedisServer, locks: u32) {
    let mut pipeline = redis::pipe();
    for number in 0..locks {
        let key = format!("order:{number:05}");
        let owner = "3f2504e0-4f89-41d3-9a0c-0305e82c3301:1";
        pipeline.hset(&key, owner, 1).ignore();
        pipeline.pexpire(&key, 600_000).ignore();
    }
    let mut connection = server.connection().await;
    pipeline.query_async::<()>(&mut connection).await.unwrap();
}

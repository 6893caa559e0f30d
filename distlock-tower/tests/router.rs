//! The layer in axum routers: key forms, state, places in the router, the extractor, real connections.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, OriginalUri, Path, Query, RawQuery, State};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use distlock::Client;
use distlock_tower::{Held, IntoLockKeys, KeyFn, LockLayer};
use http::request::Parts;
use support::{Answer, SEC, eventually, freed, replicas};
use tower::{ServiceBuilder, ServiceExt};

async fn tell(held: Option<Held>) -> String {
    held.map_or("-".into(), |held| held.key().to_owned())
}

fn post_to(uri: &str) -> Request<Body> {
    Request::post(uri).body(Body::empty()).unwrap()
}

async fn send(app: Router, request: Request<Body>) -> Answer {
    Answer::of(app.oneshot(request).await.unwrap()).await
}

/// What the handler behind this key function says it runs under.
async fn under<F, M>(key: F, uri: &str) -> Answer
where
    F: KeyFn<M, ()>,
    F::Keys: IntoLockKeys,
{
    let layer = LockLayer::new(Client::in_memory()).key(key);
    let app = Router::new()
        .route("/orders/{id}", post(tell))
        .route_layer(layer);
    send(app, post_to(uri)).await
}

fn orders(client: &Client) -> LockLayer {
    LockLayer::new(client.clone()).key(|Path(id): Path<u64>| format!("order:{id}"))
}

#[tokio::test]
async fn one_to_eight_extractors() {
    type Map = Query<HashMap<String, String>>;
    let uri = "/orders/7?q=1";
    assert_eq!(
        under(|Path(id): Path<u64>| format!("order:{id}"), uri)
            .await
            .text,
        "order:7"
    );
    let two = |Path(id): Path<u64>, q: Map| format!("{id}:{}", q["q"]);
    assert_eq!(under(two, uri).await.text, "7:1");
    let three = |m: Method, Path(id): Path<u64>, p: Option<MatchedPath>| {
        format!("{m}:{id}:{}", p.unwrap().as_str())
    };
    assert_eq!(under(three, uri).await.text, "POST:7:/orders/{id}");
    let four = |_: Method, _: Uri, _: HeaderMap, q: RawQuery| q.0.unwrap();
    assert_eq!(under(four, uri).await.text, "q=1");
    let five = |_: Method, _: Uri, _: HeaderMap, _: RawQuery, u: OriginalUri| u.0.path().to_owned();
    assert_eq!(under(five, uri).await.text, "/orders/7");
    let six = |_: Method, _: Uri, _: HeaderMap, _: RawQuery, _: OriginalUri, q: Map| q["q"].clone();
    assert_eq!(under(six, uri).await.text, "1");
    let seven =
        |_: Method, _: Uri, _: HeaderMap, _: RawQuery, _: OriginalUri, _: Map, _: Path<u64>| "7";
    assert_eq!(under(seven, uri).await.text, "7");
    let eight = |_: Method,
                 _: Uri,
                 _: HeaderMap,
                 _: RawQuery,
                 _: OriginalUri,
                 _: Map,
                 _: Path<u64>,
                 Path(id): Path<String>| id;
    assert_eq!(under(eight, uri).await.text, "7");
}

#[tokio::test]
async fn parts_request_and_fn_items() {
    fn by_extractor(Path(id): Path<u64>) -> String {
        format!("fn:{id}")
    }
    fn by_parts(parts: &Parts) -> String {
        parts.uri.path().to_owned()
    }
    let uri = "/orders/7";
    assert_eq!(under(by_extractor, uri).await.text, "fn:7");
    assert_eq!(under(by_parts, uri).await.text, uri);
    assert_eq!(
        under(|parts: &Parts| parts.method.to_string(), uri)
            .await
            .text,
        "POST"
    );
    assert_eq!(
        under(
            |request: &http::Request<()>| request.uri().path().to_owned(),
            uri
        )
        .await
        .text,
        uri
    );
}

#[tokio::test]
async fn template_names_captures_of_all_routers_around_and_the_whole_path() {
    let client = Client::in_memory();
    let layer = |template: &str| LockLayer::new(client.clone()).key_template(template);
    let nested = |template: &str| {
        let orders = Router::new().route("/orders/{id}", post(tell));
        Router::new().nest("/{tenant}", orders.route_layer(layer(template)))
    };
    let by_captures = nested("<path.tenant>:<path.id>");
    let uri = "/ac%20me/orders/7";
    assert_eq!(send(by_captures, post_to(uri)).await.text, "ac me:7");
    let by_path = nested("<uri.path>");
    assert_eq!(send(by_path, post_to(uri)).await.text, "/ac me/orders/7");
    send(nested("<path.idd>"), post_to(uri))
        .await
        .is_problem("key", 400, false);
    send(nested("<path.tenant>"), post_to("/%ff/orders/7"))
        .await
        .is_problem("key", 400, false);
}

#[tokio::test]
async fn optional_capture_that_is_no_utf8_is_400() {
    let layer = |template: &str| {
        let layer = LockLayer::new(Client::in_memory()).key_template(template);
        layer.optional()
    };
    let orders = |template: &str| {
        Router::new()
            .route("/orders/{id}", post(tell))
            .route_layer(layer(template))
    };
    send(orders("<path.id>"), post_to("/orders/%ff"))
        .await
        .is_problem("key", 400, false);
    let absent = send(orders("<path.other>"), post_to("/orders/7")).await;
    assert_eq!(absent.text, "-");
    let routeless = Router::new().fallback(tell).layer(layer("<path.id>"));
    assert_eq!(send(routeless, post_to("/orders/7")).await.text, "-");
}

#[tokio::test]
async fn all_that_a_key_function_may_return() {
    struct Own(u64);
    impl IntoLockKeys for Own {
        fn into_lock_keys(self) -> distlock_tower::LockKeys {
            format!("own:{}", self.0).into_lock_keys()
        }
    }
    let uri = "/orders/7";
    assert_eq!(under(|_: Method| "static", uri).await.text, "static");
    assert_eq!(
        under(|_: Method| std::borrow::Cow::Borrowed("cow"), uri)
            .await
            .text,
        "cow"
    );
    assert_eq!(under(|_: Method| vec!["vec"], uri).await.text, "vec");
    assert_eq!(
        under(|_: Method| ["array", "array"], uri).await.text,
        "array"
    );
    assert_eq!(under(|_: Method| Some("some"), uri).await.text, "some");
    assert_eq!(under(|_: Method| None::<String>, uri).await.text, "-");
    assert_eq!(
        under(|_: Method| Ok::<_, StatusCode>("ok"), uri).await.text,
        "ok"
    );
    assert_eq!(
        under(|Path(id): Path<u64>| Own(id), uri).await.text,
        "own:7"
    );
    let nested = |_: Method| Ok::<_, StatusCode>(None::<[String; 1]>);
    assert_eq!(under(nested, uri).await.text, "-");
}

#[tokio::test]
async fn error_of_a_key_function_is_the_answer() {
    let teapot =
        |_: &Parts| Err::<String, _>((StatusCode::IM_A_TEAPOT, [("x-a", "1")], "short and stout"));
    let layer = LockLayer::new(Client::in_memory()).key(teapot);
    let app: Router = Router::new()
        .route("/", get(async || -> String { unreachable!() }))
        .layer(layer);
    let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(response.headers()["x-a"], "1");
    let answer = Answer::of(response).await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (StatusCode::IM_A_TEAPOT, "short and stout")
    );
}

#[tokio::test]
async fn extractor_that_refuses_answers_itself() {
    let answer = under(|Path(id): Path<u64>| format!("order:{id}"), "/orders/seven").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(
        answer.problem.is_none() && answer.text.contains("seven"),
        "{answer:?}"
    );
}

#[derive(Clone)]
struct App {
    region: &'static str,
    locks: Client,
}

#[tokio::test]
async fn state_is_the_one_given_before_the_key() {
    let app = App {
        region: "eu",
        locks: Client::in_memory(),
    };
    let layer = LockLayer::new(app.locks.clone())
        .with_state(app.clone())
        .key(|State(app): State<App>, Path(id): Path<u64>| format!("{}:{id}", app.region));
    let router: Router<App> = Router::new()
        .route("/orders/{id}", post(tell))
        .route_layer(layer);
    let answer = send(router.with_state(app), post_to("/orders/7")).await;
    assert_eq!(answer.text, "eu:7");
}

#[tokio::test]
async fn in_every_place_of_a_router() {
    let client = Client::in_memory();
    let layer = || orders(&client);
    let route = || Router::new().route("/orders/{id}", post(tell));
    let stateless: axum::routing::MethodRouter = post(tell);
    let apps: [Router; 7] = [
        route().route_layer(layer()),
        route().layer(layer()),
        Router::new().route("/orders/{id}", post(tell).layer(layer())),
        Router::new().route("/orders/{id}", post(tell).route_layer(layer())),
        Router::new().nest(
            "/orders",
            Router::new()
                .route("/{id}", post(tell))
                .route_layer(layer()),
        ),
        route().layer(ServiceBuilder::new().concurrency_limit(2).layer(layer())),
        Router::new().route_service(
            "/orders/{id}",
            ServiceBuilder::new().layer(layer()).service(stateless),
        ),
    ];
    for (n, app) in apps.into_iter().enumerate() {
        assert_eq!(
            send(app, post_to("/orders/7")).await.text,
            "order:7",
            "app {n}"
        );
        assert!(!client.lock("order:7").is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn route_layer_locks_nothing_for_unknown_paths_and_methods() {
    let client = Client::in_memory();
    let _guard = client.lock("order:7").acquire().await.unwrap();
    let app: Router = Router::new().route(
        "/orders/{id}",
        post(tell).route_layer(orders(&client).wait(SEC / 100)),
    );
    assert_eq!(send(app.clone(), post_to("/other")).await.status, 404);
    let get = Request::get("/orders/7").body(Body::empty()).unwrap();
    assert_eq!(send(app.clone(), get).await.status, 405);
    send(app, post_to("/orders/7"))
        .await
        .is_problem("busy", 409, true);
}

#[tokio::test]
async fn key_function_takes_nothing_from_the_request() {
    #[derive(serde::Deserialize)]
    struct Order {
        sku: String,
    }
    let handler =
        async |Path(id): Path<u64>, Query(q): Query<HashMap<String, u8>>, Json(o): Json<Order>| {
            format!("{id} {} {}", q["q"], o.sku)
        };
    let client = Client::in_memory();
    for layer in [
        orders(&client),
        LockLayer::new(client.clone()).key(|r: &http::Request<()>| r.uri().to_string()),
    ] {
        let app = Router::new()
            .route("/orders/{id}", post(handler))
            .route_layer(layer);
        let request = Request::post("/orders/7?q=3").header("content-type", "application/json");
        let answer = send(app, request.body(Body::from(r#"{"sku":"bolt"}"#)).unwrap()).await;
        assert_eq!(answer.text, "7 3 bolt");
    }
}

#[tokio::test]
async fn handler_re_enters_and_a_spawned_task_does_not() {
    let app = App {
        region: "eu",
        locks: Client::in_memory(),
    };
    async fn pay(State(app): State<App>, held: Held) -> impl IntoResponse {
        let lock = app.locks.lock(held.key());
        let again = lock.acquire().wait(SEC / 10).await.unwrap();
        let count = lock.hold_count().await.unwrap();
        let spawned = tokio::spawn(async move { lock.try_acquire().await.unwrap().is_some() });
        let spawned = spawned.await.unwrap();
        again.release().await.unwrap();
        format!("{count} {spawned}")
    }
    let layer = orders(&app.locks);
    let router = Router::new()
        .route("/orders/{id}", post(pay))
        .route_layer(layer);
    let answer = send(router.with_state(app.clone()), post_to("/orders/7")).await;
    assert_eq!(answer.text, "2 false");
    assert!(!app.locks.lock("order:7").is_locked().await.unwrap());
}

#[tokio::test]
async fn extractor_says_why_there_is_no_hold() {
    async fn needs(held: Held) -> String {
        held.key().to_owned()
    }
    let bare: Router = Router::new().route("/", post(needs));
    let answer = send(bare.clone(), post_to("/")).await;
    answer.is_problem("config", 500, false);
    assert!(
        answer
            .text
            .contains("LockLayer is not installed on this route"),
        "{answer:?}"
    );

    let unkeyed = || LockLayer::new(Client::in_memory());
    for layer in [
        unkeyed().key(|_: Method| None::<String>),
        unkeyed().key(|_: Method| "k").methods([Method::PUT]),
        unkeyed().key_header("x-absent").optional(),
    ] {
        let answer = send(bare.clone().layer(layer), post_to("/")).await;
        answer.is_problem("config", 500, false);
        // True of each, though it is not known here which it was.
        let either = "its conditions let it pass, or it gave no key";
        assert!(answer.text.contains(either), "{answer:?}");
    }
}

#[tokio::test]
async fn innermost_layer_is_the_one_extracted() {
    let client = Client::in_memory();
    let app = Router::new()
        .route("/orders/{id}", post(tell))
        .route_layer(LockLayer::new(client.clone()).key(|_: Method| "inner"))
        .route_layer(orders(&client));
    assert_eq!(send(app, post_to("/orders/7")).await.text, "inner");
}

/// A program on a real port; ends with the test.
async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

#[derive(Default)]
struct Inside {
    now: [AtomicUsize; 2],
    overlaps: AtomicUsize,
    ran: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_of_two_replicas_never_overlap_in_the_handler() {
    const REQUESTS: usize = 60;
    let (one, two) = replicas();
    let inside = Arc::new(Inside::default());
    async fn pay(State(inside): State<Arc<Inside>>, Path(id): Path<usize>) {
        if inside.now[id].fetch_add(1, Ordering::SeqCst) > 0 {
            inside.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        // Lets the others at it; not a wait for anything.
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        inside.now[id].fetch_sub(1, Ordering::SeqCst);
        inside.ran.fetch_add(1, Ordering::SeqCst);
    }
    let mut bases = Vec::new();
    for client in [&one, &two] {
        let route = Router::new().route("/orders/{id}/pay", post(pay));
        let layer = orders(client).wait(60 * SEC);
        bases.push(serve(route.route_layer(layer).with_state(inside.clone())).await);
    }
    let http = reqwest::Client::new();
    let requests = (0..REQUESTS).map(|n| {
        let request = http.post(format!("{}/orders/{}/pay", bases[n % 2], n / 2 % 2));
        tokio::spawn(request.send())
    });
    let requests: Vec<_> = requests.collect();
    for response in requests {
        assert_eq!(response.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(inside.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(inside.ran.load(Ordering::SeqCst), REQUESTS);
    for key in ["order:0", "order:1"] {
        assert!(!one.lock(key).is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn next_request_of_a_client_does_not_find_its_own_lock() {
    let client = Client::in_memory();
    let base = serve(
        Router::new()
            .route("/orders/{id}", post(tell))
            .route_layer(orders(&client).wait(Duration::ZERO)),
    )
    .await;
    let http = reqwest::Client::new();
    for _ in 0..50 {
        let response = http.post(format!("{base}/orders/7")).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn client_that_hangs_up_drops_the_handler_and_frees_the_lock() {
    let client = Client::in_memory();
    let route = Router::new().route(
        "/orders/{id}",
        post(async || std::future::pending::<()>().await),
    );
    let base = serve(route.route_layer(orders(&client))).await;
    let request = tokio::spawn(
        reqwest::Client::new()
            .post(format!("{base}/orders/7"))
            .send(),
    );
    let lock = client.lock("order:7");
    eventually("locked", async || lock.is_locked().await.unwrap()).await;
    request.abort();
    assert!(request.await.is_err());
    freed(&client, "order:7").await;
}

//! Keys in axum routers: arguments and results of key functions, templates, and the request that the handler gets.

use std::collections::HashMap;

use axum::body::Body;
use axum::extract::{MatchedPath, OriginalUri, Path, Query, RawQuery};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router};
use distlock::Client;
use distlock_tower::{IntoLockKeys, LockLayer};
use http::request::Parts;
use tower::ServiceExt;

use super::{held_key, orders, post_to, send, under};
use crate::support::Answer;

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
async fn template_reads_captures_of_outer_routers_and_the_full_path() {
    let client = Client::in_memory();
    let layer = |template: &str| LockLayer::new(client.clone()).key_template(template);
    let nested = |template: &str| {
        let orders = Router::new().route("/orders/{id}", post(held_key));
        Router::new().nest("/{tenant}", orders.route_layer(layer(template)))
    };
    let by_captures = nested("<path.tenant>:<path.id>");
    let uri = "/ac%20me/orders/7";
    assert_eq!(send(by_captures, post_to(uri)).await.text, "ac me:7");
    let by_path = nested("<uri.path>");
    assert_eq!(send(by_path, post_to(uri)).await.text, "/ac me/orders/7");
    // A mistake of the program.
    send(nested("<path.idd>"), post_to(uri))
        .await
        .is_problem("config", 500, false);
    send(nested("<path.tenant>"), post_to("/%ff/orders/7"))
        .await
        .is_problem("key", 400, false);
}

#[tokio::test]
async fn capture_of_which_the_route_has_several_is_500() {
    let layer = LockLayer::new(Client::in_memory()).key_template("<path.id>");
    let orders = Router::new()
        .route("/orders/{id}", post(held_key))
        .route_layer(layer);
    let nested = Router::new().nest("/tenants/{id}", orders);
    send(nested, post_to("/tenants/1/orders/7"))
        .await
        .is_problem("config", 500, false);
}

#[tokio::test]
async fn optional_capture_that_is_not_utf8_is_400() {
    let layer = |template: &str| {
        let layer = LockLayer::new(Client::in_memory()).key_template(template);
        layer.optional()
    };
    let orders = |template: &str| {
        Router::new()
            .route("/orders/{id}", post(held_key))
            .route_layer(layer(template))
    };
    send(orders("<path.id>"), post_to("/orders/%ff"))
        .await
        .is_problem("key", 400, false);
    let absent = send(orders("<path.other>"), post_to("/orders/7")).await;
    assert_eq!(absent.text, "-");
    let routeless = Router::new().fallback(held_key).layer(layer("<path.id>"));
    assert_eq!(send(routeless, post_to("/orders/7")).await.text, "-");
}

#[tokio::test]
async fn all_return_types_of_a_key_function() {
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
    assert_eq!(
        under(|_: Method| Ok::<_, StatusCode>("ok"), uri).await.text,
        "ok"
    );
    assert_eq!(
        under(|Path(id): Path<u64>| Own(id), uri).await.text,
        "own:7"
    );
}

#[tokio::test]
async fn none_of_a_key_function_is_400_unless_the_layer_is_optional() {
    let none = |_: Method| None::<String>;
    let nested = |_: Method| Ok::<_, StatusCode>(None::<[String; 1]>);
    for answer in [
        under(none, "/orders/7").await,
        under(nested, "/orders/7").await,
    ] {
        answer.is_problem("key", 400, false);
    }
    // A header that is missing or no text is what a stranger chooses.
    let by_tenant = |parts: &Parts| {
        let tenant = parts.headers.get("x-tenant")?.to_str().ok()?;
        Some(format!("tenant:{tenant}"))
    };
    let layers = || {
        let layer = || LockLayer::new(Client::in_memory()).key(by_tenant);
        [(layer(), 400), (layer().optional(), 200)]
    };
    for value in [None, Some(&b"\xff"[..])] {
        for (layer, status) in layers() {
            let app: Router = Router::new().route("/", get(async || "ran")).layer(layer);
            let mut request = Request::new(Body::empty());
            if let Some(value) = value {
                let value = HeaderValue::from_bytes(value).unwrap();
                request.headers_mut().insert("x-tenant", value);
            }
            let answer = send(app, request).await;
            assert_eq!(answer.status, status, "{value:?} {answer:?}");
        }
    }
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
async fn rejection_of_an_extractor_is_the_answer() {
    let answer = under(|Path(id): Path<u64>| format!("order:{id}"), "/orders/seven").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(
        answer.problem.is_none() && answer.text.contains("seven"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn handler_gets_the_whole_request_after_the_key_function() {
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

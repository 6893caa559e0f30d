//! Keys from templates and headers, and conditions.

use std::convert::Infallible;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::{Held, LockLayer, Template, TemplateError, Unkeyed};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC};

/// Responds with the key that it runs under.
async fn held_key(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let held = request.extensions().get::<Held>();
    let key = held.map_or("-", Held::key).to_owned();
    Ok(Response::new(Full::from(key)))
}

fn unkeyed() -> Unkeyed {
    LockLayer::new(Client::in_memory())
}

async fn send(layer: LockLayer, request: Request<()>) -> Answer {
    let response = layer.layer(service_fn(held_key)).oneshot(request).await;
    Answer::of(response.unwrap()).await
}

/// The key that a template renders for a request.
async fn key(template: &str, request: http::request::Builder) -> String {
    let layer = unkeyed().key_template(template);
    let answer = send(layer, request.body(()).unwrap()).await;
    assert_eq!(answer.status, 200, "{template}");
    answer.text
}

fn get(uri: &str) -> http::request::Builder {
    Request::get(uri)
}

#[tokio::test]
async fn values_come_from_query_header_method_and_path() {
    let template = "<method> <uri.path> <query.q> <header.x-tenant>";
    let request = Request::put("/reports/7?p=1&q=two").header("X-Tenant", "acme");
    assert_eq!(key(template, request).await, "PUT /reports/7 two acme");
}

#[tokio::test]
async fn host_comes_from_the_uri_where_http_2_has_it() {
    let template = "<header.host>:<uri.path>";
    let one = get("/orders/42").header("Host", "shop.example");
    let two = get("https://shop.example/orders/42").version(http::Version::HTTP_2);
    let both = get("https://other.example/orders/42").header("Host", "shop.example");
    let named = get("https://somebody@shop.example/orders/42").version(http::Version::HTTP_2);
    for request in [one, two, both, named] {
        assert_eq!(key(template, request).await, "shop.example:/orders/42");
    }
}

#[tokio::test]
async fn text_and_braces_are_literal_and_doubled_marks_are_unescaped() {
    assert_eq!(
        key("{cart}:<<a>>:<method>", get("/")).await,
        "{cart}:<a>:GET"
    );
    assert_eq!(key("<<<method>>>", get("/")).await, "<GET>");
    assert_eq!(key("no placeholder", get("/")).await, "no placeholder");
}

#[tokio::test]
async fn path_and_query_are_decoded_once() {
    let request = get("/a%20b%252F?q=c%3Ad%252B+e");
    assert_eq!(
        key("<uri.path>|<query.q>", request).await,
        "/a b%2F|c:d%2B e"
    );
}

#[tokio::test]
async fn missing_empty_repeated_and_undecodable_values_are_400() {
    for template in ["k:<query.q>", "k:<header.x-tenant>", "k:<uri.path>"] {
        for uri in ["/%ff?p=1", "/%ff?q=", "/%ff?q=1&q=2", "/%ff?q=%ff"] {
            let layer = unkeyed().key_template(template);
            let request = get(uri).header("x-tenant", "a").header("x-tenant", "a");
            let answer = send(layer, request.body(()).unwrap()).await;
            answer.is_problem("key", 400, false);
        }
    }
}

#[tokio::test]
async fn optional_values_that_are_present_but_ambiguous_are_400() {
    let request = |values: &[&[u8]]| {
        let add = |request: http::request::Builder, value: &&[u8]| request.header("x-a", *value);
        values.iter().fold(get("/"), add)
    };
    let by_header = || unkeyed().key_header("x-a").optional();
    // A missing value before the ambiguous one makes no difference.
    let beside = || unkeyed().key_template("<query.q>:<header.x-a>").optional();
    let unclear: [&[&[u8]]; 4] = [&[b"a", b"a"], &[b"a", b""], &[b""], &[b"\xff"]];
    for values in unclear {
        for layer in [by_header(), beside()] {
            let answer = send(layer, request(values).body(()).unwrap()).await;
            answer.is_problem("key", 400, false);
        }
    }
    for uri in ["/?q=", "/?q=1&q=2", "/?q=1&q=", "/?q=%ff"] {
        let layer = unkeyed().key_template("<query.q>").optional();
        let answer = send(layer, get(uri).body(()).unwrap()).await;
        answer.is_problem("key", 400, false);
    }
    let path = unkeyed().key_template("<uri.path>").optional();
    let answer = send(path, get("/%ff").body(()).unwrap()).await;
    answer.is_problem("key", 400, false);
    for layer in [by_header(), beside()] {
        assert_eq!(send(layer, Request::new(())).await.text, "-");
    }
}

#[tokio::test]
async fn control_characters_and_long_keys_are_400() {
    let long = format!("/?q={}", "x".repeat(513));
    for uri in ["/?q=a%0d%0ab", "/?q=%00", &long] {
        let answer = send(
            unkeyed().key_template("<query.q>"),
            get(uri).body(()).unwrap(),
        )
        .await;
        answer.is_problem("key", 400, false);
    }
}

#[test]
fn invalid_templates_report_why() {
    use TemplateError::{Empty, Stray, Unclosed, Unknown};
    let unknown = |name: &str| Unknown(name.to_owned());
    for (text, error) in [
        ("", Empty),
        ("order:<path.id", Unclosed),
        ("order:path.id>", Stray),
        ("<query.a>>", Stray),
        ("<>", unknown("")),
        ("<body.id>", unknown("body.id")),
        ("<method.x>", unknown("method.x")),
        ("<uri>", unknown("uri")),
        ("<query.>", unknown("query.")),
        ("<header.a b>", unknown("header.a b")),
        ("<Method>", unknown("Method")),
    ] {
        assert_eq!(text.parse::<Template>(), Err(error), "{text}");
    }
}

#[test]
#[should_panic(expected = "unknown placeholder `<body.id>`")]
fn key_template_panics_for_an_invalid_template() {
    let _layer = unkeyed().key_template("order:<body.id>");
}

#[tokio::test]
async fn key_of_a_header_starts_with_its_name() {
    let with = || {
        get("/")
            .header("Idempotency-Key", "\"8e03\"")
            .body(())
            .unwrap()
    };
    let layer = || unkeyed().key_header("Idempotency-Key");
    assert_eq!(send(layer(), with()).await.text, "idempotency-key:\"8e03\"");
    let named = unkeyed().key_header(http::header::IF_MATCH);
    let without = || Request::new(());
    send(named, without()).await.is_problem("key", 400, false);
    send(layer(), without()).await.is_problem("key", 400, false);
    assert_eq!(send(layer().optional(), without()).await.text, "-");
    // An optional key may be missing, but not invalid.
    let long = get("/").header("idempotency-key", "x".repeat(600));
    let answer = send(layer().optional(), long.body(()).unwrap()).await;
    answer.is_problem("key", 400, false);
}

#[tokio::test]
async fn conditions_and_methods_select_the_requests_to_lock() {
    let layer = || unkeyed().key(|_: &Parts| "k");
    for (method, expected) in [(Method::POST, "k"), (Method::PUT, "k"), (Method::GET, "-")] {
        let layer = layer().methods([Method::POST, Method::PUT]);
        let request = Request::builder().method(method).body(()).unwrap();
        assert_eq!(send(layer, request).await.text, expected);
    }
    let both = layer()
        .when(|parts| parts.uri.path() == "/a")
        .methods([Method::GET])
        .when(|parts| parts.uri.query().is_none());
    for (uri, expected) in [("/a", "k"), ("/b", "-"), ("/a?q", "-")] {
        let request = get(uri).body(()).unwrap();
        assert_eq!(send(both.clone(), request).await.text, expected, "{uri}");
    }
}

#[tokio::test]
async fn methods_of_a_later_call_replace_the_earlier_ones() {
    let layer = unkeyed()
        .key(|_: &Parts| "k")
        .methods([Method::POST])
        .when(|parts| parts.uri.query().is_none())
        .methods([Method::PUT]);
    for (method, uri, expected) in [
        (Method::PUT, "/", "k"),
        (Method::PUT, "/?q", "-"),
        (Method::POST, "/", "-"),
    ] {
        let request = Request::builder()
            .method(&method)
            .uri(uri)
            .body(())
            .unwrap();
        let answer = send(layer.clone(), request).await;
        assert_eq!(answer.text, expected, "{method} {uri}");
    }
}

#[tokio::test]
async fn key_function_is_not_called_for_an_unlocked_request() {
    let never = |_: &Parts| -> String { panic!("asked") };
    let layer = unkeyed().key(never).when(|_| false).wait(SEC);
    assert_eq!(send(layer, Request::new(())).await.text, "-");
}

#[cfg(not(feature = "axum"))]
#[test]
fn without_axum_there_are_no_captures() {
    let error = "<path.id>".parse::<Template>().unwrap_err();
    assert!(!error.to_string().contains("path.NAME"), "{error}");
}

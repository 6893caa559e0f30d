//! Texts that look like placeholders and are none: which are refused, and when.

use std::convert::Infallible;

use bytes::Bytes;
use distlock::Client;
#[cfg(feature = "axum")]
use distlock_tower::TemplateError;
use distlock_tower::{Held, LockLayer, Template};
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::Answer;

/// A text, what is said of it, and what it should be.
#[cfg(feature = "axum")]
const REFUSED: [(&str, &str, &str); 29] = [
    ("order:{id}", "{id}", "<path.id>"),
    ("{id}", "{id}", "<path.id>"),
    ("order:{*rest}", "{*rest}", "<path.rest>"),
    ("order:{id:04}", "{id:04}", "<path.id>"),
    ("order:{}", "{}", "<path.NAME>"),
    ("order:{0}", "{0}", "<path.NAME>"),
    ("order:{self.id}", "{self.id}", "<path.id>"),
    ("order:${id}", "${id}", "<path.id>"),
    ("order:#{id}", "#{id}", "<path.id>"),
    ("order:%{id}", "%{id}", "<path.id>"),
    ("order/:id", ":id", "<path.id>"),
    ("order:id", ":id", "<path.id>"),
    ("order/@id", "@id", "<path.id>"),
    ("order/#id", "#id", "<path.id>"),
    ("order/#p0", "#p0", "<path.p0>"),
    ("order/$id", "$id", "<path.id>"),
    ("order/%s", "%s", "<path.s>"),
    ("order/[id]", "[id]", "<path.id>"),
    ("order/(id)", "(id)", "<path.id>"),
    ("order/<<id>>", "<id>", "<path.id>"),
    ("order/<<path.id>>", "<path.id>", "<path.id>"),
    ("order/path.id", "path.id", "<path.id>"),
    ("order:path.id", ":path.id", "<path.id>"),
    ("query.q", "query.q", "<query.q>"),
    ("header.x-tenant", "header.x", "<header.x>"),
    ("uri.path", "uri.path", "<uri.path>"),
    ("{query.q}", "{query.q}", "<query.q>"),
    ("{cart}:order", "{cart}", "<path.cart>"),
    ("ключ:имя", ":имя", "<path.имя>"),
];

#[cfg(feature = "axum")]
#[test]
fn text_without_a_placeholder_that_looks_like_one_is_refused() {
    for (text, plain, meant) in REFUSED {
        let error = text.parse::<Template>().unwrap_err();
        assert!(
            matches!(&error, TemplateError::NoPlaceholder { written, meant: own, .. } if written == plain && own == meant),
            "{text}: {error:?}"
        );
        let said = error.to_string();
        assert!(said.contains(plain) && said.contains(meant), "{said}");
    }
}

/// The last three have a placeholder, so that braces are a hash tag.
const ALLOWED: [&str; 12] = [
    "import",
    "no placeholder",
    "nightly-report",
    "order/42",
    "order:42",
    "50%",
    "a.b",
    "mypath.id",
    "(a b)",
    "{cart}:<method>",
    "{id}:<query.id>",
    "user:id:<header.x>",
];

#[test]
fn text_that_is_no_placeholder_of_anybody_is_allowed() {
    for text in ALLOWED {
        assert!(text.parse::<Template>().is_ok(), "{text}");
    }
}

#[test]
#[should_panic(expected = "write `<")]
fn layer_is_not_made_of_a_text_without_a_placeholder() {
    let _layer = LockLayer::new(Client::in_memory()).key_template("order:{id}");
}

/// One text for all requests is a function.
#[tokio::test]
async fn function_may_return_any_text() {
    let handler = service_fn(async |request: Request<()>| {
        let key = request.extensions().get::<Held>().unwrap().key().to_owned();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(key)))
    });
    let layer = LockLayer::new(Client::in_memory());
    let layer = layer.key(|_: &http::request::Parts| "order:{id}");
    let response = layer.layer(handler).oneshot(Request::new(())).await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "order:{id}");
}

#[cfg(feature = "axum")]
mod on_a_route {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;

    use super::*;

    async fn send(template: &str) -> Answer {
        let layer = LockLayer::new(Client::in_memory()).key_template(template);
        let handler = post(async |held: Held| held.key().to_owned()).route_layer(layer);
        let app: Router = Router::new().route("/{tenant}/orders/{id}", handler);
        let request = Request::post("/acme/orders/42?q=1").header("x", "y");
        let request = request.body(Body::empty()).unwrap();
        Answer::of(app.oneshot(request).await.unwrap()).await
    }

    #[tokio::test]
    async fn capture_of_the_route_in_braces_is_500() {
        for template in [
            "<path.tenant>:order:{id}",
            "<query.q>:{id}",
            "{tenant}:order:<path.id>",
            "<header.x>:{*id}",
        ] {
            send(template).await.is_problem("config", 500, false);
        }
    }

    #[tokio::test]
    async fn other_words_in_braces_are_a_hash_tag() {
        for (template, key) in [
            ("{cart}:order:<path.id>", "{cart}:order:42"),
            ("{id}:<path.id>", "{id}:42"),
            ("{<path.tenant>}:<path.id>", "{acme}:42"),
            ("user:id:<path.id>", "user:id:42"),
        ] {
            assert_eq!(send(template).await.text, key, "{template}");
        }
    }
}

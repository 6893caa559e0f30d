//! One request at a time for each header, value of a JSON body, user or tenant.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Json, Router};
use distlock::Client;
use distlock_tower::LockLayer;
use serde::Deserialize;

/// What a request asks to take from the store.
#[derive(Deserialize)]
pub struct Pick {
    /// The article, by which the requests are locked.
    pub article: u64,
    /// How many.
    pub many: u32,
}

/// Who asks. Take it from what your authentication has checked, as [`Tenant`] is, and never from a header that anybody can
/// write; this one stands for a session.
pub struct User(String);

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let session = parts
            .headers
            .get("x-session")
            .ok_or(StatusCode::UNAUTHORIZED)?;
        let user = session.to_str().map_err(|_| StatusCode::UNAUTHORIZED)?;
        Ok(Self(user.to_owned()))
    }
}

/// The customer of this service that a request belongs to.
#[derive(Clone)]
pub struct Tenant(String);

/// Stands for the authentication: it runs outside of the locks, and says which tenant a request belongs to.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization");
    let token = token
        .and_then(|token| token.to_str().ok())
        .ok_or(StatusCode::UNAUTHORIZED)?;
    let tenant = token
        .strip_prefix("Bearer ")
        .ok_or(StatusCode::UNAUTHORIZED)?
        .to_owned();
    request.extensions_mut().insert(Tenant(tenant));
    Ok(next.run(request).await)
}

/// The routes of a replica.
pub fn app(locks: Client) -> Router {
    let layer = || LockLayer::new(locks.clone());
    let wait = Duration::from_millis(200);
    // A request without the header is answered with 400.
    let by_cart = layer().key_template("cart:<header.x-cart>").wait(wait);
    // The body is read by the layer, at most 16 KiB of it, and then by the handler.
    let by_article = layer()
        .key_json(16 * 1024, |pick: Pick| format!("article:{}", pick.article))
        .wait(wait);
    let by_user = layer()
        .key(|User(user): User| format!("user:{user}"))
        .wait(wait);
    // The same report of two tenants has two keys.
    let by_tenant = layer()
        .key(
            |Extension(Tenant(tenant)): Extension<Tenant>, Path(report): Path<u64>| {
                format!("tenant:{tenant}:report:{report}")
            },
        )
        .wait(wait);
    Router::new()
        .route("/cart", post("changed").route_layer(by_cart))
        .route("/pick", post(pick).route_layer(by_article))
        .route("/profile", post("saved").route_layer(by_user))
        .route(
            "/reports/{report}",
            // Last and therefore outside: a request that is not allowed never waits for a lock.
            post("written")
                .route_layer(by_tenant)
                .route_layer(from_fn(authenticate)),
        )
}

async fn pick(Json(pick): Json<Pick>) -> String {
    format!("{} of {}", pick.many, pick.article)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    /// The answer to a request with this header and body, while somebody else holds a key.
    async fn while_held(key: &str, uri: &str, header: (&str, &str), body: &str) -> StatusCode {
        let locks = Client::in_memory();
        let _held = locks.lock(key).acquire().await.unwrap();
        let request = axum::http::Request::post(uri).header(header.0, header.1);
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        app(locks).oneshot(request).await.unwrap().status()
    }

    const NONE: (&str, &str) = ("x-none", "0");

    #[tokio::test(start_paused = true)]
    async fn request_for_a_cart_that_is_locked_is_refused_and_one_for_another_cart_is_served() {
        let to = async |cart| while_held("cart:7", "/cart", ("x-cart", cart), "").await;
        assert_eq!(to("7").await, StatusCode::CONFLICT);
        assert_eq!(to("8").await, StatusCode::OK);
        assert_eq!(
            while_held("cart:7", "/cart", NONE, "").await,
            StatusCode::BAD_REQUEST
        );
    }

    #[tokio::test(start_paused = true)]
    async fn request_for_an_article_in_a_json_body_waits_for_that_article_alone() {
        let to = async |body| while_held("article:5", "/pick", NONE, body).await;
        assert_eq!(to(r#"{"article":5,"many":1}"#).await, StatusCode::CONFLICT);
        assert_eq!(to(r#"{"article":6,"many":1}"#).await, StatusCode::OK);
        assert_eq!(to("{").await, StatusCode::BAD_REQUEST);
    }

    #[tokio::test(start_paused = true)]
    async fn second_request_of_a_user_is_refused_while_the_first_one_runs() {
        let of = async |user| while_held("user:ann", "/profile", ("x-session", user), "").await;
        assert_eq!(of("ann").await, StatusCode::CONFLICT);
        assert_eq!(of("bob").await, StatusCode::OK);
        assert_eq!(
            while_held("k", "/profile", NONE, "").await,
            StatusCode::UNAUTHORIZED
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_tenants_write_the_same_report_at_once_and_one_tenant_does_not() {
        let of = async |token| {
            let key = "tenant:acme:report:3";
            while_held(key, "/reports/3", ("authorization", token), "").await
        };
        assert_eq!(of("Bearer acme").await, StatusCode::CONFLICT);
        assert_eq!(of("Bearer other").await, StatusCode::OK);
        assert_eq!(of("nobody").await, StatusCode::UNAUTHORIZED);
    }
}

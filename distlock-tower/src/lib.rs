//! A tower layer that runs each request under a distributed lock of [`distlock`], with a key that comes from the request.
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::time::Duration;
//! use axum::{Router, body::Body, extract::Path, routing::post};
//! use distlock::Client;
//! use distlock_tower::LockLayer;
//! use http::{Request, StatusCode};
//! use tower::ServiceExt;
//!
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("paid {id}")
//! }
//!
//! let client = Client::in_memory();
//! let app: Router = Router::new().route("/orders/{id}/pay", post(pay)).route_layer(
//!     LockLayer::new(client.clone())
//!         .key(|Path(id): Path<u64>| format!("order:{id}"))
//!         .wait(Duration::from_secs(5)),
//! );
//!
//! let request = || Request::post("/orders/42/pay").body(Body::empty()).unwrap();
//! assert_eq!(app.clone().oneshot(request()).await.unwrap().status(), StatusCode::OK);
//!
//! // Another replica holds the lock for longer than 5 s:
//! # tokio::time::pause();
//! let _other = client.lock("order:42").acquire().await.unwrap();
//! assert_eq!(app.oneshot(request()).await.unwrap().status(), StatusCode::CONFLICT);
//! # }
//! ```
//!
//! [`LockLayer`] tells what is guaranteed, [`KeyFn`] what a key function may look at, [`IntoLockKeys`] what it may
//! return, [`Template`] how to do without one, and [`Held`] is the hold as the handler sees it.
//!
//! # Where to put it
//!
//! On axum, with `route_layer`: `Router::layer` also wraps what answers 404 and 405, so that unknown URLs would take
//! locks, or fail in the key function. Mind that a `get` route serves HEAD too, and locks for it. In a router that is
//! nested below captures, `Path<u64>` fails: name the captures, in a [`Template`] or in a struct.
//!
//! Among other layers, from the outside in:
//!
//! trace → catch-panic → CORS → body limit → rate limit → authentication → **lock** → timeout of the handler → handler
//!
//! * Authentication outside: strangers must not be able to take locks.
//! * A timeout outside counts the time spent waiting for the lock, one inside the handler's alone. Outside, it should be
//!   longer than the layer's [`wait`](LockLayer::wait), or nobody ever sees the 409.
//! * Waiting happens in the response future: to load shedding or a concurrency limit outside, a waiting request is one
//!   in flight. Under a concurrency limit inside, a waiting request keeps the place it was promised.
//! * A retry outside acquires the lock anew for each try, one inside does all tries under one hold.
//! * Two lock layers around one handler hold two locks, the outer one's first. Take them in one order everywhere, or
//!   requests wait for each other until their waits end. Where handlers are to [run to completion][`run_to_completion`],
//!   say so of the outer layer: if the inner one alone is told, the handler of a client that hung up runs on without the
//!   outer lock.
//!
//! `ServiceBuilder` lists the outermost layer first; of repeated calls of `layer` or `route_layer` the last one is the
//! outermost.
//!
//! # When the hold ends
//!
//! | what happens | the hold |
//! | --- | --- |
//! | the handler responds | is released, and that is confirmed, before the response is returned |
//! | the same, with [`HoldUntil::Body`] | goes on with the body, and ends with it, as told there |
//! | the client hangs up | ends in the background, after the handler was dropped; but with [`run_to_completion`] the handler runs on under it |
//! | the handler panics | ends in the background, while the panic goes on |
//! | the handler takes [`Held::keep`] | is the handler's, and ends with its guard |
//! | the connection is upgraded, as for WebSockets | ends before the upgraded connection begins: take [`Held::keep`] along |
//! | [`max_hold`](LockLayer::max_hold) is over, or the lock is lost | is gone: the handler, or the body, is dropped |
//!
//! Where a program ends, give what ends in the background the time for it, or others wait for a lease to end: call
//! [`Client::close`](distlock::Client::close) after the server's graceful shutdown.
//!
//! [`run_to_completion`]: LockLayer::run_to_completion
//!
//! # Answers
//!
//! Bodies are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail` and `retryable`. They never
//! name the key or the holder; the log does, by `tracing`.
//!
//! | what happened | status | `type` |
//! | --- | --- | --- |
//! | held by another until the wait was over | 409, `Retry-After`: the holder's lease, within 1 to 10 s | `urn:distlock:busy` |
//! | held by another, and too many wait already | 503, `Retry-After: 1` | `urn:distlock:overloaded` |
//! | the lock server could not be reached | 503, `Retry-After` | `urn:distlock:unavailable` |
//! | the hold was lost before it was released | 500 | `urn:distlock:lost` |
//! | the request gave no key, or one that cannot be | 400 | `urn:distlock:key` |
//! | the body that its key comes from is too large | 413 | `urn:distlock:key` |
//! | an extractor of the key function refused the request | its own rejection | |
//! | the layer is misused or the server refuses its client | 500 | `urn:distlock:config` |
//!
//! All but 'lost' mean that the handler was not called. A release that nobody confirmed does not change the handler's
//! response: it is logged, and the lease frees the lock.
//!
//! A gRPC client (`content-type: application/grpc..`) is answered in its own form, trailers only: ABORTED for 'busy',
//! RESOURCE_EXHAUSTED for 'overloaded', UNAVAILABLE, UNKNOWN for 'lost', INVALID_ARGUMENT for 'key', and INTERNAL for 'config'. What an extractor or a key
//! function answered is put into the status that comes nearest, unless it has a `grpc-status` already.
//!
//! [`busy_status`](LockLayer::busy_status) sets another status than 409, and [`on_reject`](LockLayer::on_reject) answers
//! of one's own.
//!
//! ## In an OpenAPI description
//!
//! The handler's signature does not show what the layer answers in its place. With `utoipa`, one type says it for all
//! routes under a lock; where the key comes from the body there is a 413 as well:
//!
//! ```
//! use utoipa::{IntoResponses, OpenApi, ToSchema};
//!
//! /// Problem details, RFC 9457.
//! #[derive(ToSchema)]
//! #[allow(dead_code)]
//! struct Problem {
//!     /// What happened, as `urn:distlock:busy`.
//!     r#type: String,
//!     title: String,
//!     status: u16,
//!     detail: String,
//!     /// May the same request be sent again?
//!     retryable: bool,
//! }
//!
//! #[derive(IntoResponses)]
//! #[allow(dead_code)]
//! enum LockAnswers {
//!     /// The request gives no key to lock, or one that cannot be.
//!     #[response(status = 400, content_type = "application/problem+json")]
//!     Key(Problem),
//!     /// Another request is under way. Send this one again after `Retry-After` seconds.
//!     #[response(status = 409, content_type = "application/problem+json", headers(("retry-after" = u64)))]
//!     Busy(Problem),
//!     /// Of type `urn:distlock:lost`: the lock was lost, and nobody knows how much was done. Of another: nothing was.
//!     #[response(status = 500, content_type = "application/problem+json")]
//!     Lost(Problem),
//!     /// Nothing was done. Send the request again after `Retry-After` seconds.
//!     #[response(status = 503, content_type = "application/problem+json", headers(("retry-after" = u64)))]
//!     Unavailable(Problem),
//! }
//!
//! #[utoipa::path(post, path = "/orders/{id}/pay", responses((status = 200), LockAnswers))]
//! async fn pay() -> &'static str {
//!     "paid"
//! }
//!
//! #[derive(OpenApi)]
//! #[openapi(paths(pay), components(schemas(Problem)))]
//! struct Api;
//!
//! let description = serde_json::to_value(Api::openapi()).unwrap();
//! let answers = &description["paths"]["/orders/{id}/pay"]["post"]["responses"];
//! assert!(answers["503"]["headers"]["retry-after"].is_object());
//! assert!(answers["409"]["content"]["application/problem+json"].is_object());
//! assert!(description["components"]["schemas"]["Problem"]["properties"]["type"].is_object());
//! ```
//!
//! # What is not promised
//!
//! * The response's body is sent after the release: what a streamed body does while it is sent is under the lock only
//!   with [`HoldUntil::Body`]. An upgraded connection never is, nor a task that the handler spawned, unless it takes
//!   [`Held::keep`] along.
//! * A 500 `lost` undoes nothing: what the handler had done until it was dropped stays done. A write that must not land
//!   after the lock was lost needs a fencing token that the store compares.
//! * The lock makes requests take turns; it does not make them happen once. A client that repeats a request finds the
//!   lock free, and needs a stored result to find its own work done.
//!
//! # Without axum
//!
//! [`ServiceLockLayer`] is for tower services that are no HTTP at all, such as consumers of queues.
//!
//! [`LockLayer`] is for any tower service of `http::Request<B>` that is `Clone`. Without the default feature `axum` there
//! are no keys from extractors, and [`Held`] is found in the request's extensions alone.
//!
//! ```
//! use std::convert::Infallible;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
//! use distlock_tower::{Held, LockLayer};
//! use http::{Request, Response};
//! use http_body_util::BodyExt;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! async fn import(request: Request<String>) -> Result<Response<String>, Infallible> {
//!     let held = request.extensions().get::<Held>().map(|held| held.key().to_owned());
//!     Ok(Response::new(held.unwrap_or_default()))
//! }
//!
//! let layer = LockLayer::new(distlock::Client::in_memory()).key_header("x-account");
//! let request = Request::post("/").header("x-account", "acme").body(String::from("body")).unwrap();
//! let response = layer.layer(service_fn(import)).oneshot(request).await?;
//! let (_, body) = response.into_parts();
//! assert_eq!(body.collect().await.unwrap().to_bytes(), "x-account:acme");
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod enter;
mod error;
mod future;
mod held;
pub mod key;
mod layer;
mod non_http;
mod respond;
mod service;
mod settings;

pub use crate::error::BoxError;
pub use crate::future::{HoldBody, LockFuture};
pub use crate::held::Held;
#[cfg(feature = "axum")]
pub use crate::held::HeldRejection;
#[doc(no_inline)]
pub use crate::key::{IntoLockKeys, KeyFn, LockKeys, Template, TemplateError};
pub use crate::layer::{CompletingFuture, CompletingLayer, CompletingService, LockLayer, Unkeyed};
pub use crate::non_http::{LockError, ServiceLock, ServiceLockFuture, ServiceLockLayer};
pub use crate::respond::{IntoAnswer, LockInfo, Reason, Rejection};
pub use crate::service::LockService;
pub use crate::settings::HoldUntil;

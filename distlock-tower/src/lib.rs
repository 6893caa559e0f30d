//! A [tower](tower_layer::Layer) layer that runs each request under a distributed lock of [`distlock`]. The lock's key
//! comes from the request.
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
//! The examples of this crate send their requests by `oneshot` of tower's `ServiceExt`, as tests do. That needs tower 0.5 with its
//! feature `util`: `cargo add --dev tower --features util`.
//!
//! Start with [`LockLayer`], which lists what is guaranteed. [`KeyFn`] says what a key function can read from the request,
//! and [`IntoLockKeys`] what it can return. A [`Template`] replaces a key function by a text with placeholders. [`Held`] is
//! the hold as the handler sees it.
//!
//! # Where to put the layer
//!
//! **After the routes.** A layer is around what was added before it. A route or a method that is added after it is not
//! locked. Neither the compiler nor the log tells you, because its requests never come to the layer: `.layer(lock).route(..)`, and
//! `post(pay).layer(lock).get(show)`.
//!
//! With axum, add it with `route_layer`. `Router::layer` also wraps the answers 404 and 405: requests for unknown URLs
//! would then take locks, or fail in the key function. A `get` route also serves HEAD, so HEAD requests take locks too. In
//! a router that is nested below a path with captures, `Path<u64>` fails because there is more than one capture. Name the
//! captures in this case, in a [`Template`] or in a struct.
//!
//! Among other layers, use this order, from the outside in:
//!
//! trace → catch-panic → CORS → body limit → rate limit → authentication → **lock** → timeout of the handler → handler
//!
//! * **Authentication** belongs outside, so that unauthenticated clients cannot take locks.
//! * **CORS** belongs outside, so that preflights take no locks. If one comes to the layer, it takes the lock and the log
//!   says so once: whether it may run without the lock, only the handler knows. [`methods`](LockLayer::methods) chooses.
//! * **A client that sends slowly** holds the lock while the handler reads the request's body. The layer bounds this
//!   time: 30 s in all by default, see [`request_body_timeout`](LockLayer::request_body_timeout). Extractors that read
//!   the body, such as `Json`, run inside the layer and count. A layer outside that reads the whole body shortens the
//!   time under the lock, because the handler then reads from memory.
//! * **Layers that change the type of the request's body**, such as a [body limit](#a-body-limit), belong in a `layer` call of
//!   their own, which gives the lock layer inside an axum body again. The layer cannot time a body of a type that it does not
//!   know. It then logs a warning once, unless [`max_hold`](LockLayer::max_hold) or a [`lease`](LockLayer::lease) is set.
//! * **A timeout** outside also counts the time spent waiting for the lock. A timeout inside counts only the handler. Make
//!   an outside timeout longer than the layer's [`wait`](LockLayer::wait), or clients never see the 409.
//! * **A concurrency limit or load shedding** outside counts a waiting request as in flight, because the response future
//!   does the waiting. Under a concurrency limit inside, a waiting request keeps the permit that `poll_ready` reserved.
//! * **A retry** outside acquires the lock again for each attempt. A retry inside makes all attempts under one hold.
//! * **Two lock layers** around one handler hold two locks. The outer layer acquires first. Use the same order on all
//!   routes, or requests can wait for each other until their waits end. If handlers must
//!   [run to completion][`run_to_completion`], set this on the outer layer. If only the inner layer has it and the client
//!   disconnects, the handler continues without the outer lock.
//!
//! `ServiceBuilder` lists the outermost layer first. With repeated calls of `layer` or `route_layer`, the last one is the
//! outermost.
//!
//! ## A body limit
//!
//! tower-http's `RequestBodyLimitLayer` makes bodies of a private type, which nobody else can build. Between two `layer` calls
//! axum makes an axum body of it. Below a limit in a call of its own, the layer therefore bounds the time of the body, and
//! reads the rest of a body that nobody reads:
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use axum::{Router, body::Bytes, extract::Path, routing::put};
//! use distlock_tower::LockLayer;
//! use tower_http::limit::RequestBodyLimitLayer;
//!
//! async fn store(Path(id): Path<u64>, file: Bytes) -> String {
//!     format!("stored {} bytes of {id}", file.len())
//! }
//!
//! let client = distlock::Client::in_memory();
//! let lock = LockLayer::new(client).key(|Path(id): Path<u64>| format!("file:{id}"));
//! let app: Router = Router::new()
//!     .route("/files/{id}", put(store))
//!     .route_layer(lock)
//!     // The last call is the outermost layer.
//!     .route_layer(RequestBodyLimitLayer::new(16 * 1024 * 1024));
//! ```
//!
//! In one `ServiceBuilder`, tower-http's `MapRequestBodyLayer::new(axum::body::Body::new)` between the two does the same.
//! axum's `DefaultBodyLimit` leaves the type of the body alone, and can stand anywhere outside.
//!
//! # When the hold ends
//!
//! | event | the hold |
//! | --- | --- |
//! | the handler responds | is released before the response is returned, and the release is confirmed; or it goes to another request of the process that waits for the key |
//! | the handler responds, with [`HoldUntil::Body`] | continues with the response body, and ends with it |
//! | the client disconnects | is released in the background, after the handler was dropped; with [`run_to_completion`] the handler continues under the lock |
//! | the handler panics | is released in the background while the panic unwinds |
//! | the handler calls [`Held::keep`] | belongs to the handler, and ends with its guard; [`max_hold`](LockLayer::max_hold) still limits it |
//! | the connection is upgraded, as for WebSockets | ends before the upgraded connection starts; move the guard of [`Held::keep`] into the upgraded task to keep it |
//! | the request's body takes longer than [`request_body_timeout`](LockLayer::request_body_timeout) | is released before the answer is returned, after the handler was dropped |
//! | [`max_hold`](LockLayer::max_hold) is exceeded, or the lock is lost | is over; the handler or the body is dropped |
//!
//! A disconnect is noticed by the server, which reads the connection. Over HTTP/1.1 the server does not notice it in two cases:
//!
//! * **The client has sent its next request** on the same connection already (pipelining).
//! * **A part of the request's body is unread.** The layer does not read the body while the request waits for its lock. A request
//!   whose client has left then keeps its place in line, and its handler is called. This applies to bodies that are sent in
//!   chunks, to large bodies, and to clients that wait for `100 Continue`. A small body with a `content-length` arrives in one
//!   piece, so the server notices the disconnect. If the [key comes from the body](Unkeyed::key_from_body), or if a layer outside
//!   reads the whole body, the server notices it as well.
//!
//! The hold ends when the handler ends. [`wait`](LockLayer::wait) bounds how long such a request stays in line, and
//! [`max_hold`](LockLayer::max_hold) bounds the hold.
//!
//! If the lock server does not answer the release, the response is delayed until it answers, for at most the client's
//! [`unavailable_after`](distlock::Builder::unavailable_after), 5 s by default. The release is then repeated in the
//! background.
//!
//! At shutdown, call [`Client::close`](distlock::Client::close) after the server's graceful shutdown. It waits for the
//! releases in the background. Without it, other processes may have to wait for the leases to end.
//!
//! [`run_to_completion`]: LockLayer::run_to_completion
//!
//! # Answers
//!
//! The layer answers in place of the handler with an `application/problem+json` body (RFC 9457) whose members are `type`,
//! `title`, `status`, `detail` and `retryable`, and `retry_after` if there is a `Retry-After`. An answer never contains
//! the key or the holder. Both are logged with `tracing`: a refused request at the level INFO, WARN if the lock server did not
//! answer, and ERROR if the set-up is wrong or the lock was lost.
//!
//! | event | status | `type` |
//! | --- | --- | --- |
//! | another owner held the lock until the wait was over | 409 with `Retry-After`, see [below](#when-to-come-back) | `urn:distlock:busy` |
//! | another owner holds the lock, and a waiter limit is reached | 503 with `Retry-After: 1` | `urn:distlock:overloaded` |
//! | the lock server could not be reached, or had not answered when the wait was over, or the client is closed | 503 with `Retry-After: 5` | `urn:distlock:unavailable` |
//! | the hold was lost before its release | 500 | `urn:distlock:lost` |
//! | the request's body took longer than its timeout while the lock was held | 408 | `urn:distlock:body-timeout` |
//! | the request has no key, or an invalid one, or one that holds other data in the lock server | 400 | `urn:distlock:key` |
//! | the request's body is too large to read a key from it | 413 | `urn:distlock:key` |
//! | the key comes from the body, which is compressed or of another type | 415 | `urn:distlock:key` |
//! | an extractor of the key function rejected the request | the extractor's own rejection | |
//! | the layer is used wrongly, or the lock server rejects the client | 500 | `urn:distlock:config` |
//!
//! The handler was not called in any of these cases except `lost` and `body-timeout`. If only the confirmation of a release is missing, the
//! handler's response is returned unchanged: the failure is logged, and the lock becomes free when its lease ends.
//!
//! A gRPC request (`content-type: application/grpc` or `application/grpc+..`) gets a trailers-only response with a gRPC status: ABORTED for `busy`,
//! RESOURCE_EXHAUSTED for `overloaded`, UNAVAILABLE for `unavailable`, UNKNOWN for `lost`, DEADLINE_EXCEEDED for
//! `body-timeout`, INVALID_ARGUMENT for `key` and INTERNAL for `config`. As in all gRPC, the HTTP status is 200. In place of
//! `Retry-After` it has `grpc-retry-pushback-ms`, which clients with a retry policy obey: the time in milliseconds, or -1 if the
//! call must not be sent again automatically. A gRPC-Web request gets the HTTP answer. With
//! tonic's `GrpcWebLayer` outside, the lock layer sees gRPC requests, and that layer translates the answers. The answer of an extractor or a key function is translated to the nearest gRPC status, unless
//! it already has a `grpc-status` header.
//!
//! A handler that locks without the layer gives the same answers by [`Rejection::before_work`]. With `?`, which may stand
//! after work, a [`Rejection`] has the same status, but no `Retry-After`, and `retryable` is false.
//!
//! [`busy_status`](LockLayer::busy_status) replaces the status 409, and [`on_reject`](LockLayer::on_reject) replaces whole
//! answers.
//!
//! ## When to come back
//!
//! `Retry-After` of a 409 is a whole number of seconds, 1 to 10, and up to 15 behind others in line:
//!
//! * If the holder's lease is a fixed one, it is the rest of the lease.
//! * If the lease is renewed, its rest says nothing about the end of the hold. It is then twice the median of the last 15
//!   holds under this layer, whatever their keys, and 1 before the first hold has ended. Each of them counts for at least the
//!   layer's [`hold_at_least`](LockLayer::hold_at_least), which takes the place of the 1 if it is set. A hold that its handler kept with [`Held::keep`] does not count.
//! * A request behind others in line gets up to half as many seconds more, rounded up, at random.
//!
//! The layer takes a lease for a fixed one if the layer itself has a [`lease`](LockLayer::lease), or if the rest is longer
//! than the client's [`watchdog_timeout`](distlock::Builder::watchdog_timeout) or shorter than half of it.
//!
//! Most libraries that repeat requests look at the status first. reqwest-retry, axios-retry and the retry of urllib3 do not
//! repeat a 409 by default. With [`busy_status`](LockLayer::busy_status) you can answer 429 or 503, which more of them
//! repeat after `Retry-After`. Some of them repeat every 5xx, also the 500 `lost`, whose outcome is unknown: make such
//! requests repeatable, or take the 500 out of their list. `retryable` in the body says which answers are safe to repeat.
//!
//! Scripts in a browser see `Retry-After` of another origin only if CORS lists it in `Access-Control-Expose-Headers`
//! (`expose_headers` in tower-http). They always see `retry_after` in the body.
//!
//! ## Large request bodies
//!
//! Many clients of HTTP/1 write their whole request before they read the answer. If the answer comes early and the
//! connection is closed, they see a broken pipe and no status, and cannot know that nothing was done. Before it answers in
//! place of the handler, the layer therefore reads the rest of the request's body and throws it away: up to 4 MiB, see
//! [`drain_limit`](LockLayer::drain_limit), and for up to 1 s. Clients that send more may still see a broken pipe. They
//! should send `Expect: 100-continue` and wait for the answer, as curl does. If such a client leaves while its request waits,
//! the server [does not notice it](#when-the-hold-ends).
//!
//! ## In an OpenAPI description
//!
//! Tools that derive an OpenAPI description from handler signatures do not see the layer's answers. Declare these responses
//! once and add them to every operation under a lock. Operations whose key comes from the body also need a 413
//! and a 415.
//!
//! ```yaml
//! components:
//!   schemas:
//!     Problem:
//!       type: object
//!       required: [type, title, status, detail, retryable]
//!       properties:
//!         type: { type: string, description: "The kind of failure, such as urn:distlock:busy." }
//!         title: { type: string }
//!         status: { type: integer }
//!         detail: { type: string }
//!         retryable: { type: boolean, description: "Whether the same request can be sent again." }
//!         retry_after: { type: integer, description: "Retry-After again, if the answer has one." }
//!   responses:
//!     LockKey: # 400
//!       description: The request has no lock key, or an invalid one. detail says whether something was done.
//!       content: { application/problem+json: { schema: { $ref: "#/components/schemas/Problem" } } }
//!     LockBodyTimeout: # 408
//!       description: The request's body did not arrive in time. The outcome is unknown.
//!       content: { application/problem+json: { schema: { $ref: "#/components/schemas/Problem" } } }
//!     LockBusy: # 409
//!       description: Another request is running. If retryable is true, nothing was done. Send this request again after Retry-After seconds then.
//!       headers: { Retry-After: { schema: { type: integer } } }
//!       content: { application/problem+json: { schema: { $ref: "#/components/schemas/Problem" } } }
//!     LockFailed: # 500
//!       description: For urn:distlock:lost, the outcome is unknown. For other types, detail says whether something was done.
//!       content: { application/problem+json: { schema: { $ref: "#/components/schemas/Problem" } } }
//!     LockUnavailable: # 503
//!       description: If retryable is true, nothing was done. Send this request again after Retry-After seconds then.
//!       headers: { Retry-After: { schema: { type: integer } } }
//!       content: { application/problem+json: { schema: { $ref: "#/components/schemas/Problem" } } }
//! ```
//!
//! # What is not guaranteed
//!
//! * The response's body is sent after the release. Work that a streamed body does while it is sent runs under the lock
//!   only with [`HoldUntil::Body`]. An upgraded connection, or a task that the handler spawned, runs under the lock only if
//!   it owns the guard of [`Held::keep`].
//! * A 500 `lost` or a 408 `body-timeout` undoes nothing: what the handler did before it was dropped stays done. If a write must not arrive after
//!   the lock was lost, use a [fencing token](Held::fencing_token) that the store compares.
//! * The lock makes requests run one after the other. It does not make them run only once. A client that repeats a request
//!   finds the lock free. To recognise a repeated request, store its result.
//!
//! # The console
//!
//! With the feature `console`, the function `console` makes a page on which people see the locks on the server: who holds
//! which key, for how long, and who waits.
//!
//! # Without axum
//!
//! [`LockLayer`] works for any tower service of `http::Request<B>` that is `Clone`. Without the default feature `axum`
//! there are no keys from extractors, and [`Held`] is only found in the request's extensions.
//!
//! [`ServiceLockLayer`] is for tower services of other request types, such as queue consumers.
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

mod client;
#[cfg(feature = "console")]
mod console;
mod enter;
mod error;
mod future;
mod held;
pub mod key;
mod layer;
mod lock_setters;
mod non_http;
mod request_body;
mod respond;
mod service;
mod settings;
mod span;

pub use crate::client::{ClientFuture, ClientLayer, ClientService};
#[cfg(feature = "console")]
pub use crate::console::{Console, console};
pub use crate::error::BoxError;
pub use crate::future::{HoldBody, LockFuture};
pub use crate::held::Held;
#[cfg(feature = "axum")]
pub use crate::held::HeldRejection;
#[doc(no_inline)]
pub use crate::key::{IntoLockKeys, KeyFn, LockKeys, Template, TemplateError};
#[doc(hidden)]
pub use crate::layer::HasKey;
pub use crate::layer::{CompletingFuture, CompletingLayer, CompletingService, LockLayer, Unkeyed};
pub use crate::non_http::{LockError, ServiceLock, ServiceLockFuture, ServiceLockLayer};
pub use crate::respond::{IntoAnswer, LockInfo, Reason, Rejection};
pub use crate::service::LockService;
pub use crate::settings::HoldUntil;

// Compiles the example of the README.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;

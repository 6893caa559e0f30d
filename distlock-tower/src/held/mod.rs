//! The hold as the handler sees it, and as the layer releases it.
//!
//! All clones of a `Held` share one slot for the guard. The layer's release, or the handler's `Held::keep`, takes the
//! guard out of the slot. A clone that the handler keeps therefore cannot delay the layer's release.

#[cfg(feature = "axum")]
mod extract;
mod request_hold;

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Guard, Section};
use parking_lot::Mutex;
use smallvec::SmallVec;

#[cfg(feature = "axum")]
pub use self::extract::HeldRejection;
pub(crate) use self::request_hold::{Interruption, RequestHold};

/// The hold that a request runs under: an extension of the request, and an axum extractor.
///
/// [`LockLayer`](crate::LockLayer) inserts it. With several lock layers around a handler, it is the hold of the
/// innermost one. Clones are views of the same hold. They can outlive the request, and then report that the hold has
/// ended.
///
/// Functions that the handler calls do not need it as an argument: [`distlock::current`] finds the same hold by its
/// key.
///
/// As an extractor it rejects a request without a hold with 500. `Option<Held>` is `None` for such a request.
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use axum::{Router, body::Body, extract::Path, routing::post};
/// use distlock_tower::{Held, LockLayer};
/// use http::Request;
/// use tower::ServiceExt;
///
/// async fn pay(held: Held) -> String {
///     assert!(held.is_held());
///     format!("paid under {}", held.key())
/// }
///
/// let client = distlock::Client::in_memory();
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(pay))
///     .route_layer(LockLayer::new(client).key(|Path(id): Path<u64>| format!("order:{id}")));
/// let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
/// let response = app.oneshot(request).await.unwrap();
/// let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
/// assert_eq!(body, "paid under order:42");
/// # }
/// ```
#[derive(Clone)]
pub struct Held {
    shared: Arc<Shared>,
}

struct Shared {
    /// The keys of the guard, in sorted order. There is at least one.
    keys: SmallVec<[String; 1]>,
    token: Option<u64>,
    /// Never entered. It reports whether the hold lasts, wherever the guard is.
    section: Section,
    /// `None` once the layer has released the guard or the handler has taken it.
    slot: Mutex<Option<Guard>>,
}

// A panic leaves the slot as it was: no code of a handler runs under its mutex.
impl RefUnwindSafe for Shared {}

impl Held {
    fn new(guard: Guard) -> Self {
        let shared = Shared {
            keys: guard.keys().map(str::to_owned).collect(),
            token: guard.fencing_token(),
            section: guard.section(),
            slot: Mutex::new(Some(guard)),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the key that is held, or the first of several keys.
    ///
    /// # Examples
    /// See [`Held`].
    pub fn key(&self) -> &str {
        self.shared.keys.first().map_or("", String::as_str)
    }

    /// Returns all keys that are held, in sorted order.
    ///
    /// # Examples
    /// See [`Held`].
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.shared.keys.iter().map(String::as_str)
    }

    /// Returns the fencing token of the grant, if the layer's mode is [`Fenced`](distlock::Mode::Fenced).
    ///
    /// The token is higher than every earlier token of the key. A store that compares tokens can reject the late write
    /// of a handler that has lost the lock without noticing.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use axum::{Router, body::Body, routing::post};
    /// use distlock::Mode;
    /// use distlock_tower::{Held, LockLayer};
    /// use http::Request;
    /// use tower::ServiceExt;
    ///
    /// async fn write(held: Held) -> String {
    ///     format!("update .. where token <= {}", held.fencing_token().unwrap_or_default())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key(|_: &http::request::Parts| "report").mode(Mode::Fenced);
    /// let app: Router = Router::new().route("/report", post(write)).route_layer(layer);
    /// let response = app.oneshot(Request::post("/report").body(Body::empty()).unwrap()).await.unwrap();
    /// assert_eq!(response.status(), 200);
    /// # }
    /// ```
    pub fn fencing_token(&self) -> Option<u64> {
        self.shared.token
    }

    /// Returns whether the lock is held, as far as this process can tell. The method only compares clocks, without I/O.
    ///
    /// The answer is about the hold of this request, also after its guard was [kept](Held::keep). Once that hold is
    /// released or lost, it stays `false`, even if another request acquires the key.
    ///
    /// # Examples
    /// See [`Held`].
    pub fn is_held(&self) -> bool {
        self.shared.section.is_held()
    }

    /// Returns how long the lock is still held, unless its lease is renewed; zero once it is not. See
    /// [`Guard::remaining`](distlock::Guard::remaining).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use distlock_tower::Held;
    ///
    /// async fn write(held: Held) -> Result<String, &'static str> {
    ///     // The store ends the request at about the end of the lease; `Builder::lease_margin` leaves time before it.
    ///     match held.remaining().min(Duration::from_secs(5)).as_millis() {
    ///         0 => Err("the lock is over"), // for PostgreSQL, a timeout of 0 is none
    ///         millis => Ok(format!("set statement_timeout = {millis}")),
    ///     }
    /// }
    /// # let _ = write;
    /// ```
    pub fn remaining(&self) -> Duration {
        self.shared.section.remaining()
    }

    /// Returns a future that completes when the hold is lost, when it must be assumed lost, or when it is released.
    ///
    /// A handler rarely needs it, because the handler is dropped on a loss. Use it in tasks that the handler spawned,
    /// and in code that runs after the handler under a [kept](Held::keep) guard.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::Held;
    ///
    /// async fn report(held: Held) {
    ///     // Inherits neither the scope nor the hold, so it watches the hold.
    ///     tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = held.lost() => println!("the hold has ended"),
    ///             () = async { /* work that only makes sense under the lock */ } => {}
    ///         }
    ///     });
    /// }
    /// # let _ = report;
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.section.lost()
    }

    /// Takes the guard, so that the lock outlives the response. The hold then ends with the guard.
    ///
    /// Use it for work that continues after the response, such as an upgraded connection. The layer releases nothing in
    /// that case. Returns `None` if the guard was taken before, or is already released.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// use distlock_tower::Held;
    /// use http::StatusCode;
    ///
    /// async fn start_import(held: Held) -> StatusCode {
    ///     let guard = held.keep();
    ///     tokio::spawn(async move {
    ///         let Some(guard) = guard else { return };
    ///         let imported = guard.scope(async { /* minutes */ }).await;
    ///         let released = guard.release().await;
    ///         println!("{imported:?} {released:?}");
    ///     });
    ///     StatusCode::ACCEPTED
    /// }
    /// # let _ = start_import;
    /// ```
    #[must_use = "the lock is released as soon as the guard is dropped; bind it: `let _guard = ..`"]
    pub fn keep(&self) -> Option<Guard> {
        self.shared.slot.lock().take()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("keys", &self.shared.keys)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// Marks a request that the layer let run unlocked, so that the rejection of a missing [`Held`] can say so.
#[derive(Clone, Debug)]
pub(crate) struct Unlocked;

//! The hold as the handler sees it.
//!
//! A `Held` owns no share of the guard: all clones and the layer look into one slot, and whoever empties it has the
//! guard. So a clone that the handler keeps cannot stop the layer's release.

#[cfg(feature = "axum")]
mod extract;
mod request_hold;

use std::fmt;
use std::sync::Arc;

use distlock::{Guard, Section};
use parking_lot::Mutex;

#[cfg(feature = "axum")]
pub use self::extract::HeldRejection;
pub(crate) use self::request_hold::RequestHold;

/// The hold that a request runs under: an extension of the request, and an axum extractor.
///
/// Put there by [`LockLayer`](crate::LockLayer); with several of them around a handler, the innermost one's. Clones are
/// views of one hold, and may outlive the request: then they say that it has ended.
///
/// Code that the handler calls need not be passed one: [`distlock::current`] finds the same hold by its key.
///
/// As an extractor it answers 500 where there is no hold; `Option<Held>` is `None` then.
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
    view: Arc<View>,
}

struct View {
    /// At least one.
    keys: Vec<String>,
    token: Option<u64>,
    /// Never entered: it only tells whether the hold lasts, wherever the guard is.
    section: Section,
    slot: Mutex<Option<Guard>>,
}

impl Held {
    fn new(guard: Guard) -> Self {
        let view = View {
            keys: guard.keys().map(str::to_owned).collect(),
            token: guard.token(),
            section: guard.section(),
            slot: Mutex::new(Some(guard)),
        };
        Self {
            view: Arc::new(view),
        }
    }

    /// The key that is held; of several, the first.
    pub fn key(&self) -> &str {
        self.view.keys.first().map_or("", String::as_str)
    }

    /// All keys that are held, in order.
    pub fn keys(&self) -> &[String] {
        &self.view.keys
    }

    /// The fencing token of the grant, higher than every earlier one of its key, where the layer's mode is
    /// [`Fenced`](distlock::Mode::Fenced).
    ///
    /// A store that compares it refuses a write of a handler that lost the lock without knowing.
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
    ///     format!("update .. where token < {}", held.token().unwrap_or_default())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key(|_: &http::request::Parts| "report").mode(Mode::Fenced);
    /// let app: Router = Router::new().route("/report", post(write)).route_layer(layer);
    /// let response = app.oneshot(Request::post("/report").body(Body::empty()).unwrap()).await.unwrap();
    /// assert_eq!(response.status(), 200);
    /// # }
    /// ```
    pub fn token(&self) -> Option<u64> {
        self.view.token
    }

    /// Is the lock held, as far as this process can tell? A comparison of clocks, without I/O.
    ///
    /// Speaks of this request's hold, also when its guard was [kept](Held::keep), and is `false` for ever once that was
    /// released.
    pub fn is_held(&self) -> bool {
        self.view.section.is_held()
    }

    /// Completes when the hold is lost, or must be assumed so, and when it is released.
    ///
    /// In a handler there is rarely a need for it: on a loss the handler is dropped. It is for tasks that the handler
    /// spawned, and for what runs after it under a guard that was [kept](Held::keep).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.view.section.lost()
    }

    /// Takes the guard over: the lock outlives the response and ends with the guard.
    ///
    /// For work that goes on after the response, as an upgraded connection does. The layer then releases nothing. `None`
    /// where it was taken before, or released.
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
        self.view.slot.lock().take()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("keys", &self.view.keys)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// Marks a request that went through the layer without a key, so that a missing [`Held`] can be explained.
#[derive(Clone, Debug)]
pub(crate) struct Unlocked;

//! The holds that enclose the running code, by key.

use super::frames::view_of;
use crate::hold::{Hold, HoldRef, HoldView};
use crate::resource::owner::Owner;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Returns whether the running code is inside a scope that holds `key`. If several enclosing scopes have the key, one that
/// holds it is enough.
///
/// Use it in functions that rely on their caller's lock: `debug_assert!(distlock::is_held("order:42"))`. Scopes are
/// made by [`run`](crate::Acquire::run), by [`scope`](crate::Guard::scope), by the attribute and by the layer, and
/// [`inherit`](crate::inherit) carries them into a task. A guard without a scope does not count.
///
/// The key is compared as it was written, without the client's prefix. Scopes of all clients and of all kinds of locks
/// count. Like [`Guard::is_held`](crate::Guard::is_held), the function only compares clocks, without I/O.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// async fn charge(order: u64) {
///     debug_assert!(distlock::is_held(&format!("order:{order}")), "lock the order first");
/// }
///
/// let client = distlock::Client::in_memory();
/// client.lock("order:42").acquire().run(charge(42)).await?;
/// assert!(!distlock::is_held("order:42"));
/// # Ok(()) }
/// ```
pub fn is_held(key: &str) -> bool {
    view_of(key).is_some_and(|(view, _)| view.is_held())
}

/// Returns the hold on `key` that encloses the running code, if there is one.
///
/// If several enclosing scopes have the key, it is the hold of the innermost scope that still holds it, or of the
/// innermost scope if all have lost it. [`is_held`] says which scopes count.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// async fn write(text: &str) -> String {
///     let token = distlock::current("report").and_then(|hold| hold.fencing_token()).unwrap_or_default();
///     format!("{text} if the last token is at most {token}")
/// }
///
/// let client = distlock::Client::in_memory();
/// let written = client.fenced_lock("report").acquire().run(write("done")).await?;
/// assert!(written.starts_with("done if") && !written.ends_with(" 0"));
/// assert!(distlock::current("report").is_none());
/// # Ok(()) }
/// ```
pub fn current(key: &str) -> Option<Current> {
    let (view, hold_ref) = view_of(key)?;
    Some(Current { view, hold_ref })
}

/// A view of a hold that encloses the running code, returned by [`current`].
///
/// The view does not keep the lock held, and it may be stored or sent elsewhere. Once the guard of its scope has ended,
/// [`is_held`](Current::is_held) returns `false`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let hold = client.lock("order:42").acquire().run(async { distlock::current("order:42") }).await?;
/// let hold = hold.expect("it ran inside the lock");
/// assert!(!hold.is_held());
/// hold.lost().await; // at once, because it was released
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Current {
    view: HoldView,
    /// The key's hold in the view.
    hold_ref: Arc<HoldRef>,
}

impl Current {
    fn hold(&self) -> &Hold {
        self.hold_ref.hold()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn view(&self) -> &HoldView {
        &self.view
    }

    /// Returns the key as it was written, without the client's prefix.
    ///
    /// # Examples
    /// See [`Current`].
    pub fn key(&self) -> &str {
        self.hold().resource.key.text()
    }

    /// Returns whether the lock is held, as far as this process can tell; for a multi-lock, whether all of its keys are. See
    /// [`Guard::is_held`](crate::Guard::is_held). It is `false` once the guard has ended.
    ///
    /// # Examples
    /// See [`Current`].
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// Returns how long the guard of the scope still holds the lock, unless its lease is renewed; zero once it does not. See
    /// [`Guard::remaining`](crate::Guard::remaining).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// /// Gives its request to the store as much time as the lock has.
    /// async fn write(key: &str) -> Option<Duration> {
    ///     distlock::current(key).map(|hold| hold.remaining())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let acquire = client.lock("report").acquire().lease(Duration::from_secs(10));
    /// let timeout = acquire.run(write("report")).await?;
    /// assert!(timeout.is_some_and(|timeout| timeout <= Duration::from_secs(10)));
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Returns the fencing token of the grant, if the lock is a fenced one. For a multi-lock it is the token of this
    /// [key](Current::key).
    ///
    /// # Examples
    /// See [`current`].
    pub fn fencing_token(&self) -> Option<u64> {
        self.hold().token()
    }

    /// Returns the identity of the hold in the server. For a Redlock it is that of the first server of the guard.
    ///
    /// # Examples
    /// See [`Owner`].
    pub fn owner(&self) -> Owner {
        self.hold().owner()
    }

    /// Returns a future that completes when the hold is lost or its guard ends. See [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`Current`].
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.view.clone().over()
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

//! The holds that the running code is inside of, by key.

use std::fmt;

use crate::hold::{Hold, HoldView};
use crate::owner::Owner;
use crate::scope::view_of;

/// Does the code that runs now hold `key`, inside a scope around it? Where several scopes have the key, in any of them.
///
/// For functions that rely on their caller's lock: `debug_assert!(distlock::is_held("order:42"))`. Scopes are those of
/// [`run`](crate::Acquire::run), [`scope`](crate::Guard::scope), the attribute and the layer, and what
/// [`inherit`](crate::inherit) carried along; a guard without a scope is not seen. The key is as it was written, without
/// the client's prefix; it is not told apart of which client and kind the lock is. No I/O: a comparison of clocks, as
/// [`Guard::is_held`](crate::Guard::is_held).
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

/// The hold on `key` that the code which runs now is inside of, if it is inside of one: of the innermost scope that
/// holds it, or, where all have lost it, of the innermost that did. Which scopes count, see [`is_held`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// async fn write(text: &str) -> String {
///     let token = distlock::current("report").and_then(|hold| hold.token()).unwrap_or_default();
///     format!("{text} if the last token is below {token}")
/// }
///
/// let client = distlock::Client::in_memory();
/// let written = client.fenced_lock("report").acquire().run(write("done")).await?;
/// assert!(written.starts_with("done if") && !written.ends_with(" 0"));
/// assert!(distlock::current("report").is_none());
/// # Ok(()) }
/// ```
pub fn current(key: &str) -> Option<Current> {
    let (view, at) = view_of(key)?;
    Some(Current { view, at })
}

/// A view of the hold that code runs inside of; see [`current`].
///
/// It keeps nothing held, and may be kept or sent elsewhere: once the guard of its scope has ended it says so.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let hold = client.lock("order:42").acquire().run(async { distlock::current("order:42") }).await?;
/// let hold = hold.expect("it ran inside the lock");
/// assert!(!hold.is_held());
/// hold.lost().await; // at once, for it was released
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Current {
    view: HoldView,
    /// Which member of the stake has the key.
    at: usize,
}

impl Current {
    fn hold(&self) -> &Hold {
        self.view.members()[self.at].hold_ref.hold()
    }

    /// The key, as it was asked for.
    pub fn key(&self) -> &str {
        self.hold().resource.key.text()
    }

    /// Is the lock held, as far as this process can tell? As [`Guard::is_held`](crate::Guard::is_held): of a multi-lock
    /// all of its keys. `false` once its guard has ended.
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// The fencing token of the key's grant, where its lock is a fenced one.
    pub fn token(&self) -> Option<u64> {
        self.hold().token
    }

    /// The identity under which the hold of the key stands in the server; of a Redlock in the first server of the guard.
    pub fn owner(&self) -> Owner {
        self.hold().owner
    }

    /// Completes when the hold is lost or its guard ends. As [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
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

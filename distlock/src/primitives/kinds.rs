//! The kinds of [`Lock`](crate::Lock), as types: `Lock<Fair>` is a fair lock.
//!
//! A [`Client`](crate::Client) has a method for each kind, and each kind has a name such as
//! [`FairLock`](crate::FairLock), so most code needs none of these types. They are in the messages of the compiler, and in
//! code that works with locks of every kind. Where the kind is a setting, use a [`Mode`](crate::Mode).
//!
//! # Examples
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
//! use distlock::kinds::LockKind;
//! use distlock::{Client, Error, Guard, Lock};
//!
//! /// Does the work under a lock of any kind, and returns how many owners held the lock meanwhile.
//! async fn counted<K: LockKind>(lock: &Lock<K>, work: impl Future<Output = ()>) -> Result<usize, Error> {
//!     let guard: Guard = lock.acquire().await?.into();
//!     guard.scope(work).await?;
//!     let owners = lock.holders().await?.len();
//!     guard.release().await?;
//!     Ok(owners)
//! }
//!
//! let client = Client::in_memory();
//! assert_eq!(counted(&client.fair_lock("order:42"), async {}).await?, 1);
//! assert_eq!(counted(&client.rw_lock("report:42").read(), async {}).await?, 1);
//! # Ok(()) }
//! ```

use std::fmt;

use crate::guard::fenced::FencedGuard;
use crate::guard::{Guard, Leased};
use crate::resource::kind::{Kind, lock_kinds};

/// A kind of [`Lock`](crate::Lock): one of the types of this module. Other crates cannot implement it.
///
/// # Examples
/// See [`kinds`](crate::kinds).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kind of lock",
    label = "not a kind of lock",
    note = "the kinds are the types of `distlock::kinds`, as in `Lock<Fair>`"
)]
pub trait LockKind: sealed::OfKind {
    /// The guard of a lock of this kind: [`FencedGuard`] for [`Fenced`], and [`Guard`] for all others.
    type Guard: Leased + Into<Guard> + fmt::Debug + Send + Sync + Unpin;
}

mod sealed {
    use crate::resource::kind::Kind;

    /// The kind as a value. The code that depends on the kind reads this value, so it is compiled once for all kinds.
    pub trait OfKind: 'static {
        const KIND: Kind;
    }
}

macro_rules! kinds {
    ($($(#[$text:meta])* $kind:ident, $name:ident, $guard:ident;)*) => {
        $(
            $(#[$text])*
            ///
            /// # Examples
            /// See [`kinds`](crate::kinds).
            #[derive(Clone, Copy, Debug)]
            #[non_exhaustive]
            pub struct $kind;

            impl sealed::OfKind for $kind {
                const KIND: Kind = Kind::$kind;
            }

            impl LockKind for $kind {
                type Guard = $guard;
            }
        )*
    };
}

lock_kinds!(kinds);

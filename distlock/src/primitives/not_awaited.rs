//! What the compiler says if a handle is awaited, as one awaits the `lock()` of a mutex of tokio.
//!
//! These implementations exist only for that: a bound that nothing fulfils is an error where the handle is awaited, and not here, if
//! it has a lifetime of its own. They are of `Future`, because the compiler tells nothing of an unfulfilled `IntoFuture`.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::kinds::LockKind;
use super::{ExpirableSemaphore, Lock, MultiLock, RedLock, Semaphore};
use crate::error::Error;
use crate::guard::Guard;
use crate::guard::expirable_permit::ExpirablePermit;
use crate::guard::permit::Permit;

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a lock cannot be awaited: it is a handle, which holds nothing",
    label = "call `.acquire()` first",
    note = "`client.lock(\"order:42\").acquire().await?` waits for the lock, and `.try_acquire().await?` makes one attempt"
)]
pub trait Awaited {}

/// With the output that an acquisition has, so that the code behind `.await` has no further errors.
macro_rules! not_awaited {
    ($Handle:ty, $Guard:ty $(, $K:ident)?) => {
        #[doc(hidden)]
        impl$(<$K: LockKind>)? Future for $Handle
        where
            for<'a> &'a Self: Awaited,
        {
            type Output = Result<$Guard, Error>;

            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
                Poll::Ready(Err(Error::NoClient))
            }
        }
    };
}

not_awaited!(Lock<K>, K::Guard, K);
not_awaited!(MultiLock, Guard);
not_awaited!(RedLock, Guard);
not_awaited!(Semaphore, Permit);
not_awaited!(ExpirableSemaphore, ExpirablePermit);

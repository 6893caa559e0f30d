//! What the compiler says if a handle is awaited, as one awaits the `lock()` of a mutex of tokio, or if a read/write lock is
//! acquired without one of its sides.
//!
//! These implementations exist only for that: a bound that nothing fulfils is an error where the handle is used, and not here, if
//! it has a lifetime of its own. They are of `Future`, because the compiler tells nothing of an unfulfilled `IntoFuture`.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::kinds::LockKind;
use super::{CountDownLatch, ExpirableSemaphore, Lock, MultiLock, RedLock, RwLock, Semaphore};
use crate::acquire::Acquire;
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
pub trait AwaitedLock {}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a semaphore cannot be awaited: it is a handle, which holds no permit",
    label = "call `.acquire()` first",
    note = "`client.semaphore(\"printers\").acquire().await?` waits for a permit, and `.try_acquire().await?` makes one attempt"
)]
pub trait AwaitedSemaphore {}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a latch cannot be awaited: it is a handle, which waits for nothing",
    label = "call `.wait()` first",
    note = "`client.count_down_latch(\"import:parts\").wait().await?` waits until the count is 0"
)]
pub trait AwaitedLatch {}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a read/write lock has two sides, and only a side can be acquired",
    label = "call `.read()` or `.write()` on the lock, and `.acquire()` on that side",
    note = "`client.rw_lock(\"report:42\").read().acquire().await?` waits until no owner writes"
)]
pub trait Side {}

/// With the output that an acquisition has, so that the code behind `.await` has no further errors.
macro_rules! not_awaited {
    ($Handle:ty, $Awaited:ident, $Output:ty $(, $K:ident)?) => {
        #[doc(hidden)]
        impl$(<$K: LockKind>)? Future for $Handle
        where
            for<'a> &'a Self: $Awaited,
        {
            type Output = Result<$Output, Error>;

            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
                Poll::Ready(Err(Error::NoClient))
            }
        }
    };
}

not_awaited!(Lock<K>, AwaitedLock, K::Guard, K);
not_awaited!(MultiLock, AwaitedLock, Guard);
not_awaited!(RedLock, AwaitedLock, Guard);
not_awaited!(RwLock, Side, Guard);
not_awaited!(Semaphore, AwaitedSemaphore, Permit);
not_awaited!(ExpirableSemaphore, AwaitedSemaphore, ExpirablePermit);
not_awaited!(CountDownLatch, AwaitedLatch, ());

impl RwLock {
    #[doc(hidden)]
    pub fn acquire(&self) -> Acquire
    where
        for<'a> &'a Self: Side,
    {
        self.write().acquire()
    }

    #[doc(hidden)]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<>
    where
        for<'a> &'a Self: Side,
    {
        self.acquire().try_now()
    }
}

#![deny(warnings, clippy::pedantic)]
#![deny(missing_docs)]
//! What else stands on a function stays there.

use distlock::{Error, distributed_lock};

/// Documented.
#[distributed_lock(key = "<id>")]
#[must_use = "a receipt"]
#[inline]
#[allow(clippy::unused_async)]
pub async fn documented(
    id: u64,
    #[cfg(target_os = "none")] none: u8,
    #[cfg(not(target_os = "none"))] some: u8,
) -> Result<u64, Error> {
    Ok(id + u64::from(some))
}

#[distributed_lock(key = "inner")]
pub async fn inner_attribute() -> Result<(), Error> {
    #![allow(missing_docs, unused_variables)]
    let unused = 1;
    Ok(())
}

/// Unsafe.
///
/// # Safety
/// None needed.
#[distributed_lock(key = "unsafe")]
pub async unsafe fn not_safe() -> Result<(), Error> {
    Ok(())
}

/// Items in the body, and a `return` type of its own.
#[distributed_lock(key = "items")]
pub async fn items() -> Result<usize, Error> {
    use std::mem::size_of;

    const SIZE: usize = size_of::<u64>();
    fn inner() -> usize {
        return_one()
    }
    fn return_one() -> usize {
        1
    }
    Ok(SIZE + inner())
}

fn main() {
    let _future = documented(1, 2);
    let _future = items();
}

//! Other attributes of a function stay on it.
#![deny(missing_docs)]

use distlock::{Error, distributed_lock};

use super::ok;

/// Documented.
#[distributed_lock(key = "<id>")]
#[must_use = "a receipt"]
#[inline]
#[allow(clippy::unused_async)]
pub async fn documented(
    id: u64,
    #[cfg(target_os = "none")] none: u8,
    #[cfg(not(target_os = "none"))] some: u8,
    #[cfg_attr(not(target_os = "none"), cfg(target_os = "none"))] removed: u8,
    #[cfg_attr(target_os = "none", cfg(target_os = "none"))] kept: u8,
) -> Result<u64, Error> {
    Ok(id + u64::from(some + kept))
}

#[distributed_lock(key = "inner")]
pub async fn inner_attribute() -> Result<(), Error> {
    #![allow(missing_docs, unused_variables)]
    let unused = 1;
    Ok(())
}

/// The body contains items.
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

#[tokio::test]
async fn runs() {
    assert_eq!(ok(documented(1, 2, 3)).await, 6);
    ok(inner_attribute()).await;
    assert_eq!(ok(items()).await, 9);
}

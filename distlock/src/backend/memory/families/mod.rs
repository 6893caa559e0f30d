//! What the server does for each family of primitives, on its [data](super::store). The files have the same functions as those in
//! `redis/families`.

pub(crate) mod fair;
pub(crate) mod latch;
pub(crate) mod lock;
pub(crate) mod number;
pub(crate) mod permit;
pub(crate) mod rw;
pub(crate) mod semaphore;

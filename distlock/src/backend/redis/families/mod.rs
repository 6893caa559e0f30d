//! The operations of each family of primitives: which script an operation runs, with which keys and arguments, and what the
//! answer means. The files have the same functions as those in `memory/families`.

pub(crate) mod fair;
pub(crate) mod latch;
pub(crate) mod lock;
pub(crate) mod number;
pub(crate) mod permit;
pub(crate) mod rw;
pub(crate) mod semaphore;

//! Two backends, the same random operations, every answer compared.
//!
//! The verbs are driven bare, below the client's waiting and renewing. Owners are compared by number, times with a
//! tolerance. A sequence that differs is shrunk by proptest to the shortest one. One file for each primitive.

mod agree;
mod fair;
mod fenced;
mod glob;
mod lock;
mod multi;
mod passing;
mod permit;
mod rw;
mod semaphore;
mod side;

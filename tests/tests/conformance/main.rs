//! What each primitive promises, as tests that every backend passes.
//!
//! One file per subject, one `async fn(&Stage)` per promise: a primitive's files begin with its name, the reentrant lock's
//! with `lock_`, and what all exclusive locks promise is asked of each in `every_lock`. A test is listed once in its file,
//! and runs on every backend of [`stage`]: `lock_acquire::memory::free_lock_is_granted`. Each test is a test for leaks too:
//! when its body is done, the stage waits until no client keeps anything and the server is empty.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what went wrong")]

#[macro_use]
mod stage;

mod attribute;
mod bounds;
mod current;
mod every_lock;
mod fair;
mod fenced;
mod latch;
mod lock_acquire;
mod lock_cancel;
mod lock_close;
mod lock_handover;
mod lock_hearing;
mod lock_lease;
mod lock_loss;
mod lock_outcome;
mod lock_reentry;
mod lock_runtime;
mod lock_siblings;
mod lock_storm;
mod lock_waiting;
mod locks;
mod multi_lock;
mod non_reentrant;
mod permit;
mod permit_end;
mod permit_outcome;
mod red_lock;
mod red_lock_lease;
mod red_lock_outage;
mod red_lock_waiting;
mod rw;
mod rw_cancel;
mod rw_lease;
mod rw_nesting;
mod rw_turns;
mod rw_waiting;
mod semaphore;
mod semaphore_outcome;
mod semaphore_waiting;
mod spin;
mod stream;

//! What each primitive promises, as tests that every backend passes.
//!
//! One file per subject, one `async fn(&Stage)` per promise: a primitive's files begin with its name, the reentrant lock's
//! with `lock_`, and what all exclusive locks promise is asked of each in `every_lock`. A test is listed once in its file,
//! and runs on every backend of [`stage`]: `lock_acquire::memory::free_lock_is_granted`. Each test is a test for leaks too:
//! when its body is done, the stage waits until no client keeps anything and the server is empty.

#[macro_use]
mod stage;

mod attribute;
mod bounds;
mod current;
mod every_lock;
mod fair;
mod fenced;
mod latch;
mod lock;
mod lock_source;
mod multi_lock;
mod non_reentrant;
mod permit;
mod red_lock;
mod rw;
mod semaphore;
mod spin;
mod stream;

//! What each primitive promises, as tests that every backend passes.
//!
//! A folder or a file for each primitive, and one `async fn(&Stage)` for each promise. The reentrant lock is `lock`, and the
//! promises of all exclusive locks are tested for each of them in `every_lock`. A test is listed once in its file, and runs
//! on every backend of [`stage`]: `lock::acquire::memory::free_lock_is_granted_and_release_frees_it`. Each test is a test
//! for leaks too: when its body is done, the stage waits until no client keeps anything and the server is empty.

#[macro_use]
mod stage;

mod attribute;
mod bounds;
mod current;
mod every_lock;
mod expire_after;
mod fair;
mod fairness;
mod fenced;
mod force_release;
mod foreign;
mod latch;
mod leader;
mod lock;
mod lock_source;
mod long_waits;
mod looks;
mod multi_lock;
mod multi_lock_gates;
mod multi_lock_places;
mod multi_lock_share;
mod non_reentrant;
mod permit;
mod red_lock;
mod refusal;
mod report;
mod rw;
mod scan;
mod semaphore;
mod spin;
mod stream;
mod unguarded;
mod until_free;

//! What each primitive promises, as tests that every backend passes.
//!
//! A folder or a file for each primitive, and one `async fn(&Stage)` for each promise. The reentrant lock is `lock`, and the
//! promises of all exclusive locks are tested for each of them in `every_lock`. A test is listed once in its file, and runs
//! on every backend of [`stage`]: `lock::acquire::memory::free_lock_is_granted_and_release_frees_it`. Each test is a test
//! for leaks too: when its body is done, the stage waits until no client keeps anything and the server is empty.

#[macro_use]
mod stage;

mod admin;
mod expire_after;
mod hot_key;
mod kinds;
mod latch;
mod leader;
mod leader_hold;
mod lock;
mod multi_lock;
mod permit;
mod red_lock;
mod rw;
mod scope;
mod semaphore;
mod waiting;

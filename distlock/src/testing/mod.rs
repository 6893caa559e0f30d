//! What tests of your own code need besides a client [in memory](crate::Client::in_memory). It needs the feature
//! `testing`.
//!
//! ```toml
//! [dev-dependencies]
//! distlock = { version = "0.1", features = ["testing"] }
//! ```
//!
//! The [guide](crate::guide::testing) has an example of each.
//!
//! | to test | use |
//! | --- | --- |
//! | a server that is away | [`MemoryServer::take_down`], [`MemoryServer::bring_up`] |
//! | a retry | [`MemoryServer::fail_next`], [`MemoryServer::lose_next`] |
//! | a lock that is lost | [`MemoryServer::forget`], [`MemoryServer::forget_all`] |
//! | what happens while somebody holds the lock or waits for it | [`MemoryServer::until_locked`], [`MemoryServer::until_waiting`], [`MemoryServer::until_free`] |
//! | who that is | [`MemoryServer::locked_keys`], [`MemoryServer::holders`], [`MemoryServer::waiters`] |
//! | code around a mock | [`errors`], which makes each variant of [`Error`](crate::Error) |

pub mod errors;

#[cfg(doc)]
use crate::backend::memory::MemoryServer;
pub use crate::backend::memory::Waiter;

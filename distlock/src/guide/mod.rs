//! The guide: what to choose, what to know, and how to come here from elsewhere. Nothing but documentation.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`choosing`] | which primitive, and by which of the three ways |
//! | [`ownership`] | who holds a lock where threads and tasks are no owners: scopes, branches, spawned tasks, drops |
//! | [`limits`] | what no lock can promise, and what a fencing token adds |
//! | [`transactions`] | lock outside, commit inside |
//! | [`testing`] | your code's tests, without a server |
//! | [`from_redisson`] | every method of `RLock` and `RLockAsync`, and where the others are |
//! | [`from_lock4j`] | annotations, option by option |

#[doc = include_str!("choosing.md")]
pub mod choosing {}
#[doc = include_str!("from_lock4j.md")]
pub mod from_lock4j {}
#[doc = include_str!("from_redisson.md")]
pub mod from_redisson {}
#[doc = include_str!("limits.md")]
pub mod limits {}
#[doc = include_str!("ownership.md")]
pub mod ownership {}
#[doc = include_str!("testing.md")]
pub mod testing {}
#[doc = include_str!("transactions.md")]
pub mod transactions {}

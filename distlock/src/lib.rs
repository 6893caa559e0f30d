#![doc = include_str!("../../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod ambient;
mod backend;
mod builder;
mod client;
mod clock;
mod config;
mod current;
mod error;
mod flaw;
mod guard;
mod handle;
mod hold;
mod inherit;
mod key;
mod kind;
mod locks;
mod mode;
mod owner;
mod permit;
mod primitives;
mod reentry;
mod run;
mod scope;
mod stream;
mod telemetry;
mod together;
mod wait;

#[cfg(feature = "macros")]
pub mod guide;

#[cfg(feature = "macros")]
pub use distlock_macros::distributed_lock;

pub use crate::acquire::Acquire;
pub use crate::ambient::with_client;
pub use crate::backend::memory::MemoryServer;
pub use crate::builder::Builder;
pub use crate::client::Client;
pub use crate::current::{Current, current, is_held};
pub use crate::error::{Blocker, Error, Loss};
pub use crate::guard::{Guard, Leased};
pub use crate::handle::Holder;
pub use crate::inherit::{Inherit, inherit};
pub use crate::locks::LockSource;
pub use crate::mode::Mode;
pub use crate::owner::Owner;
pub use crate::permit::PermitId;
pub use crate::primitives::{
    CountDownLatch, ExpirablePermit, ExpirableSemaphore, FairLock, FencedGuard, FencedLock,
    LatchWait, Lock, Member, MultiLock, NonReentrantFairLock, NonReentrantLock, Permit, Quorum,
    ReadLock, RedLock, RwLock, Semaphore, SpinLock, Waiting, WriteLock,
};
pub use crate::run::{Acquiring, Run, TryRun};
pub use crate::scope::{Scope, Section};
pub use crate::stream::HoldStream;

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod test_util;

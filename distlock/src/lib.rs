#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The flaws that the interleavings are explored with are those of another crate, which names this one.
#[cfg(all(test, distlock_shuttle, feature = "test-util"))]
extern crate self as distlock;

mod acquire;
mod backend;
mod client;
mod clock;
mod config;
mod error;
mod guard;
mod hold;
mod local;
mod primitives;
mod resource;
mod scope;
mod session;
mod sync;
mod telemetry;
mod wait;

#[cfg(feature = "macros")]
pub mod guide;

#[cfg(feature = "macros")]
#[doc(inline)]
pub use distlock_macros::distributed_lock;

pub use crate::acquire::Acquire;
pub use crate::acquire::on_lost::OnLost;
pub use crate::acquire::path::Acquiring;
pub use crate::backend::memory::MemoryServer;
pub use crate::backend::reports::{
    ClientReport, HolderReport, KeyReport, PermitsReport, Primitive, WaiterReport,
};
pub use crate::backend::{PrimitiveRights, ServerFacts, ServerLayout, UnknownFact};
pub use crate::client::Client;
pub use crate::client::builder::Builder;
pub use crate::client::force::ForceRelease;
pub use crate::client::health::Health;
pub use crate::client::inherit::{Inherit, inherit};
pub use crate::client::inspect::scan::Scan;
pub use crate::client::installed::{Installed, WithClient, with_client};
pub use crate::client::leader::{Leader, LeaderChanges};
pub use crate::client::quorum::Quorum;
pub use crate::client::source::LockSource;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use crate::config::credentials::Credentials;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use crate::config::{PubSub, Replicas};
pub use crate::config::{SettingWord, Settings};
pub use crate::error::{Blocker, Error, HeldBy, Loss};
pub use crate::guard::detached::DetachedHold;
pub use crate::guard::expirable_permit::ExpirablePermit;
pub use crate::guard::fenced::FencedGuard;
pub use crate::guard::permit::Permit;
pub use crate::guard::run::{Run, TryRun};
pub use crate::guard::stream::HoldStream;
pub use crate::guard::{Guard, Leased};
pub use crate::local::snapshot::{BlockedBy, HoldSnapshot, LossSnapshot, Snapshot, WaitSnapshot};
pub use crate::primitives::{
    CountDownLatch, ExpirableSemaphore, FairLock, FencedLock, LatchWait, Lock, Member, MultiLock,
    NonReentrantFairLock, NonReentrantLock, ReadLock, RedLock, RwLock, Semaphore, SpinLock,
    UntilFree, Waiting, WriteLock, kinds,
};
pub use crate::resource::kind::Kind;
pub use crate::resource::mode::Mode;
pub use crate::resource::owner::{Holder, Owner};
pub use crate::resource::permit_id::PermitId;
pub use crate::resource::visible::visible;
pub use crate::scope::current::{Current, current, is_held};
pub use crate::scope::{Scope, Section, TryScope};

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod test_util;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

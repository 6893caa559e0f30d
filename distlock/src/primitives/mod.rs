//! The public primitives: their types and documentation. Other modules implement how they wait, how holds are renewed,
//! and how they end.

mod expirable_semaphore;
mod fair;
mod fenced;
pub mod kinds;
mod latch;
mod lock;
mod multi;
mod not_awaited;
mod red_lock;
mod rw;
mod semaphore;
mod spin;
mod until_free;

pub use self::expirable_semaphore::ExpirableSemaphore;
pub use self::fair::{FairLock, NonReentrantFairLock};
pub use self::fenced::FencedLock;
pub use self::latch::{CountDownLatch, LatchWait, Waiting};
pub use self::lock::{Lock, NonReentrantLock};
pub use self::multi::{Member, MultiLock};
pub use self::red_lock::RedLock;
pub use self::rw::{ReadLock, RwLock, WriteLock};
pub use self::semaphore::Semaphore;
pub use self::spin::SpinLock;
pub use self::until_free::UntilFree;

//! The other crates of the comparison. Each is used as its documentation shows, with one connection for all tasks.
//!
//! Both ask again until the key is free. They do it each 10 ms here, which is more often than their defaults.

mod redis_lock;
mod rslock;

use std::time::Duration;

pub(crate) use self::redis_lock::{RedisLock, RedisMultiLock};
pub(crate) use self::rslock::Rslock;

const LEASE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(10);
